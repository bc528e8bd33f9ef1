"""What an app is: its name and icon, its data at the start, its screens, and what its events do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Arg, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import Ui

Args = tuple[Arg, ...]


def through(*keys: str) -> Callable[[State, str], None]:
    """A `submit`: enter moves to the next of these fields, and closes the keyboard after the last."""
    after = dict(pairwise(keys))

    def submit(state: State, key: str) -> None:
        if key in after:
            st.focus(state, after[key])
        else:
            st.blur(state)

    return submit


@dataclass(frozen=True)
class App:
    """One app. All functions are pure but for the state they are given to change.

    Attributes:
        name, label: Its key in the state, and the name under its icon.
        icon, color: The icon's Material symbol and background colour.
        data: The app's own data at the start, before a task changes it.
        view: The nodes of its present page.
        act: Applies an event ("name", verb, arguments...) to the state: called with the verb and arguments.
        submit: Enter was pressed in the text field with this key; nothing by default.
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
    submit: Callable[[State, str], None] = lambda state, key: None
    back: Callable[[State], bool] = lambda state: False
    keeps: tuple[str, ...] = ()
    fill: Callable[[State, Names], None] = lambda state, rng: None
    comes: str = "always"
    asks: str = "notifications"
    permissions: tuple[str, ...] = ()
