"""A crawl of the phone: the screens that a few taps reach from the home page, in every layout."""

from __future__ import annotations

from collections import deque

import pytest

from distrl.workers.simphone import nodes
from distrl.workers.simphone.nodes import Node
from distrl.workers.simphone.phone import Phone, new_state
from distrl.workers.simphone.theme import LAYOUTS

SCREENS_PER_LAYOUT = 60


def crawl(layout: int, limit: int) -> list[Node]:
    """Distinct screens in the order in which breadth-first tapping finds them, without keyboard keys."""
    first = Phone(new_state(layout))
    found: dict[Node, None] = {first.tree(): None}
    queue = deque([first.dump()])
    while queue and len(found) < limit:
        state = queue.popleft()
        phone = Phone({})
        phone.load(state)
        for node in [n for n in nodes.walk(phone.tree()) if n.clickable and n.tap[:1] != ("key",)]:
            phone.load(state)
            phone.tap(node.x + node.w / 2, node.y + node.h / 2)
            if phone.tree() not in found:
                found[phone.tree()] = None
                queue.append(phone.dump())
    return list(found)[:limit]


@pytest.fixture(scope="session")
def screens() -> list[Node]:
    """Screens of all layouts."""
    return [tree for layout in range(len(LAYOUTS)) for tree in crawl(layout, SCREENS_PER_LAYOUT)]
