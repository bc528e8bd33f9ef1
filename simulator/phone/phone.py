"""The phone: events in, state changed, one screen tree out. No pixels here, and no time but its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distrl.simulator.apps import APPS, BUILT_IN, launcher, store_catalog
from distrl.simulator.phone import interruptions, keyboard, nodes, notifications, system, widgets
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import layout
from distrl.simulator.phone.ui import STATUS_H, context

_SWIPE_MIN = 24.0
"""Shortest movement in dp that is a swipe and not a tap."""
_EDGE = 20.0
"""Width in dp of the edges from which a swipe means back or home."""


def new_state(layout_index: int = 0, time: int = 581, installed: Sequence[str] = BUILT_IN) -> State:
    """A phone fresh from the box, on its home page; `time` is in minutes after midnight."""
    version = layout(layout_index)
    apps = {name: APPS[name].data() for name in installed}
    apps["settings"]["dark"] = version.dark
    return {
        "layout": layout_index,
        "time": time,
        "elapsed_s": 0,
        "front": "launcher",
        "drawer": False,
        "home_page": 0,
        "shade": False,
        "notifications": [],
        "opened": [],
        "flashlight": False,
        "overlay": {},
        "pending": [],
        "permissions": {},
        "installed": list(installed),
        "stacks": {name: [["root"]] for name in installed},
        "scrolls": {},
        "fields": {},
        "focus": "",
        "shift": False,
        "symbols": False,
        "toast": "",
        "apps": apps,
        "kept": {},
    }


class Phone:
    """A phone with `state`, on a screen of `height` dp (360 dp wide)."""

    def __init__(self, state: State, height: float = 800.0) -> None:
        self.state = state
        self.height = height
        self._tree: Node | None = None

    def dump(self) -> str:
        """The state as JSON, whose order of keys is that of the state: albums are shown in it."""
        return json.dumps(self.state, separators=(",", ":"))

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
            ui = context(self.state, self.height, 0 if self._covered else keyboard.KEYBOARD_H)
            home = self.front == "launcher"
            installed = [APPS[name] for name in self.state["installed"]]
            content = launcher.view(ui, installed) if home else APPS[self.front].view(ui)
            over = notifications.view(ui) if self.state["shade"] else interruptions.view(ui)
            ink = interruptions.nav_ink(ui) if self._covered else ""
            on_wallpaper = home and not self.state["drawer"]
            self._tree = system.screen(ui, content, on_wallpaper, self.front, over, ink)
        return self._tree

    @property
    def _covered(self) -> bool:
        """Whether the system covers the app, which gets no input then."""
        return bool(self.state["shade"]) or interruptions.is_modal(self.state)

    @contextmanager
    def _input(self) -> Iterator[None]:
        """Every input takes phone time and dismisses the toast; what was due then happens after it."""
        self.state["elapsed_s"] += st.STEP_S
        self.state["toast"] = ""
        self._tree = None
        yield
        self._advance()

    def _advance(self) -> None:
        store_catalog.advance(self.state)
        interruptions.advance(self.state)
        self._tree = None

    def wait(self) -> None:
        """Lets phone time pass, if there is something that only time ends: a download, an advertisement."""
        if store_catalog.is_busy(self.state) or interruptions.is_timed(self.state):
            with self._input():
                pass

    def tap(self, x: float, y: float) -> None:
        """A tap at (x, y) in dp."""
        node = nodes.hit(self.tree(), x, y)
        with self._input():
            if node is None:
                return
            if node.field:
                st.focus(self.state, node.field)
            else:
                self._dispatch(node.tap)

    def long_press(self, x: float, y: float) -> None:
        """A long press: what the node does on it, else what a tap does."""
        node = nodes.hit(self.tree(), x, y, "hold")
        if node is not None and node.hold:
            with self._input():
                self._dispatch(node.hold)
        else:
            self.tap(x, y)

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Home from the bottom edge, back from a side, the shade from the top; else a slider, or a scroll."""
        dx, dy = x2 - x1, y2 - y1
        if max(abs(dx), abs(dy)) < _SWIPE_MIN:
            self.tap(x1, y1)
        elif y1 > self.height - _EDGE and dy < 0:
            self.home()
        elif abs(dx) > abs(dy) and ((x1 < _EDGE and dx > 0) or (x1 > WIDTH - _EDGE and dx < 0)):
            self.back()
        elif abs(dx) > abs(dy) and (slider := self._slider(x1, y1)):
            self.tap(min(max(x2, slider[0]), slider[-1]), y1)
        elif self.state["shade"] or self.state["overlay"]:
            self._swipe_away(x1, y1, dx, dy)
        elif self.state["shade"] is False and y1 < STATUS_H and dy > abs(dx):
            with self._input():
                self.state["shade"] = True
        elif abs(dy) >= abs(dx):
            self._scroll(x1, y1, dy)
        else:
            with self._input():
                if self.front == "launcher":
                    launcher.turn(self.state, -1 if dx > 0 else 1)

    def _slider(self, x: float, y: float) -> list[float]:
        """Where the steps of the slider at (x, y) are, from left to right; empty when there is none."""
        held = nodes.hit(self.tree(), x, y)
        if held is None or held.cls != "widget.SeekBar":
            return []
        steps = (node for node in nodes.walk(self.tree()) if node.cls == held.cls and node.y == held.y)
        return [step.x + step.w / 2 for step in steps]

    def _swipe_away(self, x: float, y: float, dx: float, dy: float) -> None:
        """A swipe while something of the system is on the screen; under what is not modal the app scrolls."""
        thrown = nodes.hit(self.tree(), x, y, "swipe")
        vertical = abs(dy) >= abs(dx)
        if thrown is not None and (not vertical or not self.state["shade"]):
            with self._input():
                self._dispatch(thrown.swipe)
        elif vertical and (not self._covered or nodes.hit(self.tree(), x, y, "scroll") is not None):
            self._scroll(x, y, dy)
        else:
            with self._input():
                if self.state["shade"] and vertical and dy < 0:
                    self.state["shade"] = False

    def _scroll(self, x: float, y: float, dy: float) -> None:
        node = nodes.hit(self.tree(), x, y, "scroll")
        with self._input():
            if node is None:
                return
            at_top = node.scroll == launcher.DRAWER_LIST and dy > 0 and node.offset == 0
            if node.scroll == "drawer" or at_top:
                launcher.pull(self.state, dy < 0)
            elif node.scroll == notifications.LIST and dy < 0 and node.offset == node.extent:
                self.state["shade"] = False
            else:
                self.state["scrolls"][node.scroll] = round(min(max(0.0, node.offset - dy), node.extent))

    def type_text(self, text: str) -> None:
        """Text into the focused field; a line break is enter. Without a focus nothing happens."""
        with self._input():
            if self._covered:
                return
            for place, line in enumerate(text.split("\n")):
                if place:
                    self._submit()
                keyboard.insert(self.state, line)

    def enter(self) -> None:
        """The enter key."""
        with self._input():
            if not self._covered:
                self._submit()

    def back(self) -> None:
        """The back key: closes what the system shows, then the keyboard, then the page, then the app."""
        with self._input():
            if self.state["shade"]:
                self.state["shade"] = False
            elif interruptions.is_modal(self.state):
                interruptions.back(self.state)
            elif self.state["focus"]:
                st.blur(self.state)
            elif self.front == "launcher":
                launcher.pull(self.state, False)
            elif not APPS[self.front].back(self.state) and not st.pop(self.state, self.front):
                st.show(self.state, "launcher")

    def home(self) -> None:
        """The home key."""
        with self._input():
            self.leave()
            st.show(self.state, "launcher")

    def open(self, app: str) -> None:
        """Brings an app to the front, as another program does it: no input, so it takes no phone time."""
        self.leave()
        if self.front != app:
            self.state["toast"] = ""
            st.show(self.state, app)
        self._advance()

    def pull_shade(self, is_open: bool) -> None:
        """Opens or closes the shade, as a program does it, where it can be pulled."""
        if self.state["shade"] is not None and not interruptions.is_modal(self.state):
            self.state["shade"] = is_open
            self._tree = None

    def leave(self) -> None:
        """Closes the drawer, the shade and any dialog: another app comes to the front."""
        launcher.close(self.state)
        interruptions.leave(self.state)
        if self.state["shade"]:
            self.state["shade"] = False

    def _submit(self) -> None:
        if self.front == "launcher":
            st.blur(self.state)
        elif self.state["focus"]:
            APPS[self.front].submit(self.state, self.state["focus"])

    def _dispatch(self, event: Event) -> None:
        target, verb, *args = event
        if target == "key":
            if keyboard.press(self.state, str(verb)):
                self._submit()
        elif target == "system":
            self._system(str(verb), str(args[0]) if args else "")
        elif target == "find":
            widgets.start_search(self.state, str(verb))
        elif target == "clear":
            widgets.clear(self.state, str(verb))
        elif target == "overlay":
            interruptions.act(self.state, str(verb), tuple(args))
        elif target == "shade":
            notifications.act(self.state, str(verb), tuple(args))
        else:
            APPS[str(target)].act(self.state, str(verb), tuple(args))

    def _system(self, verb: str, app: str) -> None:
        if verb == "back":
            self.back()
        elif verb == "home":
            self.home()
        elif verb == "open":
            launcher.close(self.state)
            st.show(self.state, app)
        elif verb == "search":
            st.reset(self.state, "browser")
            st.show(self.state, "browser")
            st.focus(self.state, "browser.query")
        elif verb == "uninstall":
            store_catalog.ask_uninstall(self.state, app)
