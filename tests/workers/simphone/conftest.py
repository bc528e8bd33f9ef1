"""A crawl of the phone: the screens that a few taps reach from the home page, in every layout."""

from __future__ import annotations

from collections import deque

import pytest

from distrl.workers.simphone import nodes, tasks
from distrl.workers.simphone.nodes import Node
from distrl.workers.simphone.phone import Phone, new_state
from distrl.workers.simphone.templates.moves import EVERYDAY
from distrl.workers.simphone.theme import LAYOUTS

SCREENS_PER_LAYOUT = 60
SCREENS_PER_APP = 9


def everyday(layout: int, app: str) -> Phone:
    """A phone in daily use with `app` in front."""
    params = {"layout": layout, "app": app, "start": "launcher"}
    phone = Phone(tasks.start_state("launch", params, seed=layout))
    phone.open(app)
    return phone


def crawl(first: Phone, limit: int) -> list[Node]:
    """Distinct screens in the order in which breadth-first tapping finds them, without keyboard keys."""
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
    fresh = [crawl(Phone(new_state(layout)), SCREENS_PER_LAYOUT) for layout in range(len(LAYOUTS))]
    used = [
        crawl(everyday(layout, app), SCREENS_PER_APP)
        for layout in range(len(LAYOUTS))
        for app in EVERYDAY
        if app != "browser"
    ]
    return list(dict.fromkeys(tree for trees in (*fresh, *used) for tree in trees))
