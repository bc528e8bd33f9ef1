"""A user of the simulated phone: touches what has a resource id, where a person would see it."""

from __future__ import annotations

from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import Phone


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
