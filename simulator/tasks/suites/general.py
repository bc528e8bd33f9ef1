"""The suite `general`: everyday tasks on a phone in daily use, in nine apps to train on and three others.

| split | held out of `train` |
|---|---|
| `val`, `test` | instances: parameters and names, and wordings of the goals |
| `unseen_template` | the same, and what is asked: operations of apps that are trained on |
| `unseen_app` | the same, and the app: files, mail, music |
| `unseen_layout` | as `test`, and the layout |

These are the three kinds of generalisation of AndroidWorld-Generalization (arXiv 2603.07432), and one more.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distrl.core.types import Task
from distrl.simulator.apps import (
    browser,
    calculator,
    calendar,
    clock_tasks,
    contacts,
    files,
    mail,
    messages,
    music,
    notes,
    settings,
    weather,
)
from distrl.simulator.names import Names
from distrl.simulator.phone.interruptions import KINDS
from distrl.simulator.phone.theme import TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks import open_app
from distrl.simulator.tasks.base import Family, Params, instance, suite_of
from distrl.simulator.tasks.wording import say

SUITE = "general"
MAX_STEPS = 15
INTERRUPTED = 3
"""One instance in so many is interrupted by something that the system or an app shows."""
_APPS = (clock_tasks, calendar, settings, weather, calculator, browser, open_app, contacts, messages, notes)
"""Which are trained on, in the order of the suite: a new app does not change it by itself."""
_HELD_OUT = (
    *("world_remove", "event_length", "weather_add", "contact_call_back", "contact_unstar", "chat_mark"),
)
_ALL: tuple[Family, ...] = tuple(family for app in _APPS for family in app.FAMILIES)
FAMILIES = tuple(family for family in _ALL if family.name not in _HELD_OUT)
UNSEEN_TEMPLATES = tuple(family for family in _ALL if family.name in _HELD_OUT)
UNSEEN_APPS: tuple[Family, ...] = (*music.FAMILIES, *files.FAMILIES, *mail.FAMILIES)


@dataclass(frozen=True)
class Split:
    """A split of the suite.

    Attributes:
        total: Instances, spread evenly over the families.
        pool: Whose parameters and wordings it has: "train", or the held-out ones of "val" or "test".
    """

    name: str
    total: int
    pool: str = "test"
    families: tuple[Family, ...] = FAMILIES
    layouts: Sequence[int] = TRAIN_LAYOUTS


SPLITS = (
    Split("train", 6000, "train"),
    Split("val", 164, "val"),
    Split("test", 410),
    Split("unseen_template", 402, families=UNSEEN_TEMPLATES),
    Split("unseen_app", 414, families=UNSEEN_APPS),
    Split("unseen_layout", 410, layouts=UNSEEN_LAYOUTS),
    Split("train_unseen", 2000, "train", families=(*UNSEEN_TEMPLATES, *UNSEEN_APPS)),
)
"""The last one is for comparison only: what training on the unseen templates and apps gives."""
DISJOINT = ("tasks", "goals", "params", "phrasings", "names")
"""What no evaluation split shares with `train` and `train_unseen`."""


def _pools(family: Family) -> dict[str, list[Params]]:
    """A finite family's combinations: a quarter for "test", a twelfth for "val"; of each one at least."""
    combos = family.combos()
    random.Random(f"{SUITE}/2/{family.name}").shuffle(combos)
    test = max(2, len(combos) // 4)
    val = test + max(1, len(combos) // 12)
    return {"test": combos[:test], "val": combos[test:val], "train": combos[val:]}


def _drawn(family: Family, split: Split, count: int, taken: set[str]) -> Iterator[tuple[Params, Names]]:
    """Parameters without layout, none of them `taken`, each with a generator for the rest of the task."""
    pool = _pools(family)[split.pool] if family.is_finite else []
    for index in range(count):
        seed = zlib.crc32(f"{SUITE}/2/{family.name}/{split.name}/{index}".encode())
        names = Names(2 * seed + (split.pool != "train"))
        params = pool[index % len(pool)] if pool else family.draw(names)
        while not pool and str(params) in taken:
            params = family.draw(names)
        taken.add(str(params))
        yield params, names


def _instances() -> dict[str, tuple[Task, str]]:
    """The tasks by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    taken: dict[str, set[str]] = {family.name: set() for split in SPLITS for family in split.families}
    for split in SPLITS:
        for at, family in enumerate(split.families):
            count = split.total // len(split.families) + (at < split.total % len(split.families))
            for index, (params, names) in enumerate(_drawn(family, split, count, taken[family.name])):
                place: Params = {"layout": names.choice(split.layouts)}
                if (index + at) % INTERRUPTED == 0:
                    place["interruptions"] = [names.choice(KINDS)]
                wording = say(family.name, names.is_held_out, names)
                name = f"{SUITE}/{family.name}/{split.name}/{index:04d}"
                template = family.template or family.name
                seed = 2 * names.getrandbits(30) + names.is_held_out
                words = family.words(params)
                made[name] = instance(name, template, wording, words, place | params, seed, MAX_STEPS)
    return made


tasks, phrasing, aside = suite_of(_instances)


def names(task: Task) -> list[str]:
    """The names that a task is about, and what else its goal names."""
    return [*(task.params[key] for key in _NAMED[task.id.split("/")[1]]), *aside(task)]


_NAMED = {family.name: family.names for split in SPLITS for family in split.families}
