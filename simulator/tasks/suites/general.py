"""The suite `general`: everyday tasks in nine apps of a phone in daily use.

`val`, `test` and `unseen_layout` have other parameter combinations than `train`, and other wordings of the
goals; `val` shares no combination with the others; `unseen_layout` is on a layout that `train` does not have.
"""

from __future__ import annotations

from functools import lru_cache

from distrl.core.types import Task
from distrl.simulator.phone.theme import TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks.suites.families import Split, instances
from distrl.simulator.tasks.suites.general_apps import FAMILIES as APPS
from distrl.simulator.tasks.suites.general_people import FAMILIES as PEOPLE
from distrl.simulator.tasks.suites.general_time import FAMILIES as TIME

SUITE = "general"
MAX_STEPS = 15
FAMILIES = (*TIME, *APPS, *PEOPLE)
SPLITS = (
    Split("train", 600, pool="train", layouts=TRAIN_LAYOUTS),
    Split("val", len(FAMILIES), pool="val", layouts=TRAIN_LAYOUTS),
    Split("test", 128, pool="test", layouts=TRAIN_LAYOUTS),
    Split("unseen_layout", len(FAMILIES), pool="test", layouts=UNSEEN_LAYOUTS),
)
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What no evaluation split shares with `train`."""


@lru_cache(maxsize=1)
def _made() -> dict[str, tuple[Task, str]]:
    found = instances(SUITE, FAMILIES, SPLITS, MAX_STEPS)
    return {task.id: (task, wording) for task, wording in found}


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    return [task for task, _ in _made().values()]


def phrasing(task: Task) -> str:
    """How the task's goal is worded, without its parameters."""
    return _made()[task.id][1]
