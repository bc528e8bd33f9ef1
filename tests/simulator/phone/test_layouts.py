"""Drawn layouts: what each range holds out, legible colours, and homes on which nothing overlaps."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from itertools import chain, combinations

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import SUITES, load_suite
from distrl.simulator.apps import BUILT_IN
from distrl.simulator.phone import nodes, theme
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import DRIFT_LAYOUTS, HELD_OUT, TRAIN_LAYOUTS, UNSEEN_LAYOUTS, layout
from distrl.workers.envs.phone import PhoneEnv

DRAWN = [*TRAIN_LAYOUTS[:300], *UNSEEN_LAYOUTS[:100], *DRIFT_LAYOUTS[:50]]
FIRST_OF_EACH: dict[str, Task] = {}
for name, path in SUITES.items():
    if path.startswith("distrl.simulator."):
        for task in load_suite(name):
            FIRST_OF_EACH.setdefault(task.template, task)


def held_out(index: int) -> list[str]:
    return [name for name, has in HELD_OUT.items() if has(layout(index))]


def test_training_has_nothing_that_is_held_out_and_every_other_layout_something() -> None:
    assert not any(map(held_out, TRAIN_LAYOUTS[:300]))
    assert {name for index in UNSEEN_LAYOUTS[:100] for name in held_out(index)} == set(HELD_OUT)
    assert all(map(held_out, (*UNSEEN_LAYOUTS[:100], *DRIFT_LAYOUTS[:50])))
    assert all(theme.is_drifted(layout(index)) for index in DRIFT_LAYOUTS[:50])
    assert not any(theme.is_drifted(layout(index)) for index in DRAWN[:400])


def test_values_of_a_held_out_combination_occur_in_training() -> None:
    trained = [layout(index) for index in TRAIN_LAYOUTS[:300]]
    for name, held in (("picker", "pages"), ("tabs", "top"), ("fab", "center"), ("save", "top")):
        assert any(getattr(one, name) == held for one in trained)
    unlike = [
        field.name for field in fields(theme.Layout) if len({getattr(one, field.name) for one in trained}) > 1
    ]
    assert unlike == [field.name for field in fields(theme.Layout)]
    assert len(set(trained)) == len(trained)


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_written_is_legible_on_every_surface(dark: bool) -> None:
    for index in DRAWN:
        version = layout(index)
        colors = version.theme(dark)
        pairs = [
            (ink, ground)
            for ink in (colors.text, colors.muted, colors.primary)
            for ground in (colors.bg, colors.card, colors.raised)
        ]
        pairs += [(colors.on_primary, colors.primary), (colors.on_tint, colors.tint)]
        pairs += [(version.label, color) for color in version.wallpaper[:4]]
        assert min(theme.contrast(*pair) for pair in pairs) >= 4.5, index
        assert theme.contrast("#ffffff", version.wallpaper[4]) >= theme.LEAST


@pytest.mark.parametrize("height", [720.0, 800.0, 900.0])
def test_every_app_is_on_the_home_page_once_and_nothing_overlaps(height: float) -> None:
    for index in DRAWN:
        version = layout(index)
        names = Counter(filter(None, chain(*version.grid, version.dock)))
        assert names == Counter(BUILT_IN), index
        tree = Phone(new_state(index), height).tree()
        shown = [node for node in nodes.walk(tree) if node.clickable]
        assert len(shown) >= 11
        for one, other in combinations(shown, 2):
            left, top, right, bottom = nodes.intersect(one.box, other.box)
            assert right - left <= 0.01 or bottom - top <= 0.01, (index, one.rid, other.rid)
        assert all(node.y >= 32 and node.y + node.h <= height for node in shown), index


@pytest.mark.parametrize("template", FIRST_OF_EACH)
def test_the_expert_solves_every_template_on_drawn_layouts(template: str) -> None:
    env, task = PhoneEnv(width=72, height=160), FIRST_OF_EACH[template]
    for index in (*TRAIN_LAYOUTS[300:306], *UNSEEN_LAYOUTS[300:304], *DRIFT_LAYOUTS[300:302]):
        env.reset(task.model_copy(update={"params": task.params | {"layout": index}}))
        for _ in range(30):
            action = env.expert_action()
            if action.is_terminal:
                break
            env.step(action)
        assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), index


def test_the_quickstart_draws_each_split_s_layouts_and_its_other_splits_hold_words_out() -> None:
    seen: dict[str, set[int]] = {}
    for task in load_suite("quickstart"):
        seen.setdefault(task.split, set()).add(task.params["layout"])
    trained = [task for task in load_suite("quickstart", "train") if task.template in ("contact", "star")]
    people = {name for task in trained for name in task.params["book"]}
    words = {word for name in people for word in name.split()}
    assert len(people) > 2000
    for split in ("test", "unseen_layout", "test_drift"):
        tasks = load_suite("quickstart", split)
        assert len(tasks) >= 400
        for task in tasks:
            assert not words & set(task.params.get("name", "").split()), task.id
    assert len(seen["train"]) > 4700
    assert all(index in TRAIN_LAYOUTS for split in ("train", "val", "test") for index in seen[split])
    assert all(index in UNSEEN_LAYOUTS for index in seen["unseen_layout"])
    assert all(index in DRIFT_LAYOUTS for split in ("drift", "test_drift") for index in seen[split])


def test_grounding_is_one_touch_and_no_other_counts() -> None:
    env, tasks = PhoneEnv(width=72, height=160), load_suite("quickstart", "test_grounding")
    for task in tasks[::4]:
        env.reset(task)
        tree = env._backend.device.phone.tree()  # type: ignore[attr-defined]
        shown = {text for node in nodes.walk(tree) for text in (node.text, node.value, node.desc)}
        assert any(text and task.goal.rstrip("?").endswith(text) for text in shown), task.id
        touch = env.expert_action()
        if touch.kind is ActionKind.TAP:
            env.step(Action.tap(0.02, 0.02))
            assert env.evaluate() == 0.0, task.id
            env.step(touch)
            assert env.evaluate() == 1.0, task.id
