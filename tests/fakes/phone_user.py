"""Users of the simulated phone: they touch what has a resource id, where a person would see it."""

from __future__ import annotations

from typing import Any

from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import Phone
from distrl.simulator.phone.state import State


def has(phone: Phone, rid: str) -> bool:
    """Whether the present screen has an element with this resource id."""
    return nodes.find(phone.tree(), rid) is not None


def centre(phone: Phone, rid: str) -> tuple[float, float]:
    """The middle of an element in dp."""
    node = nodes.find(phone.tree(), rid)
    assert node is not None, f"{rid} is not on the screen"
    return node.x + node.w / 2, node.y + node.h / 2


def tap(phone: Phone, *rids: str) -> None:
    """Taps elements, one after the other; none of them may be covered."""
    for rid in rids:
        x, y = centre(phone, rid)
        found = nodes.hit(phone.tree(), x, y)
        assert found is not None, f"{rid} is covered"
        assert found.rid == rid, f"{rid} is covered by {found.rid}"
        phone.tap(x, y)


def texts(phone: Phone) -> list[str]:
    """Everything that is written on the screen."""
    return [node.text for node in nodes.walk(phone.tree()) if node.text]


class User:
    """Somebody with a phone, who starts in an app."""

    def __init__(self, state: State, app: str = "") -> None:
        self.phone = Phone(state)
        if app:
            self.phone.open(app)
        self.app = app

    @property
    def data(self) -> Any:
        """The data of the app in which the user started."""
        return self.phone.state["apps"][self.app]

    def tap(self, *rids: str) -> None:
        tap(self.phone, *rids)

    def type(self, text: str) -> None:
        self.phone.type_text(text)

    def texts(self) -> list[str]:
        return texts(self.phone)

    def page(self) -> list[Any]:
        """The page on top of the app in front."""
        page: list[Any] = self.phone.state["stacks"][self.phone.front][-1]
        return page
