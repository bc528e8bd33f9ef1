"""The app store: finding, getting, updating and removing apps; and that each of its apps works."""

from __future__ import annotations

import pytest
from phone_crawl import has
from phone_user import tap, texts

from distrl.simulator.apps import APPS, BUILT_IN, store_catalog
from distrl.simulator.apps.store_catalog import ENTRIES
from distrl.simulator.phone import nodes
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS


def store(layout: int = 0, *installed: str) -> Phone:
    """A phone with the store in front."""
    phone = Phone(new_state(layout, installed=(*BUILT_IN, "store")))
    for name in installed:
        store_catalog.install(phone.state, name)
    st.show(phone.state, "store")
    return phone


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_an_app_is_searched_installed_opened_and_uninstalled(layout: int) -> None:
    phone = store(layout)
    tap(phone, "store_search")
    phone.type_text("Water Log\n")
    tap(phone, "row_waterlog", "install", "accept")
    assert "waterlog" not in phone.state["installed"]
    assert 0 <= store_catalog.progress(phone.state, "waterlog") < 1
    assert has(phone, "cancel_download")
    for _ in range(3):
        phone.wait()
    assert phone.state["notifications"][0] == {"app": "store", "title": "Water Log", "text": "Installed"}
    tap(phone, "open", "more_0")
    assert (phone.front, phone.state["apps"]["waterlog"]["counts"]) == ("waterlog", [1, 0, 0])
    phone.home()
    st.show(phone.state, "store")
    tap(phone, "uninstall", "overlay_accept")
    assert "waterlog" not in phone.state["installed"]
    assert not {"waterlog"} & (set(phone.state["apps"]) | set(phone.state["stacks"]))
    tap(phone, "install", "accept")
    for _ in range(3):
        phone.wait()
    assert phone.state["apps"]["waterlog"]["counts"] == [0, 0, 0], "what it had stored is gone"


def test_a_search_shows_what_is_sponsored_first() -> None:
    labels = [entry.label for entry in store_catalog.find("Chess Club")]
    assert labels == ["Chess Club Pro", "Chess Club", "Chess Clubs"]
    assert [entry.label for entry in store_catalog.find("weathervane")] == []
    phone = store()
    tap(phone, "store_search")
    phone.type_text("chess club\n")
    assert "Sponsored · Gambit" in texts(phone)


def test_a_download_is_cancelled_and_a_price_is_asked_for() -> None:
    phone = store()
    tap(phone, "store_search")
    phone.type_text("Star Map\n")
    tap(phone, "row_starmap")
    assert "$1.99" in texts(phone)
    tap(phone, "install")
    assert "$1.99, charged to your account" in texts(phone)
    tap(phone, "sheet_cancel")
    assert phone.state["apps"]["store"]["downloads"] == {}
    tap(phone, "install", "accept", "cancel_download")
    for _ in range(5):
        phone.enter()
    assert "starmap" not in phone.state["installed"]


def test_a_download_goes_on_behind_another_app() -> None:
    phone = store()
    tap(phone, "row_radiowave", "install")
    phone.home()
    phone.home()
    assert "radiowave" in phone.state["installed"]


@pytest.mark.parametrize("name", list(ENTRIES))
def test_each_app_works(name: str) -> None:
    """Its first thing that can be touched changes what it stores or shows, and it has a sign-in page."""
    phone = store(len(name) % len(LAYOUTS), name)
    st.show(phone.state, name)
    assert APPS[name].label in texts(phone)
    before = phone.tree()
    own = ("item_", "more_", "light_")
    first = next(node.rid for node in nodes.walk(before) if node.clickable and node.rid.startswith(own))
    tap(phone, first)
    changed = phone.dump()
    assert phone.tree() != before
    phone.load(changed)
    st.reset(phone.state, name)
    phone = Phone(phone.state)
    tap(phone, "account", "user_name")
    phone.type_text("ann\nsecret\n")
    assert phone.state["apps"][name]["user"] == "ann"
    assert "Signed in as ann" in texts(phone)


def test_the_puzzle_can_be_solved_and_begun_anew() -> None:
    phone = store(0, "lightpuzzle")
    st.show(phone.state, "lightpuzzle")
    tap(phone, "light_0", "light_8")
    assert phone.state["apps"]["lightpuzzle"]["moves"] == 2
    phone.state["apps"]["lightpuzzle"]["board"] = [place in (0, 1, 3) for place in range(9)]
    phone = Phone(phone.state)
    tap(phone, "light_0")
    assert "Solved!" in texts(phone)
    tap(phone, "light_5", "new_game")
    assert phone.state["apps"]["lightpuzzle"] | {"moves": 0} == ENTRIES["lightpuzzle"].data()
