"""The screens of a simulated phone that taps reach."""

from __future__ import annotations

from collections import deque

from distrl.simulator.phone import nodes
from distrl.simulator.phone.nodes import Node
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.tasks import play as tasks


def has(phone: Phone, rid: str) -> bool:
    """Whether the present screen has an element with this resource id."""
    return nodes.find(phone.tree(), rid) is not None


def everyday(layout: int, app: str) -> Phone:
    """A phone in daily use with `app` in front."""
    params = {"layout": layout, "app": app, "start": "launcher"}
    phone = Phone(tasks.start_state("launch", params, seed=layout))
    phone.open(app)
    return phone


def crawl(layout: int, limit: int, start: Phone | None = None) -> list[Node]:
    """Distinct screens in the order in which breadth-first tapping finds them, without keyboard keys."""
    first = Phone(new_state(layout)) if start is None else start
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
