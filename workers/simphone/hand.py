"""The scripted expert's hand: finds an element on the present screen and says how to reach it."""

from __future__ import annotations

from distrl.core.actions import Action, ActionKind
from distrl.workers.simphone import nodes
from distrl.workers.simphone.nodes import WIDTH, Node, visible
from distrl.workers.simphone.phone import Phone

BACK = Action(kind=ActionKind.BACK)
HOME = Action(kind=ActionKind.HOME)
ENTER = Action(kind=ActionKind.ENTER)
COMPLETE = Action(kind=ActionKind.COMPLETE)
IMPOSSIBLE = Action(kind=ActionKind.IMPOSSIBLE)
_SWIPE_UP = Action.swipe((0.5, 0.7), (0.5, 0.35))


class Hand:
    """Looks at `phone` and never touches it.

    Args:
        phone: The phone; only its tree and state are read.
    """

    def __init__(self, phone: Phone) -> None:
        self.phone = phone

    def tap(self, rid: str) -> Action:
        """A tap on the element `rid`; else what brings it nearer: close the keyboard, scroll, go back."""
        tree = self.phone.tree()
        screen = (0.0, 0.0, WIDTH, self.phone.height)
        for node, box in visible(tree, screen):
            if node.rid == rid:
                x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                if self._takes(node, x, y):
                    return Action.tap(x / WIDTH, y / self.phone.height)
        if self.phone.state["focus"]:
            return BACK
        for node in nodes.walk(tree):
            if node.scroll and node.offset < node.extent:
                return _SWIPE_UP
        return BACK

    def _takes(self, node: Node, x: float, y: float) -> bool:
        return nodes.hit(self.phone.tree(), x, y) == node

    def open(self, app: str) -> Action | None:
        """What brings `app` to the front; None when it is there."""
        if self.phone.front == app:
            return None
        if self.phone.front != "launcher":
            return HOME
        if self.phone.state["focus"]:
            return BACK
        on_home = self.phone.state["drawer"] or self.phone.tree_has("app_" + app)
        return self.tap("app_" + app) if on_home else _SWIPE_UP
