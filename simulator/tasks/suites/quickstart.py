"""The quickstart suite: short tasks of six templates, each on a layout of its own.

Layouts, names, queries, times and wordings are drawn from a task's place in the suite. What the other splits
hold out of `train`:

    val, test       every wording, every name and every thing that the shop is searched for, a seventh of the
                    times of alarms, and a fourth of the pairs of an app to open and what is in front;
                    settings are the same five
    unseen_layout   the same, on layouts that have something that no layout of training has
    drift           nothing but the layouts, a family of their own: trained on where `tasks.drift` is set
    test_drift      what `test` holds out, on layouts of that family

`train_grounding` is for policies that see pixels: most of its tasks are one touch of what has a label or of a
contact ("Tap Anna Berg"), the others are as in `train`. `test_grounding` has tasks of one touch only. It
holds out wordings and names, on the layouts of `unseen_layout`; the other labels are those of training.

The phone's address book holds the contact's name among others that are drawn alike, some with the same first
or last name.
"""

from __future__ import annotations

import random
from typing import Any

from distrl.core.types import Task
from distrl.simulator.apps import APPS, BUILT_IN
from distrl.simulator.names import Names
from distrl.simulator.phone.theme import DRIFT_LAYOUTS, TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks import grounding
from distrl.simulator.tasks.base import Params, instance, suite_of
from distrl.simulator.tasks.wording import say

SUITE = "quickstart"
LAYOUTS = {
    "train": TRAIN_LAYOUTS,
    "val": TRAIN_LAYOUTS,
    "test": TRAIN_LAYOUTS,
    "unseen_layout": UNSEEN_LAYOUTS,
    "drift": DRIFT_LAYOUTS,
    "test_drift": DRIFT_LAYOUTS,
    "train_grounding": TRAIN_LAYOUTS,
    "test_grounding": UNSEEN_LAYOUTS,
}
"""The splits, and where each draws its layouts."""
COUNTS = {
    "train": 800,
    "val": 10,
    "test": 68,
    "unseen_layout": 68,
    "drift": 200,
    "test_drift": 68,
    "train_grounding": 200,
}
"""Tasks of each template but `tap` by split."""
GROUNDING_COUNTS = {"train_grounding": 6000, "test_grounding": 408}
"""Tasks of the template `tap` by split."""
DISJOINT = ("tasks", "goals", "phrasings", "names")
"""What no evaluation split shares with `train`."""
MAX_STEPS = 10
TOGGLES = {
    "wifi": "Wi-Fi",
    "bluetooth": "Bluetooth",
    "airplane": "airplane mode",
    "night_light": "night light",
    "rotate": "auto-rotate",
}
WORDINGS = {
    "open_app": "launch",
    "toggle": "setting_switch",
    "alarm": "alarm_at",
    "contact": "contact_show",
    "star": "star",
    "shop_search": "shop_search",
    "tap": "tap",
}
"""The templates, and the family of `wordings.txt` that each shares its wordings with."""
_APP_PAIRS = [(app, start) for app in BUILT_IN for start in ("launcher", *BUILT_IN) if app != start]
_TIMES = [(hour, minute) for hour in range(1, 13) for minute in range(0, 60, 5)]
random.Random(SUITE).shuffle(_APP_PAIRS)
random.Random(f"{SUITE}/times").shuffle(_TIMES)


def _kept(pool: list[Any], every: int, is_held_out: bool) -> list[Any]:
    """Every so many-th entry of a pool is held out; the others are trained on."""
    return [entry for place, entry in enumerate(pool) if (place % every == 0) == is_held_out]


def _book(names: Names) -> list[str]:
    """Seven people; the second has the first one's first name, the third the first one's last name."""
    first, last = names.name("first"), names.name("last")
    others = (f"{first} {names.name('last')}", f"{names.name('first')} {last}")
    book = list(dict.fromkeys((f"{first} {last}", *others)))
    return book + names.names("person", 7 - len(book), without=book)


def _draw(template: str, names: Names) -> tuple[Params, dict[str, object]]:
    """A task's parameters but the layout, and what its wording is filled with."""
    if template == "open_app":
        app, start = names.choice(_kept(_APP_PAIRS, 4, names.is_held_out))
        return {"app": app, "start": start}, {"app": APPS[app].label}
    if template == "toggle":
        setting, on = names.choice(list(TOGGLES)), names.random() < 0.5
        return {"setting": setting, "on": on}, {"what": TOGGLES[setting], "on": "on" if on else "off"}
    if template == "alarm":
        hour, minute = names.choice(_kept(_TIMES, 7, names.is_held_out))
        return {"hour": hour, "minute": minute}, {"time": f"{hour}:{minute:02d}"}
    if template == "shop_search":
        query = names.name("goods")
        return {"query": query}, {"query": query}
    book = _book(names)
    if template == "tap" and names.random() < 0.5:
        path, target, label = names.choice(grounding.targets())
        return {"path": path, "target": target, "book": book}, {"label": label}
    if template == "tap":
        target = f"contact_{sorted(book).index(book[0])}"
        return {"path": grounding.CONTACTS, "target": target, "book": sorted(book)}, {"label": book[0]}
    return {"name": book[0], "book": sorted(book)}, {"name": book[0]}


def _instances() -> dict[str, tuple[Task, str]]:
    """The tasks by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    for template, family in WORDINGS.items():
        for split, count in (GROUNDING_COUNTS if template == "tap" else COUNTS).items():
            is_held_out = split not in ("train", "drift", "train_grounding")
            for index in range(count):
                name = f"{SUITE}/{template}/{split}/{index:04d}"
                rng = Names(2 * random.Random(f"6/{name}").getrandbits(31) + is_held_out)
                params, words = _draw(template, rng)
                wording = say(family, is_held_out, rng)
                place = {"layout": rng.choice(LAYOUTS[split]), **params}
                seed = 2 * rng.getrandbits(30) + is_held_out
                made[name] = instance(name, template, wording, words, place, seed, MAX_STEPS)
    return made


tasks, phrasing, aside = suite_of(_instances)


def names(task: Task) -> list[str]:
    """The names of the people and of the thing that a task is about, and what else its goal names."""
    return [*task.params.get("book", ()), *filter(None, [task.params.get("query")]), *aside(task)]
