"""What gets in the way of a task: when it comes, what it takes away from the app, and how it goes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from phone_user import centre, has, tap

from distrl.core.actions import Action, ActionKind
from distrl.simulator.apps import BUILT_IN
from distrl.simulator.phone import interruptions, nodes
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS
from distrl.simulator.tasks import play as tasks
from distrl.simulator.tasks.expert import Expert

MODAL = [kind for kind in interruptions.KINDS if kind != "message"]


def interrupted(kind: str, app: str = "settings", layout: int = 0, **changes: Any) -> Phone:
    """A phone with one interruption on the screen, over an app."""
    phone = Phone(new_state(layout, installed=(*BUILT_IN, "store")))
    st.show(phone.state, app)
    item = {"kind": kind, "look": 0, "which": 0, "due_s": 0, "since_s": 0, "app": app}
    phone.state["overlay"] = item | changes
    return phone


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("kind", MODAL)
def test_nothing_below_something_modal_can_be_used(kind: str, layout: int) -> None:
    """Wherever it is touched beside its own buttons, the app stays as it is; so with text and scrolling."""
    for look in range(interruptions.LOOKS):
        phone = interrupted(kind, layout=layout, look=look)
        own = {n.rid for n in nodes.walk(phone.tree()) if n.clickable and n.rid.startswith("overlay")}
        bars = {"nav_home", "nav_back"}
        for x in range(15, 360, 30):
            for y in range(10, 800, 20):
                node = nodes.hit(phone.tree(), x, y)
                assert node is None or node.rid in own | bars, node.rid
        before = phone.state["apps"], phone.state["scrolls"], phone.state["fields"]
        told = phone.dump()
        phone.swipe(180, 700, 180, 300)
        phone.type_text("hello")
        phone.enter()
        after = Phone({})
        after.load(told)
        assert (phone.state["apps"], phone.state["scrolls"], phone.state["fields"]) == before
        assert phone.state["front"] == after.state["front"] == "settings"


@pytest.mark.parametrize("kind", MODAL)
def test_the_back_key_is_a_no(kind: str) -> None:
    phone = interrupted(kind)
    if kind == "ad":
        phone.back()
        assert phone.state["overlay"], "it cannot be closed yet"
    phone.back()
    assert phone.state["overlay"] == {}
    assert phone.front == "settings"
    if kind == "permission":
        assert phone.state["permissions"] == {"settings": False}


def test_an_advertisement_can_be_closed_after_some_seconds_of_waiting() -> None:
    phone = interrupted("ad")
    assert tasks.dismiss(Expert(phone.state, phone.tree())) == Action(kind=ActionKind.WAIT)
    assert not has(phone, "overlay_close")
    while not has(phone, "overlay_close"):
        phone.wait()
    assert phone.state["elapsed_s"] == interruptions.AD_S
    tap(phone, "overlay_close")
    assert (phone.state["overlay"], phone.front) == ({}, "settings")


@pytest.mark.parametrize(
    ("kind", "front", "toast"),
    [
        ("ad", "store", ""),
        ("popup", "browser", ""),
        ("update", "launcher", "The system is up to date"),
        ("low_battery", "settings", "Battery saver is on"),
        ("rating", "settings", "Thank you for rating"),
        ("message", "messages", ""),
    ],
)
def test_yes_leads_away_or_changes_the_phone(kind: str, front: str, toast: str) -> None:
    phone = interrupted(kind)
    tap(phone, "heads_up" if kind == "message" else "overlay_accept")
    assert (phone.front, phone.state["toast"], phone.state["overlay"]) == (front, toast, {})
    assert phone.state["apps"]["settings"]["saver"] == (kind == "low_battery")


@pytest.mark.parametrize("yes", ["overlay_allow", "overlay_once"])
def test_a_permission_is_asked_for_when_an_app_is_first_used_and_never_again(yes: str) -> None:
    phone = Phone(new_state())
    phone.state["pending"] = interruptions.plan(["permission"], random.Random(0))
    tap(phone, "app_weather")
    assert phone.state["overlay"]["kind"] == "permission"
    tap(phone, yes)
    assert phone.state["permissions"] == {"weather": True}
    for app in ("app_weather", "app_settings"):
        phone.home()
        tap(phone, app)
        assert phone.state["overlay"] == {}, "it was answered, and the settings need no permission"
    phone.home()
    tap(phone, "app_clock")
    assert phone.state["overlay"]["app"] == "clock"


def test_a_message_can_be_thrown_away_and_goes_by_itself() -> None:
    phone = interrupted("message")
    x, y = centre(phone, "heads_up")
    phone.swipe(x - 80, y, x + 80, y)
    assert phone.state["overlay"] == {}
    phone = interrupted("message")
    tap(phone, "section_display")
    assert st.page(phone.state, "settings") == ["section", "display"], "what is beside it works"
    for _ in range(interruptions.MESSAGE_S // st.STEP_S):
        phone.wait()
    assert phone.state["overlay"] == {}
    assert phone.front == "settings"


def test_one_comes_at_a_time_and_the_next_not_at_once() -> None:
    phone = Phone(new_state())
    kinds = ["popup", "rating"]
    phone.state["pending"] = [{"kind": kind, "due_s": 0, "look": 0, "which": 0} for kind in kinds]
    assert phone.state["overlay"] == {}, "over an app only"
    tap(phone, "app_notes")
    assert phone.state["overlay"]["kind"] == "popup"
    tap(phone, "overlay_dismiss")
    assert phone.state["overlay"] == {}
    shown = []
    for _ in range(interruptions.QUIET_S // st.STEP_S):
        phone.enter()
        shown.append(phone.state["overlay"].get("kind"))
    assert shown == [None, "rating"]
