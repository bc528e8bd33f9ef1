"""A crawl of the phone: the screens that a few taps reach from the home page, in every layout."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

from distrl.workers.simphone import installs, interruptions, nodes
from distrl.workers.simphone import state as st
from distrl.workers.simphone.apps import BUILT_IN
from distrl.workers.simphone.nodes import Node
from distrl.workers.simphone.phone import Phone, new_state
from distrl.workers.simphone.theme import LAYOUTS

SCREENS_PER_LAYOUT = 60


STORE_SCREENS = 30


def store_phone(layout: int, *extra: str) -> Phone:
    """A phone with the store in front, apps of it that are installed, and notifications."""
    state = new_state(layout, installed=(*BUILT_IN, "store"))
    for name in ("taskly", "recipe_box", "chess_club", "water_log", "radio_wave", *extra):
        installs.install(state, name)
    state["apps"]["store"]["updates"] = ["taskly", "water_log"]
    for app, title, text in interruptions.NOTICES * 4:
        st.notify(state, app, title, text)
    st.show(state, "store")
    return Phone(state)


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


def overlays(layout: int) -> list[Node]:
    """Every kind of interruption in every design, an advertisement before and after it can be closed."""
    trees = []
    for kind, look in itertools.product((*interruptions.KINDS, "uninstall"), range(interruptions.LOOKS)):
        for elapsed in (0, interruptions.AD_S) if kind == "ad" else (0,):
            phone = store_phone(layout)
            st.show(phone.state, "weather")
            app = "taskly" if kind == "uninstall" else ("weather", "clock", "chess_club")[look]
            item = {"kind": kind, "look": look, "which": look, "due_s": 0, "since_s": 0, "app": app}
            phone.state |= {"overlay": item, "elapsed_s": elapsed}
            trees.append(phone.tree())
    return trees


def home_and_shade(layout: int) -> list[Node]:
    """The shade, the second page, and a drawer that scrolls: at its top, at its end, searched."""
    phone = store_phone(layout, *list(installs.ENTRIES)[:20])
    phone.home()
    trees = []
    for swipe in ((300, 300, 60, 300), (180, 10, 180, 400), (180, 700, 180, 500), (180, 700, 180, 300)):
        phone.swipe(*swipe)
        trees.append(phone.tree())
    phone.home()
    for _ in range(4):
        phone.swipe(180, 600, 180, 300)
        trees.append(phone.tree())
    st.focus(phone.state, "launcher.apps")
    for text in ("ch", "xyz"):
        phone.type_text(text)
        trees.append(phone.tree())
    return trees


@pytest.fixture(scope="session")
def system_screens() -> list[Node]:
    """Screens of the store, the shade, home and drawer with many apps, and interruptions, of all layouts."""
    return [
        tree
        for layout in range(len(LAYOUTS))
        for tree in (
            *crawl(layout, STORE_SCREENS, store_phone(layout)),
            *home_and_shade(layout),
            *overlays(layout),
        )
    ]


@pytest.fixture(scope="session")
def screens(system_screens: list[Node]) -> list[Node]:
    """Screens of all layouts."""
    apps = [tree for layout in range(len(LAYOUTS)) for tree in crawl(layout, SCREENS_PER_LAYOUT)]
    return apps + system_screens
