"""What the apps of a phone in daily use do when they are used, by taps on their elements."""

from __future__ import annotations

import pytest
from phone_user import User

from distrl.simulator.phone import nodes
from distrl.simulator.tasks import play as tasks


def at(layout: int, app: str) -> User:
    """A user of a phone in daily use, in an app."""
    params = {"layout": layout, "app": app, "start": "launcher"}
    return User(tasks.start_state("launch", params, 7), app)


@pytest.fixture(params=[1, 2, 3])  # every picker, both places of tabs, buttons and bars
def layout(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def test_an_alarm_gets_days_a_label_and_another_time(layout: int) -> None:
    user = at(layout, "clock")
    before = [alarm["minutes"] for alarm in user.data["alarms"]]
    user.tap("alarm_0", "day_mon", "day_fri", "day_mon", "day_sun", "alarm_label")
    user.type("Swim")
    user.tap("save")
    assert user.data["alarms"][0]["days"] == [4, 6]
    user.tap("alarm_time", "save")
    assert [alarm["minutes"] for alarm in user.data["alarms"]] == before
    assert any(text.startswith("Swim · ") for text in user.texts())
    user.tap("alarm_0", "delete_alarm")
    assert [alarm["minutes"] for alarm in user.data["alarms"]] == before[1:]


def test_the_world_clock_and_laps(layout: int) -> None:
    user = at(layout, "clock")
    user.data["world"] = []
    user.tap("tab_world", "add_city", "search_field")
    user.type("tok")
    user.tap("choose_tokyo")
    assert user.data["world"] == ["Tokyo"]
    user.tap("remove_0", "tab_stopwatch", "watch_run", "watch_lap", "watch_lap")
    assert user.data["world"] == []
    assert user.data["watch"]["laps"] == [2, 4]
    user.tap("tab_timer", "timer_10", "timer_more", "timer_run")
    assert user.data["timer"]["set_s"] == 660


def test_an_event_is_added_changed_found_and_deleted(layout: int) -> None:
    user = at(layout, "calendar")
    user.data["events"] = []
    user.tap("day_17", "add_event")
    user.type("Boat trip")
    user.tap("form_day_more", "form_time", "at_930", "length_120", "save")
    assert user.data["events"] == [{"title": "Boat trip", "day": "2025-06-18", "minutes": 930, "length": 120}]
    assert "3:30 – 5:30 PM" in user.texts()
    user.tap("search")
    user.type("boat")
    user.tap("event_0", "edit", "form_day_less", "save", "event_0", "delete", "dismiss")
    assert user.data["events"][0]["day"] == "2025-06-17"
    user.tap("delete", "confirm")
    assert user.data["events"] == []


def test_months_turn_over_the_end_of_the_year() -> None:
    user = at(0, "calendar")
    user.tap(*["next"] * 7)
    assert "January 2026" in user.texts()
    user.tap("day_31", "previous")
    assert "December 2025" in user.texts()
    assert user.data["day"] == "2026-01-31"


def test_a_setting_two_pages_down(layout: int) -> None:
    user = at(layout, "settings")
    user.tap("section_about", "section_language", "choice_language", "option_1")
    assert user.data["language"] == "Deutsch"
    user.phone.back()
    user.phone.back()
    assert user.page() == ["section", "about"]


def test_a_contact_is_called_changed_and_deleted_after_asking(layout: int) -> None:
    user = at(layout, "contacts")
    name = user.data["people"][1]["name"]
    user.tap("contact_1", "phone_card", "end_call", "edit", "clear_phone")
    user.type("555 0111")
    user.tap("save")
    assert user.data["calls"][0] == [name, "out"]
    assert user.data["people"][1]["phone"] == "555 0111"
    user.tap("delete", "confirm")
    assert name not in [entry["name"] for entry in user.data["people"]]


def test_contacts_are_searched_as_one_types() -> None:
    user = at(0, "contacts")
    user.tap("search")
    assert user.data["people"][0]["name"] in user.texts()
    assert "Nobody found" not in user.texts()
    user.type("zzz")
    assert "Nobody found" in user.texts()
    assert user.data["people"][0]["name"] not in user.texts()


def test_a_chat_is_pinned_and_deleted_after_asking(layout: int) -> None:
    user = at(layout, "messages")
    name = user.data["threads"][2]["name"]
    user.tap("thread_2", "more", "menu_pin", "up")
    assert user.data["threads"][0]["name"] == name
    user.tap("thread_0", "more", "menu_delete", "confirm")
    assert name not in [entry["name"] for entry in user.data["threads"]]


def test_a_note_is_pinned_changed_and_found(layout: int) -> None:
    user = at(layout, "notes")
    title = user.data["notes"][2]["title"]
    user.tap("note_2", "pin", "edit", "clear_body")
    user.type("New words")
    user.tap("save", "up", "search")
    user.type("new words")
    user.tap("note_2")
    assert user.data["notes"][2] == {"title": title, "body": "New words", "pinned": True}
    assert title in user.texts()


def test_a_checklist_is_ticked_and_grows() -> None:
    user = at(1, "notes")
    user.data["notes"].insert(0, {"title": "List", "items": [["Tea", False]]})
    user.phone._tree = None
    user.tap("note_0", "item_0", "item_field")
    user.type("Milk\n")
    assert user.data["notes"][0]["items"] == [["Tea", True], ["Milk", False]]


def test_the_weather_shows_three_cities_at_most(layout: int) -> None:
    user = at(layout, "weather")
    user.tap("places", "place_5")
    assert user.data["shown"] == [0, 1, 2]
    user.tap("place_0", "place_5", "unit_f", "up", "city_5", "day_2")
    assert user.data["shown"] == [1, 2, 5]
    assert "Thursday, Seaview" in user.texts()


def test_files_are_sorted_renamed_moved_and_deleted(layout: int) -> None:
    user = at(layout, "files")
    user.tap("new_folder")
    user.type("Archive")
    user.tap("save")
    assert user.data["folders"] == ["Archive", "Documents", "Downloads", "Pictures", "Work"]
    user.tap("folder_1", "sort", "order_size")
    shown = [text for text in user.texts() if text.endswith((".pdf", ".txt"))]
    assert shown == ["lease.pdf", "recipe.txt"]
    user.tap("file_1", "rename", "clear_name")
    user.type("soup.txt")
    user.tap("save", "move", "folder_0")
    assert user.data["files"][1] == {"name": "soup.txt", "folder": "Archive", "size": 4, "day": 3}
    user.tap("delete", "confirm")
    assert "No files here" in user.texts()


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


def test_a_mail_is_answered_starred_and_archived(layout: int) -> None:
    user = at(layout, "mail")
    user.tap("mail_0", "star", "reply")
    user.type("Yes, gladly")
    user.tap("save", "archive", "boxes", "box_sent")
    assert "Re: Weekend plans" in user.texts()
    assert [entry["box"] for entry in user.data["mails"]] == ["archive", "inbox", "sent"]
    assert user.data["mails"][0]["star"]
    assert user.data["mails"][2]["body"] == "Yes, gladly"


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
    assert not user.phone.tree_has("clear_to")
    user.type("Anna")
    filled = node(user, "mail_to")
    assert filled.x + filled.w <= node(user, "clear_to").x


def test_what_dims_an_app_dims_the_navigation_bar_too(layout: int) -> None:
    user = at(layout, "files")
    user.tap("folder_0")
    assert node(user, "nav_bar").fill
    user.tap("sort")
    assert not node(user, "nav_bar").fill
