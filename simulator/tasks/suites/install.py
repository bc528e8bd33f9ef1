"""The install suite: tasks about the app store, for measuring what generalises. Only split: `test`.

Apps are installed, updated, removed, opened and signed in to; names have look-alikes, of which the sponsored
one comes first in a search. Half of the instances are interrupted: pop-ups, advertisements, prompts,
updates, ratings, a low battery, messages.
"""

from __future__ import annotations

import random
from typing import Any

from distrl.core.types import Task
from distrl.simulator.apps.store_catalog import ENTRIES

SUITE = "install"
TRAINED_ON = "general"
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What it does not share with that suite."""
LAYOUTS = (0, 1, 2, 3)
MAX_STEPS = 20
COUNTS = {
    "store_install": 24,
    "store_lookalike": 20,
    "store_update": 14,
    "store_update_all": 6,
    "store_uninstall": 18,
    "store_replace": 8,
    "store_open": 20,
    "store_sign_in_page": 10,
    "store_sign_in": 8,
}
"""Instances by template."""

LOOKALIKES = (
    ("chessclub", "chessclubs"),
    ("chessclub", "chessclubpro"),
    ("lightpuzzle", "lightpuzzles"),
    ("radiowave", "radiowavesfm"),
    ("taskly", "tasklist"),
    ("shoppinglist", "shoppinglists"),
    ("waterlog", "waterlogger"),
    ("dailypost", "dailyposts"),
    ("recipebox", "recipebook"),
    ("cityguide", "cityguides"),
    ("chatnest", "chatnestlite"),
)
"""An app, and one that may be taken for it; tasks are about either."""
PHRASES: dict[str, tuple[str, ...]] = {
    "store_install": (
        'Install the "{app}" app',
        "Install {app}",
        "Get the {app} app from the app store",
        'install app "{app}"',
        "Download and install {app} on this phone",
    ),
    "store_lookalike": (
        'Install the "{app}" app by {developer}',
        'install app "{app}"',
        "Install {app} ({developer}) from the app store",
        "Get {app} and no other app of a similar name",
    ),
    "store_update": (
        'Update the "{app}" app',
        "update {app} to the latest version",
        "Check whether there is an update for {app} and install it",
    ),
    "store_update_all": ("Update all apps", "Install every update that the app store has", "update my apps"),
    "store_uninstall": (
        'Uninstall the "{app}" app',
        "uninstall {app}",
        "Remove {app} from the phone",
        "Delete the app {app}",
    ),
    "store_replace": (
        "Uninstall {app} and install {new} instead",
        'Replace the "{app}" app by "{new}"',
    ),
    "store_open": (
        'Open app "{app}" (install if not already installed)',
        "open {app}, and install it first if it is not there",
        'Start the "{app}" app; get it from the app store if it is missing',
    ),
    "store_sign_in_page": (
        'Open app "{app}" (install if not already installed) and go to login screen',
        "Go to the sign-in page of {app}, installing it if need be",
    ),
    "store_sign_in": (
        'Open app "{app}" (install if not already installed) and enter user name: "{user}" and password: '
        '"{password}"',
        "In {app}, fill in {user} and {password} as user name and password",
    ),
}
INTERRUPTIONS: tuple[tuple[str, ...], ...] = (
    ("popup", "permission"),
    ("ad",),
    ("update", "message"),
    ("rating", "low_battery"),
    ("message", "permission"),
    ("popup",),
    ("low_battery",),
    ("ad", "message"),
)
"""What interrupts every second instance, in turn."""
USERS = ("maria7", "paul.b", "emma@mail.org", "oscar_21")
PASSWORDS = ("tulip44", "Harbour9", "mint-tea", "sky2blue")

Params = dict[str, Any]


def goal(template: str, params: Params, phrase: int) -> str:
    """The instruction of a task in one of the wordings of its template."""
    phrases = PHRASES[template]
    names = {key: ENTRIES[params[key]].label for key in ("app", "new") if key in params}
    developer = ENTRIES[params["app"]].developer if "app" in params else ""
    words = {"developer": developer, "user": params.get("user"), "password": params.get("password")}
    return phrases[phrase % len(phrases)].format(**names, **words)


def _named(template: str, index: int, rng: random.Random) -> Params:
    """What a task is about: apps, and what is to be written."""
    if template == "store_update_all":
        return {}
    if template == "store_lookalike":
        pair = LOOKALIKES[index % len(LOOKALIKES)]
        app, decoy = pair if index < len(LOOKALIKES) else reversed(pair)
        return {"app": app, "decoy": decoy}
    free = [name for name, entry in ENTRIES.items() if not entry.price_cents]
    app, new = rng.sample(free, 2)
    named: Params = {"app": app}
    if template == "store_replace":
        named["new"] = new
    if template in _OPENED:
        named["present"] = index % 2 == 1
    if template == "store_sign_in":
        named |= {"user": rng.choice(USERS), "password": rng.choice(PASSWORDS)}
    return named


_OPENED = ("store_open", "store_sign_in_page", "store_sign_in")


def _params(template: str, index: int, rng: random.Random) -> Params:
    named = _named(template, index, rng)
    used = {named.get(key) for key in ("app", "decoy", "new")}
    others = rng.sample([name for name in ENTRIES if name not in used], rng.randrange(2, 6))
    params = {"layout": LAYOUTS[index % len(LAYOUTS)], **named, "others": others}
    is_long = template == "store_sign_in" and not params["present"]
    if index // 2 % 2 and not is_long:
        params["interruptions"] = list(INTERRUPTIONS[rng.randrange(len(INTERRUPTIONS))])
    return params


def tasks() -> list[Task]:
    """Every instance, the same on every machine."""
    made: list[Task] = []
    for template, count in COUNTS.items():
        rng = random.Random(f"{SUITE}/1/{template}")
        for index in range(count):
            params = _params(template, index, rng)
            made.append(
                Task(
                    id=f"{SUITE}/{template}/test/{index:04d}",
                    suite=SUITE,
                    template=template,
                    split="test",
                    goal=goal(template, params, index),
                    params=params,
                    seed=random.Random(f"{SUITE}/1/{template}/{index}").getrandbits(31),
                    max_steps=MAX_STEPS,
                )
            )
    return made
