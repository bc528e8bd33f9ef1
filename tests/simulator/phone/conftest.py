"""A crawl of the phone: the screens that a few taps reach from the home page, in every layout."""

from __future__ import annotations

import itertools

import pytest
from phone_crawl import crawl, everyday

from distrl.simulator.apps import BUILT_IN, EVERYDAY, store_catalog
from distrl.simulator.phone import interruptions
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Node
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS

SCREENS_PER_LAYOUT = 30
SCREENS_PER_APP = 5
STORE_SCREENS = 15


def store_phone(layout: int, *extra: str) -> Phone:
    """A phone with the store in front, apps of it that are installed, and notifications."""
    state = new_state(layout, installed=(*BUILT_IN, "store"))
    for name in ("taskly", "recipebox", "chessclub", "waterlog", "radiowave", *extra):
        store_catalog.install(state, name)
    state["apps"]["store"]["updates"] = ["taskly", "waterlog"]
    for app, title, text in interruptions.NOTICES * 4:
        st.notify(state, app, title, text)
    st.show(state, "store")
    return Phone(state)


def overlays(layout: int) -> list[Node]:
    """Every kind of interruption in every design, an advertisement before and after it can be closed."""
    trees = []
    for kind, look in itertools.product((*interruptions.KINDS, "uninstall"), range(interruptions.LOOKS)):
        for elapsed in (0, interruptions.AD_S) if kind == "ad" else (0,):
            phone = store_phone(layout)
            st.show(phone.state, "weather")
            app = "taskly" if kind == "uninstall" else ("weather", "clock", "chessclub")[look]
            item = {"kind": kind, "look": look, "which": look, "due_s": 0, "since_s": 0, "app": app}
            phone.state |= {"overlay": item, "elapsed_s": elapsed}
            trees.append(phone.tree())
    return trees


def home_and_shade(layout: int) -> list[Node]:
    """The shade, the second page, and a drawer that scrolls: at its top, at its end, searched."""
    phone = store_phone(layout, *list(store_catalog.ENTRIES)[:20])
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
    used = [
        tree
        for layout in range(len(LAYOUTS))
        for app in EVERYDAY
        if app != "browser"
        for tree in crawl(layout, SCREENS_PER_APP, everyday(layout, app))
    ]
    return list(dict.fromkeys([*apps, *used, *system_screens]))
