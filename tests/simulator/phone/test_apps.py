"""What each app does when it is used, by taps on its elements."""

from __future__ import annotations

from typing import Any

import pytest
from phone_user import User, centre, has

from distrl.simulator.apps import APPS, EVERYDAY
from distrl.simulator.apps.webshop import goods, shop_state
from distrl.simulator.device import SimDevice
from distrl.simulator.names import Names
from distrl.simulator.phone import nodes
from distrl.simulator.phone.phone import Phone, new_state
from distrl.workers.devices.device import Key


@pytest.fixture(params=[1, 2, 3])  # every picker, both places of tabs, buttons and bars
def user(request: pytest.FixtureRequest) -> User:
    return User(new_state(request.param))


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


def test_typing_on_the_keyboard(user: User) -> None:
    user.tap("app_browser", "search_field", "key_shift")
    keys = ("t", "e", "a", "x", "backspace", "space", "symbols", "4", "symbols")
    user.tap(*(f"key_{key}" for key in keys))
    assert user.phone.state["fields"]["browser.query"] == "Tea 4"
    user.tap("key_backspace", "key_backspace", "key_enter")
    assert "How tea is made" in user.texts()
    assert user.phone.state["focus"] == ""


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
        (("2", "0", "0", "plus", "1", "0", "percent", "equals"), "200.1"),
        (("7", "divide", "0", "equals", "delete"), "0"),
        ((*"1234567890", "sign", "plus", "dot", "5", "equals"), "-1234567889"),
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


def test_airplane_mode_gives_back_what_it_took(user: User) -> None:
    user.tap("app_settings", "section_network", "switch_airplane")
    values = user.phone.state["apps"]["settings"]
    assert (values["wifi"], values["bluetooth"]) == (False, False)
    user.tap("switch_airplane")
    assert (values["wifi"], values["bluetooth"]) == (True, False)


@pytest.mark.parametrize(("to", "percent"), [("90", 90), ("10", 10), (-1, 0), (1, 100)])
def test_a_slider_is_dragged(to: str | int, percent: int) -> None:
    user = User(new_state(), "settings")
    user.tap("section_display")
    x, y = centre(user.phone, "slider_brightness_60")
    end = centre(user.phone, f"slider_brightness_{to}")[0] if isinstance(to, str) else x + 400 * to
    user.phone.swipe(x, y, end, y + 20)
    assert user.phone.state["apps"]["settings"]["brightness"] == percent


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


def shopper(key: str, *page: str | int, **data: Any) -> User:
    """A user of a phone whose browser shows a page of the web's shop `key`."""
    state = new_state()
    state["apps"]["browser"]["web"] = shop_state.web(("voltivo", "modavia"))
    state["front"] = "browser"
    shop_state.data(state, key).update(data)
    if page:
        state["stacks"]["browser"].append(["site", key, *page])
    return User(state)


def test_an_unknown_address() -> None:
    user = shopper("voltivo")
    user.tap("address_bar")
    user.type("voltiva.com\n")
    assert "This site can't be reached" in user.texts()


def test_a_cart_takes_twelve_things_and_five_pieces_of_each() -> None:
    state = shopper("pennybasket", "results", query="food").phone.state
    cart = shop_state.data(state, "pennybasket")["cart"]
    for product in goods.assortment("pennybasket")[:14]:
        shop_state.act(state, "pennybasket", "quick", (product.id,))
    assert len(cart) == shop_state.MAX_ITEMS
    for _ in range(9):
        shop_state.act(state, "pennybasket", "quick", (cart[0]["id"],))
    assert cart[0]["count"] == shop_state.MAX_COUNT


def test_what_is_sold_out_cannot_be_bought() -> None:
    product = next(item for item in goods.assortment("pennybasket") if not item.kind.sizes)
    user = shopper("pennybasket", "product", product.id, sold_out=[product.id])
    assert not has(user.phone, "add_to_cart")
    assert "Out of stock" in user.texts()
    user = shopper("pennybasket", "results", query=product.title, sold_out=[product.id])
    assert has(user.phone, f"product_{product.id}")
    assert not has(user.phone, f"quick_{product.id}")


def daily(app: str) -> User:
    """A user of an app of a phone in daily use."""
    state = new_state(installed=EVERYDAY)
    for each in APPS.values():
        each.fill(state, Names(2))
    return User(state, app)


def test_a_lap_is_a_part_of_a_running_time() -> None:
    user = daily("clock")
    user.tap("tab_stopwatch", "watch_lap", "watch_run", "watch_lap", "watch_run", "watch_lap")
    assert len(user.data["watch"]["laps"]) == 1


def test_every_lap_message_and_result_can_be_scrolled_to() -> None:
    laps, chat = daily("clock"), daily("messages")
    laps.data.update(tab=2, watch={"base_s": 0, "started": None, "laps": list(range(40))})
    chat.data["threads"][0]["lines"] = [["me", f"Line {number}"] for number in range(40)]
    chat.tap("thread_0")
    shop = shopper("pennybasket", "results", category="Food")
    found = shop_state.found(shop_state.data(shop.phone.state, "pennybasket"), "pennybasket")
    assert len(found) > 20
    for user, direction in ((laps, -1), (chat, 1), (shop, -1)):
        for _ in range(40):
            user.phone.swipe(180, 600, 180, 600 + 300 * direction)
    assert "Lap 1" in laps.texts()
    assert "Line 0" in chat.texts()
    assert has(shop.phone, f"product_{found[-1].id}")


@pytest.mark.parametrize("edition", [1, 2])
def test_a_long_press_deletes_an_alarm_but_not_on_its_switch(edition: int) -> None:
    user = daily("clock")
    user.data["edition"], was_on = edition, user.data["alarms"][0]["on"]
    user.phone.long_press(*centre(user.phone, "alarm_0_switch"))
    assert (len(user.data["alarms"]), user.data["alarms"][0]["on"]) == (3, not was_on)
    user.phone.long_press(*centre(user.phone, "alarm_0_time"))
    assert len(user.data["alarms"]) == 2


def test_a_toast_takes_no_touches() -> None:
    user = daily("contacts")
    user.phone.state["toast"] = "Saved"
    user.phone.tap(*centre(user.phone, "toast"))
    assert user.page() != ["root"]


def test_a_saved_phone_shows_the_same_screen() -> None:
    user, copy = daily("music"), Phone({})
    user.tap("tab_albums")
    copy.load(user.phone.dump())
    assert copy.tree() == user.phone.tree()


def test_the_boxes_count_their_mails() -> None:
    user = daily("mail")
    user.data["mails"][0]["box"] = "archive"
    user.tap("boxes")
    assert "1 mail" in user.texts()


def test_enter_closes_the_keyboard_of_a_label() -> None:
    user = daily("clock")
    user.tap("alarm_0", "alarm_label")
    user.type("Gym\n")
    assert user.phone.state["focus"] == ""
    user.tap("save")
    assert user.data["alarms"][0]["label"] == "Gym"


def test_home_shows_degrees_in_the_unit_of_the_weather() -> None:
    user = daily("weather")
    user.tap("places", "unit_f")
    user.phone.back()
    shown = nodes.find(user.phone.tree(), "degrees")
    user.phone.home()
    home = nodes.find(user.phone.tree(), "home_degrees")
    assert shown is not None
    assert home is not None
    assert home.text == shown.text


def test_a_call_shows_the_number_of_the_contact() -> None:
    user = daily("contacts")
    user.data["people"][0]["phone"] = "555 0999"
    user.tap("contact_0", "phone_card")
    assert "555 0999" in user.texts()


def test_the_menu_of_a_song_lies_over_its_album() -> None:
    user = daily("music")
    user.tap("tab_albums", "album_0")
    page = nodes.find(user.phone.tree(), "music_songs_list")
    user.phone.tap(324, page.y + 35 if page else 0)
    assert user.page()[0] == "menu"
    assert nodes.find(user.phone.tree(), "music_songs_list") == page
