"""The quickstart suite: short tasks over five templates and four layouts, with a held-out fifth layout.

What is held out (see `docs/simphone.md`): alarm times and shop queries of `val` and `test` occur nowhere in
`train`; of the other templates the combinations of parameters and layout do not. Every hour, minute, colour,
noun, setting, contact and app on its own does occur in `train`. `unseen_layout` uses what `test` uses, on
a layout that no other split has.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

from distrl.core.types import Task

SUITE = "quickstart"
SPLITS = ("train", "val", "test", "unseen_layout")
LAYOUTS = (0, 1, 2, 3)
UNSEEN_LAYOUT = 4
MAX_STEPS = 10
COUNTS: dict[str, dict[str, int]] = {
    "open_app": {"train": 32, "val": 8, "test": 16, "unseen_layout": 8},
    "toggle": {"train": 48, "val": 12, "test": 24, "unseen_layout": 8},
    "alarm": {"train": 96, "val": 14, "test": 24, "unseen_layout": 8},
    "contact": {"train": 52, "val": 12, "test": 20, "unseen_layout": 8},
    "shop_search": {"train": 40, "val": 10, "test": 16, "unseen_layout": 8},
}
"""Instances by template and split; the knob of the suite's size. Combinations repeat with other seeds."""

APPS = {
    "settings": "Settings",
    "clock": "Clock",
    "contacts": "Contacts",
    "browser": "Browser",
    "messages": "Messages",
    "calculator": "Calculator",
    "notes": "Notes",
    "weather": "Weather",
}
_EXPLAINED = ("settings", "clock", "contacts", "browser")
"""Apps that other templates open too: only their combinations are held out."""
TOGGLES = {
    "wifi": "Wi-Fi",
    "bluetooth": "Bluetooth",
    "airplane": "airplane mode",
    "night_light": "night light",
    "rotate": "auto-rotate",
}
BOOKS: tuple[tuple[str, ...], ...] = (
    ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace"),
    ("Anna", "Carla", "Emma", "Grace", "Henry", "Maria", "Oscar"),
    ("Anna", "Ben", "David", "Felix", "Henry", "Maria", "Oscar"),
)
"""The address books; every name is in at least two."""
COLORS = ("red", "blue", "green", "black", "yellow", "pink", "brown", "purple")
NOUNS = ("shoes", "lamp", "chair", "watch", "backpack", "camera", "umbrella", "bike")
HOURS = tuple(range(1, 13))
MINUTES = tuple(range(0, 60, 5))

Params = dict[str, Any]
Pools = dict[str, list[Params]]
"""The parameter combinations of each split, in the order in which instances take them."""


def goal(template: str, params: Params) -> str:
    """The instruction of a task."""
    if template == "open_app":
        return f"Open the {APPS[params['app']]} app"
    if template == "toggle":
        return f"Turn {'on' if params['on'] else 'off'} {TOGGLES[params['setting']]}"
    if template == "alarm":
        return f"Set an alarm for {params['hour']}:{params['minute']:02d}"
    if template == "contact":
        return f"Open the contact {params['name']}"
    return f"Search the shop for {params['query']}"


def _split(combos: list[Params], held: list[Params], val: int) -> Pools:
    """Pools over the training layouts: the first `val` of `held` for val, the other held ones for test."""
    return {
        "train": [combo for combo in combos if combo not in held],
        "val": held[:val],
        "test": held[val:],
    }


def _open_app(rng: random.Random) -> Pools:
    combos = [{"layout": layout, "app": app} for app in APPS for layout in LAYOUTS]
    held = []
    for app in _EXPLAINED:
        held += [{"layout": layout, "app": app} for layout in rng.sample(LAYOUTS, 3)]
    rng.shuffle(held)
    pools = _split(combos, held, 4)
    return pools | {"unseen_layout": [{"layout": UNSEEN_LAYOUT, "app": app} for app in APPS]}


def _toggle(rng: random.Random) -> Pools:
    combos: list[Params] = [
        {"layout": layout, "setting": setting, "on": on}
        for setting in TOGGLES
        for layout in LAYOUTS
        for on in (True, False)
    ]
    pairs = rng.sample(list(itertools.product(TOGGLES, LAYOUTS)), 12)
    held: list[Params] = [
        {"layout": layout, "setting": setting, "on": place % 2 == 0}
        for place, (setting, layout) in enumerate(pairs)
    ]
    unseen: list[Params] = [
        {"layout": UNSEEN_LAYOUT, "setting": setting, "on": on} for on in (True, False) for setting in TOGGLES
    ]
    return _split(combos, held, 4) | {"unseen_layout": unseen}


def _alarm(rng: random.Random) -> Pools:
    times = list(itertools.product(HOURS, MINUTES))
    rng.shuffle(times)
    val, test = times[:14], times[14:38]
    held = set(times[:38])
    train: list[Params] = []
    while len(train) < COUNTS["alarm"]["train"]:
        layout = LAYOUTS[len(train) // len(HOURS) % len(LAYOUTS)]
        train += [_time(layout, time) for time in _matching(rng, held)]
    return {
        "train": train,
        "val": [_time(LAYOUTS[place % 4], time) for place, time in enumerate(val)],
        "test": [_time(LAYOUTS[place % 4], time) for place, time in enumerate(test)],
        "unseen_layout": [_time(UNSEEN_LAYOUT, time) for time in test],
    }


def _matching(rng: random.Random, held: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Twelve times that use every hour and every minute once, none of them held out."""
    minutes = list(MINUTES)
    while True:
        rng.shuffle(minutes)
        times = list(zip(HOURS, minutes, strict=True))
        if held.isdisjoint(times):
            return times


def _time(layout: int, time: tuple[int, int]) -> Params:
    return {"layout": layout, "hour": time[0], "minute": time[1]}


def _contact(rng: random.Random) -> Pools:
    names = sorted({name for book in BOOKS for name in book})
    combos: list[Params] = [
        {"layout": layout, "name": name, "book": list(book)}
        for book in BOOKS
        for name in book
        for layout in LAYOUTS
    ]
    held: list[Params] = []
    for layout, name in rng.sample(list(itertools.product(LAYOUTS, names)), 32):
        book = rng.choice([book for book in BOOKS if name in book])
        held.append({"layout": layout, "name": name, "book": list(book)})
    unseen: list[Params] = [
        {"layout": UNSEEN_LAYOUT, "name": name, "book": list(book)} for book in BOOKS for name in book
    ]
    rng.shuffle(unseen)
    return _split(combos, held, 12) | {"unseen_layout": unseen}


def _shop_search(rng: random.Random) -> Pools:
    queries = [f"{color} {noun}" for color in COLORS for noun in NOUNS]
    while True:
        rng.shuffle(queries)
        val, test, train = queries[:10], queries[10:26], queries[26:]
        used = [word for query in train for word in query.split()]
        if all(used.count(word) >= 3 for word in (*COLORS, *NOUNS)):
            break
    splits = {"train": train, "val": val, "test": test}
    pools = {split: _spread(chosen) for split, chosen in splits.items()}
    return pools | {"unseen_layout": [{"layout": UNSEEN_LAYOUT, "query": query} for query in test]}


def _spread(queries: list[str]) -> list[Params]:
    """The queries over all layouts, so that the first instances already see every layout."""
    return [
        {"layout": LAYOUTS[(place + turn) % 4], "query": query}
        for turn in range(4)
        for place, query in enumerate(queries)
    ]


_POOLS = {
    "open_app": _open_app,
    "toggle": _toggle,
    "alarm": _alarm,
    "contact": _contact,
    "shop_search": _shop_search,
}


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    made: list[Task] = []
    for template, counts in COUNTS.items():
        pools = _POOLS[template](random.Random(f"{SUITE}/{template}"))
        for split in SPLITS:
            pool = pools[split]
            for index in range(counts[split]):
                params = pool[index % len(pool)]
                made.append(
                    Task(
                        id=f"{SUITE}/{template}/{split}/{index:04d}",
                        suite=SUITE,
                        template=template,
                        split=split,
                        goal=goal(template, params),
                        params=params,
                        seed=random.Random(f"{SUITE}/{template}/{split}/{index}").getrandbits(31),
                        max_steps=MAX_STEPS,
                    )
                )
    return made


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals and in what must be typed, over all splits, sorted.

    Words are runs of letters and digits; every other mark is a word of its own ("7:05" is "7", ":", "05").
    """
    texts = {task.goal for task in tasks()} | {str(task.params.get("query", "")) for task in tasks()}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})
