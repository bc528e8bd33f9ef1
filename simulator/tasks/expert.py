"""`Expert`: finds elements on the present screen and says how to reach them, for the scripted experts."""

from __future__ import annotations

from distrl.core.actions import Action, ActionKind
from distrl.simulator.phone import nodes
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import WIDTH, Box, Node, visible
from distrl.simulator.phone.state import State

BACK = Action(kind=ActionKind.BACK)
HOME = Action(kind=ActionKind.HOME)
ENTER = Action(kind=ActionKind.ENTER)
WAIT = Action(kind=ActionKind.WAIT)
COMPLETE = Action(kind=ActionKind.COMPLETE)
IMPOSSIBLE = Action(kind=ActionKind.IMPOSSIBLE)
SWIPE_DOWN = Action.swipe((0.5, 0.35), (0.5, 0.7))
_SWIPE_UP = Action.swipe((0.5, 0.7), (0.5, 0.35))
_LOWEST = 34.0
"""Smallest height in dp of an element that a tap hits reliably: a row of a grid of 24."""


class Expert:
    """Reads a screen and proposes actions; it changes nothing.

    Methods that return None have nothing left to do. An expert's step is therefore often a chain:
    `expert.open("notes") or expert.write(...) or expert.tap("save")`.
    """

    def __init__(self, state: State, tree: Node) -> None:
        self.state = state
        self.tree = tree

    def page(self, app: str) -> st.Page:
        """The page of `app` that is on top."""
        return st.page(self.state, app)

    def has(self, rid: str) -> bool:
        """Whether the screen has an element with this resource id."""
        return nodes.find(self.tree, rid) is not None

    def throw(self, rid: str) -> Action:
        """A swipe that throws the element `rid` off the screen."""
        node = nodes.find(self.tree, rid)
        assert node is not None, "what is in the state is on the screen"
        height = (node.y + node.h / 2) / self.tree.h
        return Action.swipe((0.3, height), (0.9, height))

    def tap(self, rid: str) -> Action:
        """A tap on the element `rid`; else what brings it nearer: close the keyboard, scroll, go back."""
        for node, box in visible(self.tree, self.tree.box):
            if node.rid == rid:
                x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                if nodes.hit(self.tree, x, y) == node:
                    return self._unclip(node, box) or Action.tap(x / WIDTH, y / self.tree.h)
        if self.state["focus"] or self.state["shade"]:
            return BACK
        for node in nodes.walk(self.tree):
            if node.scroll and node.offset < node.extent:
                return self._swipe_up(node)
        return BACK

    def _unclip(self, node: Node, box: Box) -> Action | None:
        """A swipe that shows more of `node`, if the part `box` that shows is too low to be hit reliably."""
        if box[3] - box[1] >= min(node.h, _LOWEST):
            return None
        area = nodes.hit(self.tree, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, "scroll")
        if area is None:
            return None
        if box[1] > node.y and area.offset > 0:
            return SWIPE_DOWN
        return self._swipe_up(area) if box[1] == node.y and area.offset < area.extent else None

    def _swipe_up(self, area: Node) -> Action:
        """A swipe that scrolls `area`: over the middle of the screen if it is there, else inside it."""
        height = self.tree.h
        if nodes.hit(self.tree, WIDTH / 2, 0.7 * height, "scroll") == area:
            return _SWIPE_UP
        start, end = (area.y + part * area.h for part in (0.85, 0.15))
        return Action.swipe((0.5, start / height), (0.5, end / height))

    def open(self, app: str) -> Action | None:
        """Brings `app` to the front; None when it is there."""
        if self.state["front"] == app:
            return None
        if self.state["front"] != "launcher":
            return HOME
        if self.state["focus"] or self.state["shade"]:
            return BACK
        in_drawer = self.state["drawer"]
        if in_drawer and st.text(self.state, st.DRAWER_SEARCH):
            return BACK
        return self.tap("app_" + app) if in_drawer or self.has("app_" + app) else _SWIPE_UP

    def write(self, rid: str, key: str, text: str, clear: str = "") -> Action | None:
        """Brings `text` into the field with the id `rid` and the key `key`; None when it is there.

        Other text, and the beginning of this one, is removed by the button `clear`; without one, by leaving
        the page, whose fields are empty when it is opened again.
        """
        typed = st.text(self.state, key)
        if typed == text:
            return None
        if typed:
            return self.tap(clear) if clear else BACK
        return Action.type_text(text) if self.state["focus"] == key else self.tap(rid)

    def type_and_enter(self, key: str, text: str) -> Action:
        """Types `text` into the focused field and presses enter; leaves other text."""
        typed = st.text(self.state, key)
        if typed == text:
            return ENTER
        return BACK if typed else Action.type_text(text)

    def fill(self, app: str, values: dict[str, str], clear: bool = True) -> Action:
        """Writes `values` into the form's fields of these names and saves it."""
        for name, text in values.items():
            button = "clear_" + name if clear else ""
            step = self.write(f"{app}_{name}", f"{app}.{name}", text, button)
            if step is not None:
                return step
        return self.tap("save")

    def search(self, app: str, text: str, found: str) -> Action:
        """Finds `text` by the app's search and taps `found` among the results."""
        at = self.page(app)[0]
        if at == "root":
            return self.tap("search")
        if at != "search":
            return BACK
        return self.write("search_field", app + ".search", text) or self.tap(found)

    def to_root(self, app: str, tab: int | None = None, rid: str = "") -> Action | None:
        """Shows the app's first page, and there the tab that `rid` opens; None when it is shown."""
        if self.page(app)[0] != "root":
            return BACK
        return None if tab is None or self.state["apps"][app]["tab"] == tab else self.tap(rid)
