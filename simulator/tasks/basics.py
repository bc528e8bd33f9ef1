"""The quickstart's templates: open an app, settings, alarms, contacts, searching the shop."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.simulator.apps import BUILT_IN, catalog, contacts
from distrl.simulator.apps.settings_pages import TOGGLES
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, COMPLETE, ENTER, IMPOSSIBLE, Hand
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, fresh, is_open, open_it

SHUFFLED = ("wifi", "airplane", "bluetooth", "night_light", "rotate", "hotspot", "nfc", "cast", "dnd", "data")
"""Settings that are on or off at random when a toggle task starts."""


def _open_app_start(state: State, params: Params, rng: random.Random) -> None:
    st.show(state, params["start"])


def _toggle_start(state: State, params: Params, rng: random.Random) -> None:
    values = state["apps"]["settings"]
    for key in SHUFFLED:
        values[key] = rng.random() < 0.5
    values[params["setting"]] = not params["on"]


def _toggle_check(state: State, params: Params) -> bool:
    return bool(state["apps"]["settings"][params["setting"]] == params["on"])


def _toggle_expert(hand: Hand, params: Params) -> Action:
    state = hand.phone.state
    if _toggle_check(state, params):
        return COMPLETE
    section, _ = TOGGLES[params["setting"]]
    page = st.page(state, "settings")
    if (way := hand.open("settings")) is not None:
        return way
    if page[0] == "root":
        return hand.tap("section_" + section)
    return hand.tap("switch_" + params["setting"]) if page[1] == section else BACK


def _alarm_check(state: State, params: Params) -> bool:
    wanted = params["hour"] % 12 * 60 + params["minute"]
    return any(alarm["on"] and alarm["minutes"] % 720 == wanted for alarm in state["apps"]["clock"]["alarms"])


def _alarm_expert(hand: Hand, params: Params) -> Action:
    state = hand.phone.state
    if _alarm_check(state, params):
        return COMPLETE
    if (way := hand.open("clock")) is not None:
        return way
    clock = state["apps"]["clock"]
    if st.page(state, "clock")[0] != "picker":
        return hand.tap("tab_alarm" if clock["tab"] else "add_alarm")
    hour_right = clock["draft"] // 60 % 12 == params["hour"] % 12
    minute_right = clock["draft"] % 60 == params["minute"]
    both_shown = hand.phone.tree_has(f"hour_{params['hour']}") and hand.phone.tree_has("minute_0")
    if hour_right and minute_right:
        return hand.tap("save")
    if not hour_right and not both_shown and clock["phase"] == "minute":
        return hand.tap("show_hour")
    if not hour_right or (not both_shown and clock["phase"] == "hour"):
        return hand.tap(f"hour_{params['hour']}")
    return hand.tap(f"minute_{params['minute']}")


def _contact_start(state: State, params: Params, rng: random.Random) -> None:
    state["apps"]["contacts"]["people"] = [contacts.person(name) for name in sorted(params["book"])]


def _contact_check(state: State, params: Params) -> bool:
    page, people = st.page(state, "contacts"), state["apps"]["contacts"]["people"]
    shown = page[0] == "detail" and people[page[1]]["name"] == params["name"]
    return bool(shown and state["front"] == "contacts")


def _contact_expert(hand: Hand, params: Params) -> Action:
    state = hand.phone.state
    if _contact_check(state, params):
        return COMPLETE
    names = [entry["name"] for entry in state["apps"]["contacts"]["people"]]
    if params["name"] not in names:
        return IMPOSSIBLE
    if (way := hand.open("contacts")) is not None:
        return way
    root = st.page(state, "contacts")[0] == "root"
    return hand.tap(f"contact_{names.index(params['name'])}") if root else BACK


def _star_check(state: State, params: Params) -> bool:
    people = state["apps"]["contacts"]["people"]
    return any(entry["name"] == params["name"] and entry["starred"] for entry in people)


def _star_expert(hand: Hand, params: Params) -> Action:
    if _star_check(hand.phone.state, params):
        return COMPLETE
    way = _contact_expert(hand, params)
    return hand.tap("favourite") if way is COMPLETE else way


def _shop_check(state: State, params: Params) -> bool:
    shown = st.page(state, "browser")[0] == "shop_results" and state["front"] == "browser"
    asked = catalog.words(state["apps"]["browser"]["shop_query"])
    return bool(shown and asked == catalog.words(params["query"]))


def _shop_expert(hand: Hand, params: Params) -> Action:
    state = hand.phone.state
    if _shop_check(state, params):
        return COMPLETE
    if (way := hand.open("browser")) is not None:
        return way
    page = st.page(state, "browser")[0]
    if state["focus"] == "shop.query":
        typed = st.text(state, "shop.query")
        if not params["query"].startswith(typed):
            return BACK
        return ENTER if typed == params["query"] else Action.type_text(params["query"][len(typed) :])
    if state["focus"]:
        return BACK
    if page == "root":
        return hand.tap("site_market")
    return hand.tap("shop_search") if page in ("shop", "shop_results") else BACK


TEMPLATES: dict[str, Template] = {
    "open_app": Template(
        {"app": str, "start": str},
        _open_app_start,
        is_open,
        open_it,
        choices={"app": BUILT_IN, "start": ("launcher", *BUILT_IN)},
        shade=False,
        may=None,
    ),
    "toggle": Template(
        {"setting": str, "on": bool},
        _toggle_start,
        _toggle_check,
        _toggle_expert,
        choices={"setting": TOGGLES},
        shade=False,
        may=None,
    ),
    "alarm": Template(
        {"hour": int, "minute": int},
        fresh,
        _alarm_check,
        _alarm_expert,
        choices={"hour": range(1, 13), "minute": range(0, 60, 5)},
        shade=False,
        may=None,
    ),
    "contact": Template(
        {"name": str, "book": list}, _contact_start, _contact_check, _contact_expert, shade=False, may=None
    ),
    "star": Template(
        {"name": str, "book": list}, _contact_start, _star_check, _star_expert, shade=False, may=None
    ),
    "shop_search": Template({"query": str}, fresh, _shop_check, _shop_expert, shade=False, may=None),
}
