"""The suite `general`: everyday tasks in nine apps of a phone in daily use.

`val`, `test` and `unseen_layout` have other parameter combinations than `train`, and other wordings of the
goals; `val` shares no combination with the others; `unseen_layout` is on a layout that `train` does not have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from distrl.core.types import Task
from distrl.simulator.apps import (
    browser,
    calculator,
    calendar,
    clock_tasks,
    contacts,
    messages,
    notes,
    settings,
    weather,
)
from distrl.simulator.phone.interruptions import KINDS
from distrl.simulator.phone.theme import TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks import open_app
from distrl.simulator.tasks.base import Family, Params, instance, seed_of

INTERRUPTED = 3
"""One instance in so many is interrupted by something that the system or an app shows."""


@dataclass(frozen=True)
class Split:
    """A split of a suite.

    Attributes:
        total: Instances, spread evenly over the families.
        pool: Where its combinations come from: "train", "val", "test", which share none, or "all". All but
            "train" have the wordings that are held out.
    """

    name: str
    total: int
    pool: str
    layouts: Sequence[int]


def _pools(combos: list[Params]) -> dict[str, list[Params]]:
    """Two to four combinations for "test", a fourth of them at most where they are few; one for "val"."""
    test = max(2, min(4, len(combos) // 4))
    return {"test": combos[:test], "val": combos[test : test + 1], "train": combos[test + 1 :], "all": combos}


def instances(
    suite: str, families: Sequence[Family], splits: Sequence[Split], max_steps: int
) -> dict[str, tuple[Task, str]]:
    """The tasks of a suite by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    for at, family in enumerate(families):
        combos = list(family.combos)
        random.Random(f"{suite}/1/{family.name}").shuffle(combos)
        for split in splits:
            pool = _pools(combos)[split.pool]
            wordings = family.train if split.pool == "train" else family.test
            count = split.total // len(families) + (at < split.total % len(families))
            for index in range(count):
                params = pool[index % len(pool)]
                place: Params = {"layout": split.layouts[(index + at) % len(split.layouts)]}
                if (index + at) % INTERRUPTED == 0:
                    place["interruptions"] = [KINDS[(5 * index + at) % len(KINDS)]]
                turn = index + at + index // len(wordings)  # no wording is always interrupted
                wording = wordings[turn % len(wordings)]
                name = f"{suite}/{family.name}/{split.name}/{index:04d}"
                goal, both = wording.format(**family.words(params)), {**place, **params}
                template, seed = family.template or family.name, seed_of(f"1/{name}")
                made[name] = instance(name, template, goal, both, seed, max_steps), wording
    return made


def readers(
    suite: str, families: Sequence[Family], splits: Sequence[Split], max_steps: int
) -> tuple[Callable[[], list[Task]], Callable[[Task], str]]:
    """A suite's `tasks`, every instance, the same on every machine; and `phrasing`, a goal's wording."""

    @lru_cache(maxsize=1)
    def made() -> dict[str, tuple[Task, str]]:
        return instances(suite, families, splits, max_steps)

    return lambda: [task for task, _ in made().values()], lambda task: made()[task.id][1]


SUITE = "general"
MAX_STEPS = 15
_APPS = (clock_tasks, calendar, settings, weather, calculator, browser, open_app, contacts, messages, notes)
"""Whose families are trained on, in the order of the suite: a new app does not change it by itself."""
FAMILIES: tuple[Family, ...] = tuple(family for app in _APPS for family in app.FAMILIES if family.train)
SPLITS = (
    Split("train", 600, pool="train", layouts=TRAIN_LAYOUTS),
    Split("val", len(FAMILIES), pool="val", layouts=TRAIN_LAYOUTS),
    Split("test", 128, pool="test", layouts=TRAIN_LAYOUTS),
    Split("unseen_layout", len(FAMILIES), pool="test", layouts=UNSEEN_LAYOUTS),
)
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What no evaluation split shares with `train`."""
tasks, phrasing = readers(SUITE, FAMILIES, SPLITS, MAX_STEPS)
