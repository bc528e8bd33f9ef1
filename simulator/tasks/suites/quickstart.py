"""The quickstart suite: short tasks of six templates, each on a layout of its own.

Layouts, names, queries, times and wordings are drawn from a task's place in the suite. What the other splits
hold out of `train`:

    val, test       every wording, every name and every word of a query, a seventh of the times of alarms, and
                    a fourth of the pairs of an app to open and what is in front; settings are the same five
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
import re
from functools import lru_cache
from typing import Any

from distrl.core.types import Task
from distrl.simulator.apps import APPS, BUILT_IN
from distrl.simulator.phone.theme import DRIFT_LAYOUTS, TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from distrl.simulator.tasks import grounding
from distrl.simulator.tasks.base import instance, seed_of

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
_FIRST = """
Adam Agnes Alan Alma Amir Anna Arthur Astrid Ben Bianca Boris Carla Cedric Clara Daisy David Diego Dora
Edgar Elena Emil Emma Erik Esther Felix Fiona Frank Freya George Gina Grace Hana Hector Helga Hugo Ida Igor
Iris Ivan Jana Jonas Judith Karim Karl Kate Lara Lars Leo Lina Lucia Lukas Marco Maria Marta Milo Mira Nadia
Nina Noah Nora Olga Omar Oscar Otto Pablo Paula Petra Philip Priya Ravi Rita Rosa Ruben Ruth Samir Selma
Silas Sofia Stella Tara Theo Tim Uma Vera Victor Wanda Xavier Yara Yusuf Zoe
"""
_LAST = """
Abbott Ahmed Archer Bach Baker Bauer Bell Berg Blake Brandt Brooks Byrne Carter Castro Chen Clarke Costa
Dahl Daly Demir Diaz Doyle Drake Ellis Evans Faber Fischer Foster Fox Frost Gallo Garcia Gibbs Gold Grant
Haas Hale Hansen Hayes Holm Hudson Hunt Ito Jansen Joshi Kaplan Keller Khan Kim Klein Kovac Lane Larsen Lind
Lopez Lund Lynch Marsh Mason Meyer Mills Moreau Nash Novak Olsen Ortiz Park Perez Pike Quinn Reed Rossi Roth
Sato Shaw Silva Stone Tanaka Tate Turner Vance Vega Wagner Walsh Weber West Wolf Young Zimmer
"""
_COLORS = """
red blue green black yellow pink brown purple white orange grey silver golden beige violet turquoise navy
cream scarlet olive
"""
_NOUNS = """
shoes lamp chair watch backpack camera umbrella bike headphones laptop keyboard book ball mug plant shirt
scarf tent kettle mirror clock guitar blanket helmet jacket candle pillow drill bottle printer rug vase
gloves tripod charger teapot basket ladder desk bench towel speaker notebook wallet hammock toaster belt
compass lantern puzzle
"""
_APP_PAIRS = [(app, start) for app in BUILT_IN for start in ("launcher", *BUILT_IN) if app != start]
_TIMES = [(hour, minute) for hour in range(1, 13) for minute in range(0, 60, 5)]
random.Random(SUITE).shuffle(_APP_PAIRS)
random.Random(SUITE).shuffle(_TIMES)
_WORDINGS = """
open_app
  Open the {app} app
  Open {app}
  Start {app}
  Launch the {app} app
  Go to {app}
  Switch to the app {app}
  Show me the {app} app
  Please open {app}
  ~ Bring up {app}
  ~ Take me to the {app} app
  ~ I want to use {app}
  ~ Start the app called {app}
toggle
  Turn {on} {setting}
  Turn {setting} {on}
  Switch {on} {setting}
  Switch {setting} {on}
  I want {setting} {on}
  Please turn {setting} {on}
  Can you switch {on} {setting}?
  Change {setting} to {on}
  ~ Set {setting} to {on}
  ~ Make sure {setting} is {on}
  ~ {setting} should be turned {on}
alarm
  Set an alarm for {time}
  Wake me at {time}
  Add an alarm for {time}
  New alarm: {time}
  Create an alarm at {time}
  I want to be woken at {time}
  Please set the alarm to {time}
  Make the clock ring at {time}
  ~ I need an alarm at {time}
  ~ Have an alarm go off at {time}
  ~ Let the phone wake me at {time}
contact
  Open the contact {name}
  Show me the contact {name}
  Find {name} in the contacts
  Show {name} in my contacts
  Look up the contact {name}
  Go to the contact {name}
  Open {name} in Contacts
  Please show the contact {name}
  ~ Look {name} up in my contacts
  ~ Open the page of {name} in the contacts
  ~ Bring up contact {name}
star
  Add the contact {name} to favourites
  Make {name} a favourite
  Star the contact {name}
  Mark {name} as a favourite
  Put {name} among the favourites
  Favourite the contact {name}
  Add {name} to my favourite contacts
  Please make the contact {name} a favourite
  ~ Give the contact {name} a star
  ~ {name} should be a favourite contact
  ~ I want {name} as favourite
shop_search
  Search the shop for {query}
  Search for {query} in the shop
  Find {query} in the shop
  Look for {query} in the shop
  Shop: search for {query}
  Please search the shop for {query}
  I want to buy {query}, search the shop
  In the shop, find {query}
  ~ Look {query} up in the shop
  ~ Let the shop search for {query}
  ~ See if the shop has {query}
tap
  Tap {label}
  Tap on {label}
  Touch {label}
  ~ Press {label}
"""
"""How goals are worded, by template; those after a "~" are held out."""
Params = dict[str, Any]


def _wordings() -> dict[str, tuple[list[str], list[str]]]:
    """The wordings of each template: those of training, and those that are held out."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    template = ""
    for line in _WORDINGS.splitlines():
        if line.startswith(" "):
            found[template][line.startswith("  ~")].append(line.lstrip(" ~"))
        elif line:
            template = line
            found[template] = [], []
    return found


def _kept(pool: list[Any], every: int, is_held_out: bool) -> list[Any]:
    """Every so many-th entry of a pool is held out; the others are trained on."""
    return [entry for place, entry in enumerate(pool) if (place % every == 0) == is_held_out]


_POOLS = {
    is_held_out: {
        "first": _kept(_FIRST.split(), 5, is_held_out),
        "last": _kept(_LAST.split(), 5, is_held_out),
        "color": _kept(_COLORS.split(), 5, is_held_out),
        "noun": _kept(_NOUNS.split(), 5, is_held_out),
        "apps": _kept(_APP_PAIRS, 4, is_held_out),
        "times": _kept(_TIMES, 7, is_held_out),
    }
    for is_held_out in (False, True)
}


def _book(rng: random.Random, pools: dict[str, list[Any]]) -> list[str]:
    """Eight people; the second has the first one's first name, the third the first one's last name."""
    first, last = rng.choice(pools["first"]), rng.choice(pools["last"])
    book = dict.fromkeys(
        (f"{first} {last}", f"{first} {rng.choice(pools['last'])}", f"{rng.choice(pools['first'])} {last}")
    )
    while len(book) < 8:
        book[f"{rng.choice(pools['first'])} {rng.choice(pools['last'])}"] = None
    return list(book)


def _draw(template: str, is_held_out: bool, rng: random.Random) -> tuple[Params, dict[str, object]]:
    """A task's parameters but the layout, and what its wording is filled with."""
    pools = _POOLS[is_held_out]
    if template == "open_app":
        app, start = rng.choice(pools["apps"])
        return {"app": app, "start": start}, {"app": APPS[app].label}
    if template == "toggle":
        setting, on = rng.choice(list(TOGGLES)), rng.random() < 0.5
        return {"setting": setting, "on": on}, {"setting": TOGGLES[setting], "on": "on" if on else "off"}
    if template == "alarm":
        hour, minute = rng.choice(pools["times"])
        return {"hour": hour, "minute": minute}, {"time": f"{hour}:{minute:02d}"}
    if template == "shop_search":
        query = f"{rng.choice(pools['color'])} {rng.choice(pools['noun'])}"
        return {"query": query}, {"query": query}
    if template == "tap" and rng.random() < 0.5:
        path, target, label = rng.choice(grounding.targets())
        return {"path": path, "target": target, "book": _book(rng, pools)}, {"label": label}
    book = _book(rng, pools)
    if template == "tap":
        target = f"contact_{sorted(book).index(book[0])}"
        return {"path": grounding.CONTACTS, "target": target, "book": sorted(book)}, {"label": book[0]}
    return {"name": book[0], "book": sorted(book)}, {"name": book[0]}


@lru_cache(maxsize=1)
def _instances() -> dict[str, tuple[Task, str]]:
    """The tasks by id, each with its wording."""
    made: dict[str, tuple[Task, str]] = {}
    for template, wordings in _wordings().items():
        for split, count in (GROUNDING_COUNTS if template == "tap" else COUNTS).items():
            is_held_out = split not in ("train", "drift", "train_grounding")
            for index in range(count):
                name = f"{SUITE}/{template}/{split}/{index:04d}"
                rng = random.Random(seed_of(f"5/{name}"))
                params, words = _draw(template, is_held_out, rng)
                wording = rng.choice(wordings[is_held_out])
                goal = wording.format_map(words)
                task = instance(
                    name,
                    template,
                    goal[0].upper() + goal[1:],
                    {"layout": rng.choice(LAYOUTS[split]), **params},
                    rng.getrandbits(31),
                    MAX_STEPS,
                )
                made[name] = task, wording
    return made


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    return [task for task, _ in _instances().values()]


def phrasing(task: Task) -> str:
    """A goal's wording."""
    return _instances()[task.id][1]


def names(task: Task) -> list[str]:
    """The names that a task is about."""
    return [task.params[key] for key in ("name", "query") if key in task.params]


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals and in what must be typed, over all splits, sorted.

    Words are runs of letters and digits; every other mark is a word of its own ("7:15" is "7", ":", "15").
    """
    texts = {task.goal for task in tasks()} | {str(task.params.get("query", "")) for task in tasks()}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})
