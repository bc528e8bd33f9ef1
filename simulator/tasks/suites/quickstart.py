"""The quickstart suite: short tasks over six templates and four layouts; two more layouts are kept apart.

What `val` and `test` hold out of `train`, and of each other:

    shop_search          a query: it is not trained on in any layout
    alarm                a time in a layout; in other layouts it is trained on
    toggle               a setting to turn on (or off) in a layout; turning it off (or on) there is trained on
    open_app             an app to open in a layout from a start; from another start there it is trained on
    contact, star        a name in a layout; there the other of the two templates is trained on it

Every hour, minute, colour, noun, setting, direction, app and start on its own does occur in `train`, and
every name in `contact` or `star`. `unseen_layout` is on a layout that no other split has, with
queries of `test`.

`drift` and `test_drift` are on a sixth layout, for interfaces that change during training (`tasks.drift`):
`drift` is trained on then, `test_drift` measured. They differ as `train` and `test` do: in a time, a query
(one of `train`'s and one of `test`'s), a direction of a setting, a start of an app, or which of `contact` and
`star` a name is in.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

from distrl.core.types import Task
from distrl.simulator.tasks.base import instance, seed_of

SUITE = "quickstart"
SPLITS = ("train", "val", "test", "unseen_layout", "drift", "test_drift")
DISJOINT = ("tasks",)
"""What no evaluation split shares with `train`; goals come again on other layouts, by design."""
LAYOUTS = (0, 1, 2, 3)
UNSEEN_LAYOUT = 4
DRIFT_LAYOUT = 5
MAX_STEPS = 10
COUNTS: dict[str, dict[str, int]] = {
    "open_app": {"train": 60, "val": 4, "test": 8, "unseen_layout": 8, "drift": 16, "test_drift": 5},
    "toggle": {"train": 60, "val": 6, "test": 12, "unseen_layout": 8, "drift": 18, "test_drift": 8},
    "alarm": {"train": 152, "val": 8, "test": 12, "unseen_layout": 8, "drift": 32, "test_drift": 8},
    "contact": {"train": 44, "val": 4, "test": 6, "unseen_layout": 8, "drift": 12, "test_drift": 4},
    "star": {"train": 44, "val": 4, "test": 6, "unseen_layout": 8, "drift": 12, "test_drift": 4},
    "shop_search": {"train": 56, "val": 8, "test": 12, "unseen_layout": 8, "drift": 14, "test_drift": 12},
}
"""Instances by template and split; the knob of the suite's size. In training, combinations repeat with other
seeds (20 divides the counts of `open_app` and `toggle`, so that their 20 targets are alike); in `test` only
those of `toggle` do, twice, with the other settings on or off at random. `drift` has about as many as `train`
has on one layout."""
APPS = {
    "settings": "Settings",
    "clock": "Clock",
    "contacts": "Contacts",
    "browser": "Browser",
    "messages": "Messages",
}
STARTS = ("launcher", "settings", "browser")
"""What is in front when an app is to be opened."""
TOGGLES = {
    "wifi": "Wi-Fi",
    "bluetooth": "Bluetooth",
    "airplane": "airplane mode",
    "night_light": "night light",
    "rotate": "auto-rotate",
}
BOOK = ("Anna", "Ben", "Carla", "David", "Emma", "Grace", "Maria", "Paul")
"""The address book."""
COLORS = ("red", "blue", "green", "black", "yellow", "pink", "brown", "purple")
NOUNS = (
    *("shoes", "lamp", "chair", "watch", "backpack", "camera", "umbrella", "bike"),
    *("headphones", "laptop", "keyboard", "book", "ball", "mug", "plant", "shirt"),
)
HOURS = (6, 7, 8, 9, 10, 11)
MINUTES = (0, 15, 30, 45)
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
    if template == "star":
        return f"Add the contact {params['name']} to favourites"
    return f"Search the shop for {params['query']}"


def _split(combos: list[Params], held: list[Params], val: int) -> Pools:
    """Pools over the training layouts: the first `val` of `held` for val, the other held ones for test."""
    return {"train": [combo for combo in combos if combo not in held], "val": held[:val], "test": held[val:]}


def _one_each(combos: list[Params], keys: tuple[str, ...]) -> list[Params]:
    first: dict[tuple[Any, ...], Params] = {}
    for combo in combos:
        first.setdefault(tuple(combo[key] for key in keys), combo)
    return list(first.values())


def _even(combos: list[Params], *keys: str) -> list[Params]:
    """Six rounds (1, 2 and 3 divide it) over the values of `keys`; of fewer combinations each comes again."""
    groups: dict[tuple[Any, ...], list[Params]] = {}
    for combo in combos:
        groups.setdefault(tuple(combo[key] for key in keys), []).append(combo)
    return [group[turn % len(group)] for turn in range(6) for group in groups.values()]


def _open_app(rng: random.Random) -> Pools:
    combos: list[Params] = [
        {"layout": layout, "app": app, "start": start}
        for layout in (*LAYOUTS, UNSEEN_LAYOUT)
        for app in APPS
        for start in STARTS
        if app != start
    ]
    rng.shuffle(combos)
    unseen = [combo for combo in combos if combo["layout"] == UNSEEN_LAYOUT]
    combos = [combo for combo in combos if combo["layout"] != UNSEEN_LAYOUT]
    pools = _split(combos, _one_each(combos, ("layout", "app"))[:12], 4)
    return pools | {"train": _even(pools["train"], "layout", "app"), "unseen_layout": unseen}


def _toggle(rng: random.Random) -> Pools:
    combos: list[Params] = [
        {"layout": layout, "setting": setting, "on": on}
        for setting in TOGGLES
        for layout in LAYOUTS
        for on in (True, False)
    ]
    pairs = rng.sample(list(itertools.product(TOGGLES, LAYOUTS)), 9)
    held: list[Params] = [
        {"layout": layout, "setting": setting, "on": place % 2 == 0}
        for place, (setting, layout) in enumerate(pairs)
    ]
    unseen: list[Params] = [
        {"layout": UNSEEN_LAYOUT, "setting": setting, "on": on} for on in (True, False) for setting in TOGGLES
    ]
    pools = _split(combos, held, 3)
    return pools | {"train": _even(pools["train"], "layout", "setting"), "unseen_layout": unseen}


def _alarm(rng: random.Random) -> Pools:
    times = list(itertools.product(HOURS, MINUTES))
    rng.shuffle(times)
    combos: list[Params] = [
        {"layout": layout, "hour": hour, "minute": minute} for layout in LAYOUTS for hour, minute in times
    ]
    held = [combos[len(times) * (place % len(LAYOUTS)) + place] for place in range(20)]
    rng.shuffle(combos)
    unseen = [{"layout": UNSEEN_LAYOUT, "hour": hour, "minute": minute} for hour, minute in times]
    return _split(combos, held, 8) | {"unseen_layout": unseen}


def _contact(rng: random.Random, turn: int = 0) -> Pools:
    """Contacts to open; with `turn` 1, to star. What one holds out, the other trains on."""
    shared = random.Random(f"{SUITE}/4/contacts")
    layouts = {name: shared.sample(LAYOUTS, len(LAYOUTS)) for name in BOOK}
    pairs = [(layouts[name][place], name) for place in range(len(LAYOUTS)) for name in BOOK]
    combos = [{"layout": layout, "name": name, "book": list(BOOK)} for layout, name in pairs]
    unseen: list[Params] = [{"layout": UNSEEN_LAYOUT, "name": name, "book": list(BOOK)} for name in BOOK]
    rng.shuffle(unseen)
    return _split(combos, combos[10 * turn : 10 * turn + 10], 4) | {"unseen_layout": unseen}


def _star(rng: random.Random) -> Pools:
    return _contact(rng, turn=1)


def _shop_search(rng: random.Random) -> Pools:
    queries = [f"{color} {noun}" for color in COLORS for noun in NOUNS]
    while True:
        rng.shuffle(queries)
        val, test, train = queries[:8], queries[8:20], queries[20:]
        used = {word for query in train[: COUNTS["shop_search"]["train"]] for word in query.split()}
        if used.issuperset((*COLORS, *NOUNS)):
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


def _drift(template: str, pools: Pools) -> Pools:
    """What there is on the drift layout: `drift`, and `test_drift` held out of it."""
    rng = random.Random(f"{SUITE}/4/{template}/drift")
    if template == "shop_search":
        trained = [params["query"] for params in pools["train"][: COUNTS[template]["train"]]]
        tested = [params["query"] for params in pools["test"]]
        combos, held = ([{"query": query} for query in dict.fromkeys(found)] for found in (trained, tested))
    elif template == "open_app":
        combos = [{"app": app, "start": start} for app in APPS for start in STARTS if app != start]
        rng.shuffle(combos)
        held = _one_each(combos, ("app",))
    elif template == "toggle":
        combos = [{"setting": setting, "on": on} for setting in TOGGLES for on in (True, False)]
        chosen = enumerate(rng.sample(list(TOGGLES), 4))
        held = [{"setting": setting, "on": place % 2 == 0} for place, setting in chosen]
    elif template == "alarm":
        combos = [{"hour": hour, "minute": minute} for hour in HOURS for minute in MINUTES]
        rng.shuffle(combos)
        held = combos[:8]
    else:  # what `contact` holds out, `star` trains on
        names = random.Random(f"{SUITE}/4/contacts/drift").sample(BOOK, len(BOOK))
        combos = [{"name": name, "book": list(BOOK)} for name in names]
        held = combos[:4] if template == "contact" else combos[4:]
    drift = [combo for combo in combos if combo not in held]
    return {
        split: [{"layout": DRIFT_LAYOUT, **params} for params in pool]
        for split, pool in (("drift", drift), ("test_drift", held))
    }


_POOLS = {
    "open_app": _open_app,
    "toggle": _toggle,
    "alarm": _alarm,
    "contact": _contact,
    "star": _star,
    "shop_search": _shop_search,
}


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    made: list[Task] = []
    for template, counts in COUNTS.items():
        pools = _POOLS[template](random.Random(f"{SUITE}/4/{template}"))
        pools |= _drift(template, pools)
        for split in SPLITS:
            pool = pools[split]
            for index in range(counts[split]):
                params = pool[index % len(pool)]
                name, seed = f"{template}/{split}/{index:04d}", f"{SUITE}/4/{template}/{split}/{index}"
                words = goal(template, params)
                made.append(instance(f"{SUITE}/{name}", template, words, params, seed_of(seed), MAX_STEPS))
    return made


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals and in what must be typed, over all splits, sorted.

    Words are runs of letters and digits; every other mark is a word of its own ("7:15" is "7", ":", "15").
    """
    texts = {task.goal for task in tasks()} | {str(task.params.get("query", "")) for task in tasks()}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})
