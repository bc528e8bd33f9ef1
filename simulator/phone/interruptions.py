"""What gets in the way: pop-ups, advertisements, prompts, updates, ratings, a low battery, messages.

A task's parameter `interruptions` names kinds of them; `plan` draws when each comes and what it looks like.
They are plain data in the state:

pending      those to come: kind, due_s (phone time), look (its design), which (its words)
overlay      the one on the screen, the same with since_s and the app it came over; {} for none
permissions  whether an app may do what it asked for, by app

A modal one takes all input until it is answered or left by the home key.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from distrl.simulator.phone import installs
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Arg
from distrl.simulator.phone.state import State

KINDS = ("popup", "ad", "permission", "update", "rating", "low_battery", "message")
"""The kinds that a task can ask for."""
LOOKS = 3
"""Designs of each kind."""
LATEST_S = 14
"""Latest phone time at which one becomes due; it comes when it next can."""
QUIET_S = 4
"""Phone time between one and the next."""
AD_S = 4
"""Phone time until an advertisement can be closed."""
MESSAGE_S = 8
"""Phone time after which a heads-up notification goes by itself."""
IN_APPS = ("popup", "ad", "rating")
"""Kinds that come over an app, never over the home screen."""

POPUPS = (
    ("Turn on backup?", "Keep your photos, contacts and settings safe.", "cloud", "Turn on", "Not now"),
    ("Stay in the loop", "Tips and offers in your inbox, once a week.", "mail", "Subscribe", "No thanks"),
    ("What's new", "A fresh look, a faster start and small fixes.", "auto_awesome", "Take a tour", "Skip"),
    ("Sign in to sync", "Use one account on all of your devices.", "account_circle", "Sign in", "Later"),
    ("Go Premium", "No limits and no advertisements for a month.", "diamond", "Try it free", "Dismiss"),
)
"""Title, words, icon, and the labels of yes and no."""
ADS = (
    ("Brew & Bean", "Coffee that comes to you", "The first bag is half price", "Order now", "coffee"),
    ("Tower Lands", "Build. Defend. Conquer.", "Three million players", "Play now", "sports_esports"),
    ("Jetaway", "City trips from $39", "This week only", "Book a trip", "flight_takeoff"),
    ("Greenbox", "Vegetables every Friday", "Fresh from the farm", "Get a box", "eco"),
    ("Sleepwell", "Mattresses up to 40% off", "Free delivery", "Shop now", "bed"),
)
"""Brand, headline, line, the button's label, icon."""
MESSAGES = (
    ("messages", "Maria", "Are you on your way?"),
    ("messages", "Ben", "The meeting has moved to four"),
    ("weather", "Weather alert", "Strong wind from 3 PM"),
    ("clock", "Bedtime", "Time to wind down soon"),
    ("contacts", "Missed call", "Grace, 2 minutes ago"),
)
"""App, title and text of notifications."""
ASKS = {
    "browser": "location",
    "calculator": "notifications",
    "clock": "notifications",
    "contacts": "contacts",
    "messages": "contacts",
    "notes": "microphone",
    "weather": "location",
}
"""What the apps of the box ask to be allowed when they are first opened; others, see `permission`."""
NOTICES = (
    ("settings", "Battery saver is off", "76%, about 1 day left"),
    ("weather", "Rain in Harbour", "Starting around noon"),
    ("messages", "Anna", "Thanks for yesterday!"),
)
"""What the shade of a phone lists at the start of a task, as far as the apps are there."""


def plan(kinds: Sequence[str], rng: random.Random) -> list[dict[str, Any]]:
    """When each of `kinds` comes and how it looks, the earliest first."""
    drawn = [
        {
            "kind": kind,
            "due_s": 0 if kind == "permission" else st.STEP_S * rng.randrange(LATEST_S // st.STEP_S + 1),
            "look": rng.randrange(LOOKS),
            "which": rng.randrange(5),
        }
        for kind in kinds
    ]
    return sorted(drawn, key=lambda item: (item["due_s"], item["kind"]))


def permission(app: str) -> str:
    """What an app asks for: "location", "contacts", "microphone", "camera", "photos" or "notifications"."""
    entry = installs.entry(app)
    return ASKS.get(app) or (entry.asks if entry is not None else "notifications")


def is_modal(state: State) -> bool:
    """Whether something takes all input."""
    return bool(state["overlay"].get("kind", "message") != "message")


def is_timed(state: State) -> bool:
    """Whether something is on the screen that time alone changes."""
    return state["overlay"].get("kind") in ("ad", "message")


def is_low(state: State) -> bool:
    """Whether the battery has been reported as low."""
    return any(notice["title"] == LOW[0] for notice in state["notifications"])


LOW = ("Battery is low", "15% left")


def closable(state: State) -> bool:
    """Whether the advertisement on the screen can be closed already."""
    return bool(state["elapsed_s"] - state["overlay"]["since_s"] >= AD_S)


def advance(state: State) -> None:
    """Takes a notification away when its time is over, and shows what is due and can come now."""
    overlay = state["overlay"]
    if overlay:
        if overlay["kind"] == "message" and state["elapsed_s"] - overlay["since_s"] >= MESSAGE_S:
            _done(state)
        return
    if state["shade"]:
        return
    for item in state["pending"]:
        if item["due_s"] <= state["elapsed_s"] and _fits(state, item):
            _show(state, item)
            return


def _fits(state: State, item: dict[str, Any]) -> bool:
    kind, front = item["kind"], state["front"]
    if kind == "permission":
        return front not in ("launcher", "settings", "store") and front not in state["permissions"]
    if kind == "message":
        return MESSAGES[item["which"]][0] in state["installed"]
    return kind not in IN_APPS or front != "launcher"


def _show(state: State, item: dict[str, Any]) -> None:
    if item["kind"] != "permission":  # which comes again with the next app
        state["pending"].remove(item)
    state["overlay"] = {**item, "since_s": state["elapsed_s"], "app": state["front"]}
    if item["kind"] == "message":
        app, title, text = MESSAGES[item["which"]]
        st.notify(state, app, title, text)
    elif item["kind"] == "low_battery":
        st.notify(state, "settings", *LOW)


def _done(state: State) -> None:
    """Takes the overlay away; the next does not come at once."""
    state["overlay"] = {}
    for item in state["pending"]:
        if item["kind"] != "permission":
            item["due_s"] = max(item["due_s"], state["elapsed_s"] + QUIET_S)


def leave(state: State) -> None:
    """The home key, or another app in front: what is modal goes; a permission is asked for again later."""
    if is_modal(state):
        _done(state)


def back(state: State) -> None:
    """The back key on something modal: the same as "no"; an advertisement must be closable first."""
    if state["overlay"]["kind"] != "ad" or closable(state):
        act(state, "dismiss", ())


def ask_uninstall(state: State, app: str) -> None:
    """Asks whether an app is to be removed."""
    item = {"kind": "uninstall", "due_s": 0, "look": 0, "which": 0}
    state["overlay"] = {**item, "since_s": state["elapsed_s"], "app": app}


def act(state: State, verb: str, args: tuple[Arg, ...]) -> None:
    """Answers what is on the screen: "dismiss", "accept", or "star" with a number."""
    overlay = state["overlay"]
    if verb == "star":
        overlay["stars"] = int(args[0])
        return
    if overlay["kind"] == "permission":
        state["permissions"][overlay["app"]] = verb == "accept"
    elif overlay["kind"] == "message":
        app, title, text = MESSAGES[overlay["which"]]
        st.unnotify(state, app, title, text)
    _done(state)
    if verb == "accept":
        _ACCEPTED.get(overlay["kind"], _visit)(state, overlay)


def _visit(state: State, overlay: dict[str, Any]) -> None:
    """Yes to what someone wants to sell: the store, or the browser, comes to the front."""
    st.show(state, "store" if overlay["kind"] == "ad" and "store" in state["installed"] else "browser")


def _restart(state: State, overlay: dict[str, Any]) -> None:
    """The update: the phone restarts, which takes a minute and closes every app."""
    state["elapsed_s"] += 60
    state["stacks"] = {name: [["root"]] for name in state["stacks"]}
    state["fields"] = {}
    state["flashlight"] = False
    st.show(state, "launcher")
    state["toast"] = "The system is up to date"


def _rate(state: State, overlay: dict[str, Any]) -> None:
    state["toast"] = "Thank you for rating"


def _save_power(state: State, overlay: dict[str, Any]) -> None:
    state["apps"]["settings"]["saver"] = True
    state["toast"] = "Battery saver is on"


def _open(state: State, overlay: dict[str, Any]) -> None:
    st.show(state, MESSAGES[overlay["which"]][0])


def _uninstall(state: State, overlay: dict[str, Any]) -> None:
    installs.uninstall(state, overlay["app"])


def _nothing(state: State, overlay: dict[str, Any]) -> None:
    """The permission is noted already."""


_ACCEPTED = {
    "permission": _nothing,
    "update": _restart,
    "rating": _rate,
    "low_battery": _save_power,
    "message": _open,
    "uninstall": _uninstall,
}
