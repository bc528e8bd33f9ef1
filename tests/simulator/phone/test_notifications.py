"""The notification shade, the second page of the home screen, and a drawer with many apps."""

from __future__ import annotations

import pytest
from phone_user import centre, has, tap

from distrl.simulator.apps import BUILT_IN, store_catalog
from distrl.simulator.phone import interruptions, nodes, notifications
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS


def pulled(layout: int, notices: int = 3) -> Phone:
    """A phone with an open shade."""
    phone = Phone(new_state(layout))
    for place in range(notices):
        st.notify(phone.state, *interruptions.NOTICES[place % 3])
    phone.swipe(180, 10, 180, 400)
    assert phone.state["shade"]
    return phone


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_every_tile_changes_what_it_says(layout: int) -> None:
    phone = pulled(layout)
    for key, *_ in notifications.TILES:
        before = notifications.is_on(phone.state, key)
        tap(phone, "tile_" + key)
        assert notifications.is_on(phone.state, key) is not before
        tile = nodes.find(phone.tree(), "tile_" + key)
        assert tile is not None
        assert tile.checked is not before
        tap(phone, "tile_" + key)
    tap(phone, "slider_shade_30")
    assert phone.state["apps"]["settings"]["brightness"] == 30
    x, y = centre(phone, "slider_shade_30")
    phone.swipe(x, y, centre(phone, "slider_shade_80")[0], y)
    assert phone.state["apps"]["settings"]["brightness"] == 80


def test_it_closes_by_back_by_home_and_by_a_swipe() -> None:
    for close in (Phone.back, Phone.home, lambda phone: phone.swipe(180, 700, 180, 300)):
        phone = pulled(0)
        close(phone)
        assert phone.state["shade"] is False
        assert phone.front == "launcher"


def test_notifications_open_their_app_are_thrown_away_and_cleared() -> None:
    phone = pulled(0)
    titles = [notice["title"] for notice in phone.state["notifications"]]
    x, y = centre(phone, "notification_1")
    phone.swipe(x - 90, y, x + 90, y)
    assert [notice["title"] for notice in phone.state["notifications"]] == [titles[0], titles[2]]
    tap(phone, "notification_0")
    assert phone.front == "messages"
    assert not phone.state["shade"]
    phone.swipe(180, 10, 180, 400)
    tap(phone, "clear_all")
    assert phone.state["notifications"] == []


def crowded(layout: int) -> Phone:
    phone = Phone(new_state(layout, installed=(*BUILT_IN, "store")))
    for name in store_catalog.ENTRIES:
        store_catalog.install(phone.state, name)
    return phone


def test_the_drawer_is_searched_and_closes_at_its_top() -> None:
    phone = crowded(0)
    phone.swipe(180, 600, 180, 200)
    tap(phone, "launcher_apps")
    phone.type_text("chess")
    shown = [node.desc for node in nodes.walk(phone.tree()) if node.rid.startswith("app_")]
    assert shown == ["Chess Club", "Chess Club Pro", "Chess Clubs"]
    phone.back()
    phone.back()
    assert not phone.state["drawer"]
    phone.swipe(180, 600, 180, 200)
    assert len([node for node in nodes.walk(phone.tree()) if node.rid.startswith("app_")]) > 16
    phone.swipe(180, 600, 180, 300)
    phone.swipe(180, 300, 180, 600)
    assert phone.state["drawer"], "it scrolled back"
    phone.swipe(180, 300, 180, 600)
    assert not phone.state["drawer"]


def test_an_app_of_the_store_is_removed_by_a_long_press_on_its_icon() -> None:
    phone = crowded(3)
    phone.swipe(300, 300, 60, 300)
    phone.long_press(*centre(phone, "app_chessclub"))
    tap(phone, "overlay_dismiss")
    assert "chessclub" in phone.state["installed"]
    phone.long_press(*centre(phone, "app_chessclub"))
    tap(phone, "overlay_accept")
    assert "chessclub" not in phone.state["installed"]
    assert not has(phone, "app_chessclub")
    assert phone.front == "launcher"
