"""What an app is: its name and icon, its data at the start, its screens, and what its events do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distrl.simulator.phone.nodes import Arg, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import Ui

Args = tuple[Arg, ...]


def _nothing(state: State, key: str) -> None:
    """Enter in a field does nothing but close the keyboard."""


def _stay(state: State) -> bool:
    """Back is not handled by the app."""
    return False


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
        keeps: What of its data lasts, by its place in them, e.g. "events" or "shops.*.cart"; see `keeping`.
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
