"""Task templates: start states, parameters that are refused, and an expert that finds back from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distrl.core.actions import ActionKind
from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.simulator.tasks import play as tasks
from distrl.workers.envs.phone import PhoneEnv

EXAMPLES: dict[str, dict[str, Any]] = {
    "open_app": {"app": "notes", "start": "browser"},
    "toggle": {"setting": "night_light", "on": True},
    "alarm": {"hour": 12, "minute": 0},
    "contact": {"name": "Oscar", "book": ["Anna", "Maria", "Oscar", "Ben"]},
    "star": {"name": "Maria", "book": ["Anna", "Maria", "Oscar", "Ben"]},
    "shop_search": {"query": "purple headphones"},
}

SHOP: dict[str, Any] = {"layout": 0, "shop": "voltivo"}
HEADPHONES, LAPTOP = "Norvik Terra headphones", "Norvik Classic laptop"
CART: dict[str, Any] = {"level": 3, "cart": [{"product": HEADPHONES}]}


def make(template: str, layout: int, seed: int) -> Task:
    params = EXAMPLES[template] | {"layout": layout}
    return Task(id="t", suite="s", template=template, split="x", goal="g", params=params, seed=seed)


@pytest.mark.parametrize(
    ("template", "params", "said"),
    [
        ("fly", {}, "no task template 'fly'"),
        ("open_app", {"layout": 0}, "takes the params layout, app, start; got layout"),
        ("open_app", {"layout": 0, "app": "games", "start": "launcher"}, "'games' is not a valid app"),
        ("open_app", {"layout": 0, "app": "notes", "start": "games"}, "'games' is not a valid start"),
        ("alarm", {"layout": 0, "hour": 13, "minute": 0}, "13 is not a valid hour"),
        ("alarm", {"layout": 0, "hour": "7", "minute": 0}, "'7' is not a valid hour"),
        ("tap", {"layout": 0, "path": ["app_game"], "target": "start", "book": []}, "is not a valid path"),
        ("toggle", {"layout": 0, "setting": "wifi", "on": 1}, "1 is not a valid on"),
        ("setting_choice", {"layout": 0, "setting": "font", "option": "English"}, "Options: Default, Small"),
        ("calculate", {"layout": 0, "expression": "1 + x"}, "'1 \\+ x' is not a valid calculation"),
        ("alarm", {"layout": 0, "hour": 7, "minute": 0, "interruptions": ["rain"]}, r"popup.*got \['rain'\]"),
        ("alarm", {"layout": 0, "hour": 7, "minute": 0, "interruptions": "ad"}, "different ones of"),
        ("store_install", {"layout": 0, "app": "notes", "others": []}, "'notes' is not a valid app"),
        ("store_install", {"layout": 0, "app": "taskly", "others": ["notes"]}, "is not a valid others"),
        ("open_app", {"layout": -1, "app": "notes", "start": "launcher"}, "-1 is not a valid layout"),
        ("webshop1_browse", SHOP | {"level": 1, "category": "Shoes"}, "no category 'Shoes'"),
        ("webshop2_select", SHOP | {"level": 2, "query": "zzz", "rank": 1}, "not enough results for 'zzz'"),
        ("webshop3_save", SHOP | {"level": 3, "product": "Nothing"}, "'Nothing' is not a valid product"),
        ("webshop3_checkout", SHOP | {"level": 3, "cart": [{"product": "x"}], "delivery": "standard"}, "'x'"),
        ("webshop3_cart", SHOP | CART | {"product": LAPTOP, "count": 2}, "is solved at its start"),
        ("webshop3_cart", SHOP | CART | {"product": HEADPHONES, "count": 1}, "is solved at its start"),
        ("folder_new", {"layout": 0, "name": "Work"}, "'folder_new' is solved at its start"),
        ("playlist_new", {"layout": 0, "name": "Favourites"}, "is solved at its start"),
        ("launch", {"layout": 0, "app": "mail", "start": "mail"}, "is solved at its start"),
        ("tap", {"layout": 0, "path": [], "target": "app_mial", "book": ["Anna"]}, "is solved at its start"),
        ("store_install", {"layout": 0, "app": "taskly", "others": ["taskly"]}, "is solved at its start"),
        ("store_update_all", {"layout": 0, "others": []}, "is solved at its start"),
        ("webshop1_visit", SHOP | {"level": 2}, "2 is not a valid level"),
        ("calculate", {"layout": 0, "expression": "012 + 3"}, "'012 \\+ 3' is not a valid calculation"),
        ("note_add", {"layout": 0, "title": "a", "body": "two  spaces"}, "is not a valid body"),
        ("note_add", {"layout": 0, "title": "a", "body": "two\nlines"}, "is not a valid body"),
        ("note_add", {"layout": 0, "title": "a" * 201, "body": "b"}, "is not a valid title"),
    ],
)
def test_wrong_parameters_are_refused(template: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        tasks.start_state(template, params, 0)


def test_a_wrong_alarm_or_one_switched_off_is_no_success() -> None:
    env = PhoneEnv()
    env.reset(make("alarm", 0, 1))
    clock = env._backend.device.phone.state["apps"]["clock"]  # type: ignore[attr-defined]
    clock["alarms"] = [{"minutes": 725, "on": True}, {"minutes": 720, "on": False}]
    assert env.evaluate() == 0.0
    clock["alarms"][1]["on"] = True
    assert env.evaluate() == 1.0


def test_only_the_named_contact_counts_as_favourite_while_it_is_one() -> None:
    env = PhoneEnv()
    env.reset(make("star", 0, 1))
    people = env._backend.device.phone.state["apps"]["contacts"]["people"]  # type: ignore[attr-defined]
    people[0]["starred"] = True
    assert (people[0]["name"], env.evaluate()) == ("Anna", 0.0)
    star = env.expert_action()
    while env.evaluate() == 0.0:
        star = env.expert_action()
        env.step(star)
    assert [person["name"] for person in people if person["starred"]] == ["Anna", "Maria"]
    env.step(star)  # the same tap takes the star away
    assert env.evaluate() == 0.0


def moved(box: str) -> Callable[[Any], None]:
    """A wrong turn: the mail is in another box."""

    def turn(apps: Any) -> None:
        next(mail for mail in apps["mail"]["mails"] if mail["subject"] == "Gym")["box"] = box

    return turn


def add_a_city(apps: Any) -> None:
    """A wrong turn: the one place for another city is taken."""
    shown = apps["weather"]["shown"]
    shown.append(next(city for city in apps["weather"]["cities"] if city not in (*shown, "Harbour")))


@pytest.mark.parametrize(
    ("template", "params", "turn"),
    [
        ("contact_call", {"name": "Cher"}, dict),
        ("webshop3_checkout", SHOP | CART | {"delivery": "express"}, dict),
        ("mail_delete", {"subject": "Gym"}, moved("archive")),
        ("mail_archive", {"subject": "Gym"}, moved("bin")),
        ("weather_add", {"city": "Harbour"}, add_a_city),
    ],
)
def test_what_a_user_may_ask_for_is_to_be_done_and_can_be(
    template: str, params: dict[str, Any], turn: Callable[[Any], Any]
) -> None:
    env = PhoneEnv(width=72, height=160)
    params = {"layout": 0, **params}
    env.reset(Task(id="t", suite="s", template=template, split="x", goal="g", params=params, seed=2))
    turn(env._backend.device.phone.state["apps"])  # type: ignore[attr-defined]
    assert env.evaluate() == 0.0
    for _ in range(25):
        if (action := env.expert_action()).is_terminal:
            break
        env.step(action)
    assert env.evaluate() == 1.0


@pytest.mark.parametrize(
    ("template", "params", "kind"),
    [
        ("webshop3_checkout", {"delivery": "express"}, ActionKind.IMPOSSIBLE),
        ("webshop3_cart", {"product": LAPTOP, "count": 2}, ActionKind.IMPOSSIBLE),
        ("webshop3_cart", {"product": HEADPHONES, "count": 2}, ActionKind.COMPLETE),
    ],
)
def test_the_expert_does_not_look_for_a_product_that_the_goal_does_not_name(
    template: str, params: dict[str, Any], kind: ActionKind
) -> None:
    env = PhoneEnv(width=72, height=160)
    cart = [{"product": HEADPHONES}, {"product": LAPTOP}]
    params = {"layout": 0, **SHOP, "level": 3, "cart": cart, **params}
    env.reset(Task(id="t", suite="s", template=template, split="x", goal="g", params=params, seed=2))
    web = env._backend.device.phone.state["apps"]["browser"]["web"]  # type: ignore[attr-defined]
    del web["shops"]["voltivo"]["cart"][0]
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    assert action.kind is kind


def test_a_message_that_is_to_be_sent_is_not_in_the_chat_already() -> None:
    def chat(text: str) -> list[list[str]]:
        params = {"layout": 0, "name": "Anna Berg", "text": text}
        state = tasks.start_state("message_send", params, 2)
        threads = state["apps"]["messages"]["threads"]
        return next(thread["lines"] for thread in threads if thread["name"] == "Anna Berg")

    (_, mine), theirs = chat("Something else")
    assert [["me", mine], theirs] != chat(mine) != chat("Something else")
    assert ["me", mine] not in chat(mine)
