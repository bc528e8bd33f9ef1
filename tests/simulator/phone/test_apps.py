"""What each app does when it is used, by taps on its elements."""

from __future__ import annotations

import pytest
from phone_crawl import has
from phone_user import User

from distrl.simulator.apps import market
from distrl.simulator.apps.webshop import goods
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import new_state
from distrl.simulator.tasks import play as tasks
from distrl.workers.devices.device import Key


@pytest.fixture(params=[1, 2, 3])  # every picker, both places of tabs, buttons and bars
def user(request: pytest.FixtureRequest) -> User:
    return User(new_state(request.param))


def test_a_switch_changes_the_setting_and_the_status_bar(user: User) -> None:
    assert nodes.find(user.phone.tree(), "status_wifi") is not None
    user.tap("app_settings", "section_network", "switch_wifi")
    assert user.phone.state["apps"]["settings"]["wifi"] is False
    assert nodes.find(user.phone.tree(), "status_wifi") is None
    user.tap("switch_airplane")
    assert nodes.find(user.phone.tree(), "status_airplanemode_active") is not None


def test_dark_theme_changes_the_colours(user: User) -> None:
    user.tap("app_settings", "section_display")
    before = user.phone.tree().children[0].fill
    user.tap("switch_dark")
    assert user.phone.tree().children[0].fill != before


def test_timer_and_stopwatch_follow_the_phones_time(user: User) -> None:
    user.tap("app_clock", "tab_timer", "timer_1", "timer_run")
    for _ in range(3):
        user.phone.tap(1, 400)
    assert "0:54" in user.texts()
    user.tap("tab_stopwatch", "watch_run")
    for _ in range(5):
        user.phone.tap(1, 400)
    assert "00:10" in user.texts()
    user.tap("watch_run")
    user.phone.tap(1, 400)
    assert "00:12" in user.texts()
    user.tap("watch_reset")
    assert "00:00" in user.texts()


def test_a_long_conversation_shows_its_end() -> None:
    user = User(new_state())
    user.tap("app_messages", "start_chat", "to_1", "message_field")
    for number in range(20):
        user.phone.type_text(f"line {number}")
        user.phone.enter()
    assert "line 19" in user.texts()


def test_typing_on_the_keyboard(user: User) -> None:
    user.tap("app_browser", "search_field", "key_shift")
    user.tap(
        "key_t",
        "key_e",
        "key_a",
        "key_x",
        "key_backspace",
        "key_space",
        "key_symbols",
        "key_4",
        "key_symbols",
    )
    assert user.phone.state["fields"]["browser.query"] == "Tea 4"
    user.tap("key_backspace", "key_backspace", "key_enter")
    assert "How tea is made" in user.texts()
    assert user.phone.state["focus"] == ""


def test_the_search_engine_answers_and_opens_pages(user: User) -> None:
    user.tap("home_search")
    user.phone.type_text("Bike")
    user.phone.enter()
    assert market.find_articles("bike")[0].title == "Choosing a bike"
    user.tap("result_7")
    assert "Choosing a bike" in user.texts()
    user.phone.back()
    user.tap("shop_offer")
    assert user.phone.state["apps"]["browser"]["shop_query"] == "Bike"


def test_the_shop_searches_sorts_and_sells(user: User) -> None:
    user.tap("app_browser", "site_market", "shop_search")
    user.phone.type_text("red shoes")
    user.phone.enter()
    found = market.find_products("red shoes")
    assert len(found) == 3
    user.tap("sort_price")
    cheapest = min(found, key=lambda product: product.price)
    user.tap(f"product_{cheapest.id}", "add_to_cart", "cart")
    assert user.phone.state["apps"]["browser"]["cart"] == [cheapest.id]
    assert f"Total {goods.dollars(cheapest.price)}" in user.texts()
    user.tap("remove_0")
    assert "Your cart is empty" in user.texts()


def test_a_new_search_replaces_the_old_one(user: User) -> None:
    user.tap("app_browser", "site_market")
    for query in ("red shoes", "blue lamp"):
        user.tap("shop_search")
        user.phone.type_text(query + "\n")
    assert user.phone.state["apps"]["browser"]["shop_query"] == "blue lamp"
    user.phone.back()
    assert user.phone.state["stacks"]["browser"][-1] == ["shop"]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (("1", "2", "plus", "3", "equals"), "15"),
        (("7", "divide", "0", "equals"), "Error"),
        (("1", "divide", "4", "equals"), "0.25"),
        (("9", "times", "9", "minus", "1", "equals"), "80"),
        (("5", "sign", "plus", "8", "equals"), "3"),
        (("5", "0", "percent"), "0.5"),
        (("1", "2", "delete"), "1"),
    ],
)
def test_the_calculator(keys: tuple[str, ...], shown: str) -> None:
    user = User(new_state())
    user.tap("app_calculator", *("calc_" + key for key in keys))
    assert user.phone.state["apps"]["calculator"]["shown"] == shown


def test_back_closes_keyboard_then_page_then_app() -> None:
    user = User(new_state())
    user.tap("app_browser", "site_market", "shop_search")
    user.phone.back()
    assert user.phone.state["focus"] == ""
    user.phone.back()
    assert user.phone.state["stacks"]["browser"] == [["root"]]
    user.phone.back()
    assert user.phone.front == "launcher"


def test_gestures_go_home_and_back() -> None:
    device = SimDevice()
    device.phone._dispatch(("system", "open", "settings"))
    device.phone._dispatch(("settings", "section", "network"))
    device.swipe(2, 600, 300, 610)
    assert device.phone.state["stacks"]["settings"] == [["root"]]
    device.swipe(270, 1195, 270, 700)
    assert device.foreground() == "launcher"
    device.key(Key.BACK)
    assert device.foreground() == "launcher"


def test_a_list_scrolls_to_its_end_and_back() -> None:
    user = User(new_state())
    user.tap("app_browser", "site_market")
    for _ in range(8):
        user.phone.swipe(180, 600, 180, 300)
    end = user.phone.state["scrolls"]["shop.front"]
    user.phone.swipe(180, 600, 180, 300)
    assert user.phone.state["scrolls"]["shop.front"] == end > 0
    user.phone.swipe(180, 300, 180, 700)
    assert user.phone.state["scrolls"]["shop.front"] < end


def at(layout: int, app: str) -> User:
    """A user of a phone in daily use, in an app."""
    params = {"layout": layout, "app": app, "start": "launcher"}
    return User(tasks.start_state("launch", params, 7), app)


@pytest.fixture(params=[1, 2, 3])  # every picker, both places of tabs, buttons and bars
def layout(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def test_months_turn_over_the_end_of_the_year() -> None:
    user = at(0, "calendar")
    user.tap(*["next"] * 7)
    assert "January 2026" in user.texts()
    user.tap("day_31", "previous")
    assert "December 2025" in user.texts()
    assert user.data["day"] == "2026-01-31"


def test_contacts_are_searched_as_one_types() -> None:
    user = at(0, "contacts")
    user.tap("search")
    assert user.data["people"][0]["name"] in user.texts()
    assert "Nobody found" not in user.texts()
    user.type("zzz")
    assert "Nobody found" in user.texts()
    assert user.data["people"][0]["name"] not in user.texts()


def test_the_weather_shows_three_cities_at_most(layout: int) -> None:
    user = at(layout, "weather")
    user.tap("places", "place_5")
    assert user.data["shown"] == [0, 1, 2]
    user.tap("place_0", "place_5", "unit_f", "up", "city_5", "day_2")
    assert user.data["shown"] == [1, 2, 5]
    assert "Thursday, Seaview" in user.texts()


def test_files_are_sorted(layout: int) -> None:
    user = at(layout, "files")
    user.tap("new_folder")
    user.type("Archive")
    user.tap("save")
    assert user.data["folders"] == ["Archive", "Documents", "Downloads", "Pictures", "Work"]
    user.tap("folder_1", "sort", "order_size")
    shown = [text for text in user.texts() if text.endswith((".pdf", ".txt"))]
    assert shown == ["lease.pdf", "recipe.txt"]


def test_music_plays_queues_and_keeps(layout: int) -> None:
    user = at(layout, "music")
    user.tap("song_1", "more_2", "menu_queue", "more_2", "menu_playlist", "playlist_0")
    assert user.data["playlists"]["Favourites"] == [0, 5, 2]
    user.tap("mini_player", "like", "shuffle", "next")
    assert (user.data["song"], user.data["liked"], user.data["queue"]) == (2, [1], [])
    user.tap("play", "up_next")
    assert user.data["on"] is False
    assert "Nothing is waiting" in user.texts()
    user.phone.back()
    user.phone.back()
    user.tap("tab_playlists", "new_playlist")
    user.type("Trip")
    user.tap("save")
    assert list(user.data["playlists"]) == ["Favourites", "Trip"]


def test_a_tap_beside_a_sheet_closes_it(layout: int) -> None:
    user = at(layout, "music")
    user.tap("more_0")
    assert user.page() == ["menu", 0]
    user.phone.tap(40, 500)
    assert user.page() == ["root"]


def node(user: User, rid: str) -> nodes.Node:
    found = nodes.find(user.phone.tree(), rid)
    assert found is not None, rid
    return found


def test_a_field_leaves_room_for_its_clear_button_once_there_is_something_to_clear(layout: int) -> None:
    user = at(layout, "mail")
    user.tap("write")
    empty = node(user, "mail_to")
    assert empty.w == nodes.WIDTH - 2 * empty.x
    assert not has(user.phone, "clear_to")
    user.type("Anna")
    filled = node(user, "mail_to")
    assert filled.x + filled.w <= node(user, "clear_to").x


def test_what_dims_an_app_dims_the_navigation_bar_too(layout: int) -> None:
    user = at(layout, "files")
    user.tap("folder_0")
    assert node(user, "nav_bar").fill
    user.tap("sort")
    assert not node(user, "nav_bar").fill
