"""The scripted expert's hand: finds an element on the present screen and says how to reach it."""

from __future__ import annotations

from collections.abc import Container

from distrl.core.actions import Action, ActionKind
from distrl.simulator.apps import launcher
from distrl.simulator.phone import interruptions, nodes
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import WIDTH, Box, Node, visible
from distrl.simulator.phone.phone import Phone

BACK = Action(kind=ActionKind.BACK)
HOME = Action(kind=ActionKind.HOME)
ENTER = Action(kind=ActionKind.ENTER)
WAIT = Action(kind=ActionKind.WAIT)
COMPLETE = Action(kind=ActionKind.COMPLETE)
IMPOSSIBLE = Action(kind=ActionKind.IMPOSSIBLE)
SWIPE_DOWN = Action.swipe((0.5, 0.35), (0.5, 0.7))
_SWIPE_UP = Action.swipe((0.5, 0.7), (0.5, 0.35))
_LOWEST = 34.0
"""Least height in dp of what can be hit surely: a row of a grid of 24."""


class Hand:
    """Looks at `phone` and never touches it.

    Args:
        phone: The phone; only its tree and state are read.
    """

    def __init__(self, phone: Phone) -> None:
        self.phone = phone

    def clear(self, removing: str = "", trusted: Container[str] | None = None) -> Action | None:
        """What gets rid of an interruption on the screen; None when there is none.

        Permissions are given to those who are trusted, everything else is declined.

        Args:
            removing: The app of which the phone may ask whether it is to be uninstalled, and hear yes.
            trusted: The apps that are allowed what they ask for; None for all.
        """
        overlay = self.phone.state["overlay"]
        if not overlay or self.phone.state["shade"]:
            return None
        if overlay["kind"] == "uninstall" and overlay["app"] == removing:
            return self.tap("overlay_accept")
        if overlay["kind"] == "message":
            return self._throw("heads_up")
        if overlay["kind"] == "ad":
            return self.tap("overlay_close") if interruptions.closable(self.phone.state) else WAIT
        is_given = overlay["kind"] == "permission" and (trusted is None or overlay["app"] in trusted)
        return self.tap("overlay_allow" if is_given else "overlay_dismiss")

    def _throw(self, rid: str) -> Action:
        node = nodes.find(self.phone.tree(), rid)
        assert node is not None, "what is in the state is on the screen"
        height = (node.y + node.h / 2) / self.phone.height
        return Action.swipe((0.3, height), (0.9, height))

    def tap(self, rid: str) -> Action:
        """A tap on the element `rid`; else what brings it nearer: close the keyboard, scroll, go back."""
        tree = self.phone.tree()
        screen = (0.0, 0.0, WIDTH, self.phone.height)
        for node, box in visible(tree, screen):
            if node.rid == rid:
                x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                if self._takes(node, x, y):
                    return self._unclip(node, box) or Action.tap(x / WIDTH, y / self.phone.height)
        if self.phone.state["focus"] or self.phone.state["shade"]:
            return BACK
        for node in nodes.walk(tree):
            if node.scroll and node.offset < node.extent:
                return self._swipe_up(node)
        return BACK

    def _unclip(self, node: Node, box: Box) -> Action | None:
        """A swipe that shows more of `node`, if the part `box` that shows is too low to be hit surely."""
        if box[3] - box[1] >= min(node.h, _LOWEST):
            return None
        area = nodes.hit(self.phone.tree(), (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, "scroll")
        if area is None:
            return None
        if box[1] > node.y and area.offset > 0:
            return SWIPE_DOWN
        return self._swipe_up(area) if box[1] == node.y and area.offset < area.extent else None

    def _swipe_up(self, area: Node) -> Action:
        """A swipe that scrolls `area`: over the middle of the screen if it is there, else inside it."""
        height = self.phone.height
        if nodes.hit(self.phone.tree(), WIDTH / 2, 0.7 * height, "scroll") == area:
            return _SWIPE_UP
        start, end = (area.y + part * area.h for part in (0.85, 0.15))
        return Action.swipe((0.5, start / height), (0.5, end / height))

    def _takes(self, node: Node, x: float, y: float) -> bool:
        return nodes.hit(self.phone.tree(), x, y) == node

    def open(self, app: str) -> Action | None:
        """What brings `app` to the front; None when it is there."""
        if self.phone.front == app:
            return None
        if self.phone.front != "launcher":
            return HOME
        if self.phone.state["focus"] or self.phone.state["shade"]:
            return BACK
        in_drawer = self.phone.state["drawer"]
        if in_drawer and st.text(self.phone.state, launcher.SEARCH):
            return BACK
        if not in_drawer and nodes.find(self.phone.tree(), "app_" + app) is None:
            return _SWIPE_UP
        return self.tap("app_" + app)

    def type_into(self, field: str, rid: str, text: str) -> Action | None:
        """What makes the text field with key `field` and id `rid` hold `text`; None when it does.

        Where something else is written there, it goes back: the page's fields are empty when it opens anew.
        """
        state = self.phone.state
        typed = st.text(state, field)
        if typed == text:
            return None
        if not text.startswith(typed):
            return BACK
        return Action.type_text(text[len(typed) :]) if state["focus"] == field else self.tap(rid)
