"""Draws the pictures that simulator/docs/phone.md shows: python simulator/draw_docs.py [DIR]"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from distrl.simulator.apps import APPS, EVERYDAY, calendar, music, store_catalog
from distrl.simulator.apps import notes as notes_app
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import interruptions
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Arg
from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import LAYOUTS

COLOURS = 256
"""Of a picture: a palette makes its file a third as large."""


def fresh(layout: int) -> State:
    """A phone from the box."""
    return new_state(layout)


def lived_in(layout: int) -> State:
    """A phone with more apps and some notifications."""
    state = new_state(layout, installed=(*EVERYDAY, "store"))
    for notice in interruptions.NOTICES:
        st.notify(state, *notice)
    state["apps"]["clock"]["edition"] = 2
    return state


def do(state: State, app: str, verb: str, *args: Arg) -> None:
    """What a touch in an app does."""
    st.show(state, app)
    APPS[app].act(state, verb, args)


def write(state: State, key: str, text: str, *, is_entered: bool = False) -> None:
    """Text into a field of the app in front."""
    st.focus(state, key)
    state["fields"][key] = text
    if is_entered:
        APPS[state["front"]].submit(state, key)


def interrupt(state: State, app: str, kind: str, look: int, which: int = 0) -> State:
    """Lets something come over an app, some seconds ago."""
    st.show(state, app)
    item = {"kind": kind, "due_s": 0, "look": look, "which": which}
    state["overlay"] = {**item, "since_s": -interruptions.AD_S, "app": app}
    return state


def front(state: State, app: str) -> State:
    """The phone with an app in front."""
    st.show(state, app)
    return state


def alarm() -> State:
    """Choosing the minutes of a new alarm."""
    state = fresh(3)
    do(state, "clock", "add")
    do(state, "clock", "hour", 7)
    do(state, "clock", "minute", 20)
    return state


def shop() -> State:
    """What the browser's first shop finds."""
    state = front(fresh(0), "browser")
    write(state, "shop.query", "red shoes", is_entered=True)
    return state


def messages() -> State:
    """A chat while something is typed."""
    state = fresh(1)
    do(state, "messages", "open", "Anna")
    write(state, "messages.text", "I am on my w")
    return state


def picker(layout: int) -> State:
    """A new alarm's time."""
    state = fresh(layout)
    do(state, "clock", "add")
    return state


def shade() -> State:
    """The notification shade."""
    state = lived_in(4)
    state["shade"] = True
    return state


def store_search() -> State:
    """An app and its look-alikes in the store."""
    state = front(lived_in(3), "store")
    write(state, "store.query", "chess club", is_entered=True)
    return state


def download() -> State:
    """An app that is being downloaded."""
    state = lived_in(0)
    do(state, "store", "app", "cityguide")
    store_catalog.begin(state, "cityguide")
    state["elapsed_s"] += st.STEP_S
    return state


def month() -> State:
    """A month of the calendar, and a day's events."""
    state = front(lived_in(0), "calendar")
    events = [("Dentist", 5, 840, 30), ("Yoga class", 5, 1050, 60), ("Book club", 14, 1110, 90)]
    state["apps"]["calendar"] |= {
        "day": "2025-06-05",
        "events": [
            calendar.event(title, f"2025-06-{day:02d}", start, length) for title, day, start, length in events
        ],
    }
    return state


def player() -> State:
    """A song that plays."""
    state = lived_in(1)
    do(state, "music", "play", music.number("Paper Moon"))
    do(state, "music", "player")
    return state


def everyday_alarm() -> State:
    """An alarm with days and a label."""
    state = lived_in(2)
    state["apps"]["clock"]["alarms"] = [{"minutes": 390, "on": True, "days": [0, 1, 2, 3, 4], "label": "Gym"}]
    do(state, "clock", "edit", 0)
    return state


def notes() -> State:
    """A grid of notes."""
    state = front(lived_in(3), "notes")
    titles = ("Recipe stew", "Tax papers", "Car papers", "Bike service")
    state["apps"]["notes"]["notes"] = [{"title": title, "body": notes_app.NOTES[title]} for title in titles]
    return state


SCREENS: dict[str, Callable[[], State]] = {
    "home": lambda: fresh(0),
    "settings": lambda: front(fresh(2), "settings"),
    "alarm": alarm,
    "shop": shop,
    "messages": messages,
    "daily-calendar": month,
    "daily-music": player,
    "daily-alarm": everyday_alarm,
    "daily-notes": notes,
    "daily-mail": lambda: front(lived_in(0), "mail"),
}
"""Pictures of one screen, by what comes after simphone- in their names."""

WILD: tuple[Callable[[], State], ...] = (
    shade,
    store_search,
    download,
    lambda: interrupt(lived_in(5), "notes", "rating", 1),
    lambda: interrupt(lived_in(2), "weather", "permission", 1),
    lambda: interrupt(lived_in(1), "clock", "ad", 1, 1),
)


def screen(state: State, width: int = 360, height: int = 800) -> Image.Image:
    """The phone's screen, drawn at a size and not made smaller afterwards."""
    return SimDevice(width, height, state).screenshot()


def small(state: State, width: int, height: int) -> Image.Image:
    """The screen drawn at twice that size and made smaller, which keeps its text legible."""
    return screen(state, 2 * width, 2 * height).resize((width, height), Image.Resampling.LANCZOS)


def sheet(rows: Sequence[Sequence[Image.Image]], gap: int, margin: int, ground: str) -> Image.Image:
    """Pictures of one size in rows."""
    width, height = rows[0][0].size
    size = (len(rows[0]) * (width + gap) - gap, len(rows) * (height + gap) - gap)
    whole = Image.new("RGB", (size[0] + 2 * margin, size[1] + 2 * margin), ground)
    for line, row in enumerate(rows):
        for place, one in enumerate(row):
            whole.paste(one, (margin + place * (width + gap), margin + line * (height + gap)))
    return whole


def layouts() -> Image.Image:
    """Home page and time picker in each layout."""
    rows = [[small(make(layout), 216, 480) for layout in range(len(LAYOUTS))] for make in (fresh, picker)]
    return sheet(rows, 12, 12, "#d8dbe4")


def wild() -> Image.Image:
    """What gets in the way, and the store."""
    return sheet([[small(make(), 240, 534) for make in WILD]], 8, 0, "#808080")


def pictures() -> dict[str, Image.Image]:
    """All pictures by the names of their files."""
    drawn = {name: screen(make()) for name, make in SCREENS.items()}
    drawn |= {"layouts": layouts(), "wild": wild()}
    return {
        f"simphone-{name}.png": one.quantize(COLOURS, kmeans=1, dither=Image.Dither.NONE)
        for name, one in drawn.items()
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "docs" / "images"
    for name, picture in pictures().items():
        picture.save(directory / name, optimize=True)
        print(directory / name)
