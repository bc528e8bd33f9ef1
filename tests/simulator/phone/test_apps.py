"""What each app does when it is used, by taps on its elements."""

from __future__ import annotations

import pytest
from phone_user import User

from distrl.simulator.apps import BUILT_IN, market
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import new_state
from distrl.workers.devices.device import Key


@pytest.fixture(params=[1, 2, 3])  # every picker, both places of tabs, buttons and bars
def user(request: pytest.FixtureRequest) -> User:
    return User(new_state(request.param))


def test_every_app_opens_from_home_and_from_the_drawer(user: User) -> None:
    for name in BUILT_IN:
        user.tap("app_" + name)
        assert user.phone.front == name
        user.phone.home()
        user.phone.swipe(180, 500, 180, 200)
        assert user.phone.state["drawer"]
        user.tap("app_" + name)
        assert user.phone.front == name
        user.phone.back()
        assert user.phone.front == "launcher"


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


def test_a_slider_goes_where_it_is_touched(user: User) -> None:
    user.tap("app_settings", "section_sound", "slider_volume_90")
    assert user.phone.state["apps"]["settings"]["volume"] == 90
    assert "Media volume: 90%" in user.texts()


def test_alarms_are_set_switched_and_sorted(user: User) -> None:
    user.tap("app_clock", "add_alarm", "hour_7", "minute_20", "period_pm", "save")
    user.tap("add_alarm", "hour_6", "minute_5", "period_am", "save")
    assert user.phone.state["apps"]["clock"]["alarms"] == [
        {"minutes": 365, "on": True},
        {"minutes": 1160, "on": True},
    ]
    assert "7:20 PM" in user.texts()
    user.tap("alarm_1_switch")
    assert user.phone.state["apps"]["clock"]["alarms"][1]["on"] is False
    card = nodes.find(user.phone.tree(), "alarm_0")
    assert card is not None
    user.phone.long_press(card.x + card.w / 2, card.y + 10)
    assert [alarm["minutes"] for alarm in user.phone.state["apps"]["clock"]["alarms"]] == [1160]


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


def test_a_contact_is_added_starred_and_deleted(user: User) -> None:
    user.tap("app_contacts", "add_contact")
    user.phone.type_text("Berta")
    user.phone.enter()
    user.phone.type_text("555 0100")
    user.phone.enter()
    user.tap("save")
    names = [person["name"] for person in user.phone.state["apps"]["contacts"]["people"]]
    assert names == sorted(names)
    assert "Berta" in names
    user.tap(f"contact_{names.index('Berta')}", "favourite")
    assert user.phone.state["apps"]["contacts"]["people"][names.index("Berta")]["starred"]
    user.tap("delete")
    assert "Berta" not in [person["name"] for person in user.phone.state["apps"]["contacts"]["people"]]


def test_a_message_is_written_from_a_contact(user: User) -> None:
    user.tap("app_contacts", "contact_4", "send_message", "message_field")
    user.phone.type_text("See you at six")
    user.tap("send")
    newest = user.phone.state["apps"]["messages"]["threads"][0]
    assert newest == {"name": "Maria", "lines": [["me", "See you at six"]]}
    user.phone.back()
    user.phone.back()
    assert "You: See you at six" in user.texts()


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


def test_text_without_focus_goes_nowhere(user: User) -> None:
    before = dict(user.phone.state["fields"])
    user.phone.type_text("hello")
    assert user.phone.state["fields"] == before


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
    assert f"Total {market.price(cheapest.price)}" in user.texts()
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


def test_notes_are_written_and_deleted(user: User) -> None:
    user.tap("app_notes", "add_note")
    user.phone.type_text("Call\nthe plumber\n")
    user.tap("save")
    assert user.phone.state["apps"]["notes"]["notes"][0] == {"title": "Call", "body": "the plumber"}
    user.tap("note_0", "delete", "confirm")
    assert user.phone.state["apps"]["notes"]["notes"][0]["title"] == "Groceries"


def test_weather_shows_another_city(user: User) -> None:
    user.tap("app_weather", "city_2")
    assert user.phone.state["apps"]["weather"]["city"] == 2


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
