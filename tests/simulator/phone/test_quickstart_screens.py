"""The quickstart's screens stay as they are, byte for byte: what is learned on them is compared.

A change of a digest below is a change of the benchmark: results from before and after it do not compare.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator

import PIL
import pytest
from PIL import features

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import render
from distrl.simulator.phone.nodes import Node, walk
from distrl.simulator.tasks.play import SimBackend
from distrl.workers.envs.phone import PhoneEnv

TREES = "54e22bc890d73454395523bccd2def495a8e99ef0fe74fe78b8c0cb24b5fe2ae"
PICTURES = "450faba84e4ec931319718e5de1bf2c21d75eb2f6b0302277dfc0934435c1ea0"
DRAWN_WITH = ("13.0.0", "2.14.3")
"""The versions of Pillow and FreeType that the pictures were drawn with; others may smooth text otherwise."""
DEFAULTS = {field.name: field.default for field in dataclasses.fields(Node)}


def plain(node: Node) -> dict[str, object]:
    """A node without its children; fields at their default are left out."""
    values = {name: getattr(node, name) for name in DEFAULTS if name != "children"}
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}


def told(tree: Node) -> bytes:
    return json.dumps([plain(node) for node in walk(tree)], sort_keys=True).encode()


def sample() -> list[Task]:
    return load_suite("quickstart")[::113]


def random_action(rng: random.Random) -> Action:
    roll, x, y = rng.random(), rng.random(), rng.random()
    if roll < 0.5:
        return Action.tap(x, y)
    if roll < 0.6:
        return Action(kind=ActionKind.LONG_PRESS, point=(x, y))
    if roll < 0.7:  # from the top edge
        return Action.swipe((x, rng.random() * 0.04), (x, y))
    if roll < 0.85:
        return Action.swipe((x, y), (rng.random(), rng.random()))
    if roll < 0.9:
        return Action.type_text("red 7")
    return Action(kind=rng.choice([ActionKind.BACK, ActionKind.ENTER, ActionKind.HOME, ActionKind.WAIT]))


def screens(task: Task) -> Iterator[Node]:
    """The start, the expert's screens, and those of the home screen that a random walk comes to."""
    device = SimDevice()
    env = PhoneEnv(backend=SimBackend(device))
    env.reset(task)
    yield device.phone.tree()
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
        yield device.phone.tree()
    rng = random.Random(task.id)
    env.reset(task)
    for _ in range(8):
        env.step(random_action(rng))
        if device.foreground() == "launcher":
            yield device.phone.tree()


def test_the_trees_of_a_sample_are_the_same_as_ever() -> None:
    found = hashlib.sha256()
    for task in sample():
        for tree in screens(task):
            found.update(told(tree))
    assert found.hexdigest() == TREES


@pytest.mark.skipif(
    (PIL.__version__, features.version("freetype2")) != DRAWN_WITH,
    reason=f"needs Pillow and FreeType of the versions {DRAWN_WITH}",
)
def test_the_pictures_of_a_sample_are_the_same_as_ever() -> None:
    found = hashlib.sha256()
    for task in sample()[::6]:
        found.update(render.draw(next(screens(task)), 270, 600).tobytes())
    assert found.hexdigest() == PICTURES
