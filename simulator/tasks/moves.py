"""Moves that the experts share, and how a template of everyday tasks is put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from distrl.core.actions import Action
from distrl.simulator.apps import BUILT_IN, contacts, notes
from distrl.simulator.apps import calendar as calendar_app
from distrl.simulator.apps.clock_pages import CITIES
from distrl.simulator.apps.settings_pages import TOGGLES
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, COMPLETE, Hand
from distrl.simulator.phone.keeping import May
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params, Template

EVERYDAY = (*BUILT_IN, "calendar", "files", "mail", "music")
"""The apps of a phone in daily use."""
_KEPT = {"dark", "airplane", "wifi"}
"""Switches that every task finds as on a new phone."""

Check = Callable[[State, Params], bool]
Way = Callable[[Hand, Params], Action]


def everyday(
    app: str,
    needs: Mapping[str, type],
    start: Callable[[State, Params, random.Random], None],
    check: Check,
    way: Way,
    choices: Mapping[str, Container[Any]] | None = None,
    may: tuple[May, ...] = (),
) -> Template:
    """A template whose task is done in `app` of a phone in daily use.

    Args:
        start: Given a phone that `lived_in` has filled, makes sure of what the task needs.
        way: What to do while `app` is in front and the check fails.
        may: What lasting parts of the phone the task may change.
    """

    def started(state: State, params: Params, rng: random.Random) -> None:
        lived_in(state, rng)
        start(state, params, rng)

    def expert(hand: Hand, params: Params) -> Action:
        if check(hand.phone.state, params):
            return COMPLETE
        return hand.open(app) or way(hand, params)

    return Template(dict(needs), started, check, expert, choices or {}, EVERYDAY, app=app, may=may)


def lived_in(state: State, rng: random.Random) -> None:
    """Fills a fresh phone with people, chats, notes, events, alarms and settings, and updates its apps."""
    apps = state["apps"]
    for app in ("clock", "contacts", "settings"):
        apps[app]["edition"] = 2
    for key in TOGGLES:
        if key not in _KEPT:
            apps["settings"][key] = rng.random() < 0.5
    for key in ("brightness", "volume", "ring", "alarm_volume"):
        apps["settings"][key] = rng.randrange(0, 11) * 10
    apps["clock"]["alarms"] = [
        {"minutes": minutes, "on": rng.random() < 0.7}
        for minutes in sorted(rng.sample(range(302, 1380, 55), 3))
    ]
    apps["clock"]["world"] = rng.sample(sorted(CITIES), 2)
    names = rng.sample(stuff.NAMES, 9)
    apps["contacts"]["people"] = [contacts.person(name) for name in sorted(names)]
    apps["contacts"]["calls"] = [[name, rng.choice(("in", "out", "missed"))] for name in names[:3]]
    apps["messages"]["threads"] = [
        {"name": name, "lines": [[rng.choice(("me", "them")), said] for said in rng.sample(stuff.SAID, 2)]}
        for name in names[3:7]
    ]
    apps["notes"]["notes"] = [
        {"title": title, "body": stuff.NOTES[title]} for title in rng.sample(sorted(stuff.NOTES), 4)
    ]
    apps["calendar"]["events"] = [
        calendar_app.event(title, f"2025-06-{rng.randrange(1, 31):02d}", rng.choice(calendar_app.SLOTS))
        for title in rng.sample(stuff.EVENTS, 4)
    ]
    apps["weather"]["city"] = rng.choice(apps["weather"]["shown"])


def mark(entry: State) -> None:
    """Makes an entry of a list known again, whatever its name and time become."""
    entry["mark"] = True


def is_marked(entries: Iterable[State]) -> bool:
    """Whether the marked entry is still there."""
    return any(entry.get("mark", False) for entry in entries)


def page(hand: Hand, app: str) -> st.Page:
    """The page of `app` that is on top."""
    return st.page(hand.phone.state, app)


def write(hand: Hand, rid: str, key: str, text: str, clear: str = "") -> Action | None:
    """What brings `text` into the field `key`; None when it is there.

    Wrong text is emptied by the button `clear`; without one, leaving the page and coming back does it.
    """
    state = hand.phone.state
    typed = st.text(state, key)
    if typed == text:
        return None
    if not text.startswith(typed):
        return hand.tap(clear) if clear else BACK
    if state["focus"] != key:
        return hand.tap(rid)
    return Action.type_text(text[len(typed) :])


def search(hand: Hand, app: str, text: str, found: str) -> Action:
    """Finds `text` by the app's search and taps `found` among what it shows."""
    at = page(hand, app)[0]
    if at == "root":
        return hand.tap("search")
    if at != "search":
        return BACK
    return write(hand, "search_field", app + ".search", text) or hand.tap(found)


def add_person(state: State, name: str) -> None:
    """Makes sure that `name` is in the address book."""
    people = state["apps"]["contacts"]["people"]
    if all(entry["name"] != name for entry in people):
        people.append(contacts.person(name))
        people.sort(key=lambda entry: str(entry["name"]).lower())


def person_at(state: State, name: str) -> int:
    """The place of `name` in the address book, -1 when it is not there."""
    people = state["apps"]["contacts"]["people"]
    return next((place for place, entry in enumerate(people) if entry["name"] == name), -1)


def add_note(state: State, note: State, rng: random.Random) -> None:
    """Makes sure of one note with this title."""
    entries = state["apps"]["notes"]["notes"]
    if (place := notes.find(state, note["title"])) >= 0:
        entries.pop(place)
    entries.insert(rng.randrange(len(entries) + 1), note)
