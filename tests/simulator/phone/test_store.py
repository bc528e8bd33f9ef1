"""The app store: finding, getting, updating and removing apps; and that each of its apps works."""

from __future__ import annotations

import pytest
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
