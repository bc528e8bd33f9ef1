"""What an app is: its name and icon, its data at the start, its screens, and what its events do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Arg, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import Ui

Args = tuple[Arg, ...]


def close_keyboard(state: State, key: str) -> None:
    """A `submit`: enter closes the keyboard."""
    st.blur(state)


def _nothing(state: State, key: str) -> None:
    """Enter does nothing."""


def _stay(state: State) -> bool:
    """Back is not handled by the app."""
    return False


def _empty(state: State, rng: random.Random) -> None:
    """The app is the same on a phone in daily use."""


@dataclass(frozen=True)
class App:
    """One app. All functions are pure but for the state they are given to change.

    Attributes:
        name, label: Its key in the state, and the name under its icon.
        icon, color: The icon's Material symbol and background colour.
        data: The app's own data at the start, before a task changes it.
        view: The nodes of its present page.
        act: Applies an event ("name", verb, arguments...) to the state: called with the verb and arguments.
        submit: Enter was pressed in the text field with this key.
        back: Handles back inside the app; False to close the top page instead.
        keeps: What of its data lasts, by its place in them, e.g. "events" or "shops.*.cart"; see
            `tasks.state_diff`.
        fill: Fills the app of a phone in daily use, given the whole state.
        comes: The phones that have it: "always", "everyday" (a phone in daily use), or "store" (only where it
            is installed).
        asks: The permission it asks for when it is first opened: "location", "contacts", "microphone",
            "camera", "photos" or "notifications".
        permissions: Android's names of the permissions in its manifest.
    """

    name: str
    label: str
    icon: str
    color: str
    data: Callable[[], State]
    view: Callable[[Ui], list[Node]]
    act: Callable[[State, str, Args], None]
    submit: Callable[[State, str], None] = _nothing
    back: Callable[[State], bool] = _stay
    keeps: tuple[str, ...] = ()
    fill: Callable[[State, random.Random], None] = _empty
    comes: str = "always"
    asks: str = "notifications"
    permissions: tuple[str, ...] = ()
