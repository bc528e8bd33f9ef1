"""The phone: events in, state changed, one screen tree out. No pixels here, and no time but its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from distrl.workers.simphone import keyboard, nodes, system
from distrl.workers.simphone import state as st
from distrl.workers.simphone.apps import APPS, BUILT_IN, launcher
from distrl.workers.simphone.nodes import WIDTH, Event, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.theme import layout
from distrl.workers.simphone.ui import Ui, context

_SWIPE_MIN = 24.0
"""Shortest movement in dp that is a swipe and not a tap."""
_EDGE = 20.0
"""Width in dp of the edges from which a swipe means back or home."""


def new_state(layout_index: int = 0, time: int = 581, installed: Sequence[str] = BUILT_IN) -> State:
    """A phone fresh from the box, on its home page.

    Args:
        layout_index: The UI version, see `distrl.workers.simphone.theme.LAYOUTS`.
        time: Minutes after midnight.
        installed: The apps that are on it; those of `BUILT_IN` at least.
    """
    version = layout(layout_index)
    apps = {name: APPS[name].data() for name in installed}
    apps["settings"]["dark"] = version.dark
    return {
        "layout": layout_index,
        "time": time,
        "elapsed_s": 0,
        "front": "launcher",
        "drawer": False,
        "installed": list(installed),
        "stacks": {name: [["root"]] for name in installed},
        "scrolls": {},
        "fields": {},
        "focus": "",
        "shift": False,
        "symbols": False,
        "toast": "",
        "apps": apps,
    }


class Phone:
    """A phone with `state`, on a screen of `height` dp (360 dp wide).

    Args:
        state: The state to start from; the phone owns it from now on.
        height: Screen height in dp.
    """

    def __init__(self, state: State, height: float = 800.0) -> None:
        self.state = state
        self.height = height
        self._tree: Node | None = None

    def dump(self) -> str:
        """The state as canonical JSON."""
        return json.dumps(self.state, sort_keys=True, separators=(",", ":"))

    def load(self, text: str) -> None:
        """Replaces the state by one that `dump` wrote."""
        loaded: dict[str, Any] = json.loads(text)
        self.state = loaded
        self._tree = None

    @property
    def front(self) -> str:
        """The app in front, "launcher" for the home page."""
        name: str = self.state["front"]
        return name

    def tree(self) -> Node:
        """The present screen."""
        if self._tree is None:
            ui = context(self.state, self.height, keyboard.KEYBOARD_H)
            home = self.front == "launcher"
            content = (
                launcher.view(ui, [APPS[name] for name in self.state["installed"]])
                if home
                else APPS[self.front].view(ui)
            )
            self._tree = system.screen(ui, content, home and not self.state["drawer"], self.front)
        return self._tree

    def _home(self, ui: Ui) -> list[Node]:
        return launcher.view(ui, [APPS[name] for name in self.state["installed"]])

    def tree_has(self, rid: str) -> bool:
        """Whether the present screen has an element with this resource id."""
        return nodes.find(self.tree(), rid) is not None

    def _input(self) -> None:
        """Every input takes phone time and dismisses the toast."""
        self.state["elapsed_s"] += st.STEP_S
        self.state["toast"] = ""
        self._tree = None

    def tap(self, x: float, y: float) -> None:
        """A tap at (x, y) in dp."""
        node = nodes.hit(self.tree(), x, y)
        self._input()
        if node is None:
            return
        if node.field:
            st.focus(self.state, node.field)
        else:
            self._dispatch(node.tap)

    def long_press(self, x: float, y: float) -> None:
        """A long press: what the node does on it, else what a tap does."""
        node = nodes.hit(self.tree(), x, y, "hold")
        if node is not None:
            self._input()
            self._dispatch(node.hold)
        else:
            self.tap(x, y)

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A swipe: home from the bottom edge, back from a side, else it scrolls what is under its start."""
        dx, dy = x2 - x1, y2 - y1
        if max(abs(dx), abs(dy)) < _SWIPE_MIN:
            self.tap(x1, y1)
        elif y1 > self.height - _EDGE and dy < 0:
            self.home()
        elif abs(dx) > abs(dy) and ((x1 < _EDGE and dx > 0) or (x1 > WIDTH - _EDGE and dx < 0)):
            self.back()
        elif abs(dy) >= abs(dx):
            self._scroll(x1, y1, dy)
        else:
            self._input()

    def _scroll(self, x: float, y: float, dy: float) -> None:
        node = nodes.hit(self.tree(), x, y, "scroll")
        self._input()
        if node is None:
            return
        if node.scroll == "drawer":
            self.state["drawer"] = dy < 0
        else:
            self.state["scrolls"][node.scroll] = round(min(max(0.0, node.offset - dy), node.extent))

    def type_text(self, text: str) -> None:
        """Text into the focused field; a line break is enter. Without a focus nothing happens."""
        self._input()
        for place, line in enumerate(text.split("\n")):
            if place:
                self._submit()
            keyboard.insert(self.state, line)

    def enter(self) -> None:
        """The enter key."""
        self._input()
        self._submit()

    def back(self) -> None:
        """The back key: closes the keyboard, then the page, then the app."""
        self._input()
        if self.state["focus"]:
            st.blur(self.state)
        elif self.front == "launcher":
            self.state["drawer"] = False
        elif not APPS[self.front].back(self.state) and not st.pop(self.state, self.front):
            st.show(self.state, "launcher")

    def home(self) -> None:
        """The home key."""
        self._input()
        self.state["drawer"] = False
        st.show(self.state, "launcher")

    def open(self, app: str) -> None:
        """Brings an app to the front, as another program does it: no input, so it takes no phone time."""
        if self.front != app:
            self.state["drawer"] = False
            self.state["toast"] = ""
            st.show(self.state, app)
            self._tree = None

    def _submit(self) -> None:
        if self.state["focus"] and self.front != "launcher":
            key = self.state["focus"]
            APPS[self.front].submit(self.state, key)

    def _dispatch(self, event: Event) -> None:
        target, verb, *args = event
        if target == "key":
            if keyboard.press(self.state, str(verb)):
                self._submit()
        elif target == "system":
            self._system(str(verb), str(args[0]) if args else "")
        else:
            APPS[str(target)].act(self.state, str(verb), tuple(args))

    def _system(self, verb: str, app: str) -> None:
        if verb == "back":
            self.back()
        elif verb == "home":
            self.home()
        elif verb == "open":
            self.state["drawer"] = False
            st.show(self.state, app)
        elif verb == "search":
            st.reset(self.state, "browser")
            st.show(self.state, "browser")
            st.focus(self.state, "browser.query")
