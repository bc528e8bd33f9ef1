"""The suite `apps`: apps and operations that `general` does not train on. It has no `train` of its own."""

from __future__ import annotations

from distrl.simulator.apps import calendar, clock_tasks, contacts, files, mail, messages, music, weather
from distrl.simulator.phone.theme import TRAIN_LAYOUTS
from distrl.simulator.tasks.base import Family
from distrl.simulator.tasks.suites.general import Split, readers

SUITE = "apps"
TRAINED_ON = "general"
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What it does not share with that suite."""
MAX_STEPS = 15
_APPS = (music, files, mail, clock_tasks, calendar, contacts, messages, weather)
FAMILIES: tuple[Family, ...] = tuple(family for app in _APPS for family in app.FAMILIES if not family.train)
SPLITS = (Split("test", 128, pool="all", layouts=TRAIN_LAYOUTS),)
tasks, phrasing = readers(SUITE, FAMILIES, SPLITS, MAX_STEPS)
