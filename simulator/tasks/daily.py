"""Tasks of the small apps: weather, calculator, web search, and opening any app."""

from __future__ import annotations

import random
import re

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps import catalog
from distrl.simulator.apps.calculator import data as calculator_data
from distrl.simulator.apps.weather import CITIES, DAY_NAMES
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, ENTER, Hand
from distrl.simulator.phone.keeping import May, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, fresh, is_open, open_it
from distrl.simulator.tasks.moves import EVERYDAY, everyday, lived_in, page, write

_KEYS = {"+": "plus", "-": "minus", "×": "times", "÷": "divide", ".": "dot"}


def _weather(state: State) -> State:
    weather: State = state["apps"]["weather"]
    return weather


def _shown_start(state: State, params: Params, rng: random.Random) -> None:
    """The city is among those shown, and another is chosen."""
    city = CITIES.index(params["city"])
    others = rng.sample([other for other in range(len(CITIES)) if other != city], 2)
    _weather(state).update(shown=rng.sample([city, *others], 3), city=others[0])


def _city_check(state: State, params: Params) -> bool:
    chosen = CITIES[_weather(state)["city"]] == params["city"]
    return bool(chosen and st.page(state, "weather")[0] == "root" and state["front"] == "weather")


def _city_way(hand: Hand, params: Params) -> Action:
    city = CITIES.index(params["city"])
    if page(hand, "weather")[0] == "root":
        return hand.tap(f"city_{city}" if city in _weather(hand.phone.state)["shown"] else "places")
    return _listed(hand, city)


def _listed(hand: Hand, city: int) -> Action:
    """On the list of cities: has `city` shown, in another's place if need be."""
    shown = _weather(hand.phone.state)["shown"]
    if page(hand, "weather")[0] != "places" or city in shown:
        return BACK
    return hand.tap(f"place_{min(shown) if len(shown) == 3 else city}")


def _day_check(state: State, params: Params) -> bool:
    wanted = ["day", CITIES.index(params["city"]), DAY_NAMES.index(params["day"])]
    return bool(st.page(state, "weather") == wanted and state["front"] == "weather")


def _day_way(hand: Hand, params: Params) -> Action:
    if page(hand, "weather")[0] == "root" and _city_check(hand.phone.state, params):
        return hand.tap(f"day_{DAY_NAMES.index(params['day'])}")
    return _city_way(hand, params)


def _added_start(state: State, params: Params, rng: random.Random) -> None:
    city = CITIES.index(params["city"])
    others = rng.sample([other for other in range(len(CITIES)) if other != city], 2)
    _weather(state).update(shown=others, city=others[0])


def _added_check(state: State, params: Params) -> bool:
    return CITIES.index(params["city"]) in _weather(state)["shown"]


def _added_way(hand: Hand, params: Params) -> Action:
    if page(hand, "weather")[0] == "root":
        return hand.tap("places")
    return _listed(hand, CITIES.index(params["city"]))


def _sum_start(state: State, params: Params, rng: random.Random) -> None:
    if not re.fullmatch(r"\d{1,6} [-+×÷] \d{1,6}", params["expression"]):
        rule = f"{params['expression']!r} is nothing to calculate."
        raise TaskError(rule, "Write two whole numbers and one of + - × ÷ between them, as '12 + 30'.")


def _sum_check(state: State, params: Params) -> bool:
    """The calculation was made; the factors of a product, and the terms of a sum, in any order."""
    left, op, right = params["expression"].split()
    asked = {(left, op, right), (right, op, left) if op in "+×" else (left, op, right)}
    done = tuple(state["apps"]["calculator"]["done"].split())
    return done in asked and bool(state["front"] == "calculator")


def _sum_way(hand: Hand, params: Params) -> Action:
    calc = hand.phone.state["apps"]["calculator"]
    left, op, right = params["expression"].split()
    if calc["op"]:
        typed = "" if calc["fresh"] else calc["shown"]
        if calc["op"] != op or calc["left"] != left or not right.startswith(typed):
            return hand.tap("calc_clear")
        return hand.tap("calc_equals" if typed == right else "calc_" + right[len(typed)])
    typed = "" if calc["fresh"] else calc["shown"]
    if calc == calculator_data() or (typed and left.startswith(typed)):
        return hand.tap("calc_" + (_KEYS[op] if typed == left else left[len(typed)]))
    return hand.tap("calc_clear")


def _web_check(state: State, params: Params) -> bool:
    at = st.page(state, "browser")
    asked = at[0] == "results" and catalog.words(str(at[1])) == catalog.words(params["query"])
    return bool(asked and state["front"] == "browser")


def _web_way(hand: Hand, params: Params) -> Action:
    state = hand.phone.state
    if page(hand, "browser")[0] not in ("root", "results") or hand.phone.tree_has("shop_field"):
        return BACK
    typed = write(hand, "search_field", "browser.query", params["query"])
    if typed is None and state["focus"] != "browser.query":
        return hand.tap("search_field")
    return typed or ENTER


def _launch_start(state: State, params: Params, rng: random.Random) -> None:
    lived_in(state, rng)
    st.show(state, params["start"])


_CITY = {"city": str}
_SHOWN = May("weather.shown", where(lambda city, params: CITIES[city] == params["city"]))

TEMPLATES: dict[str, Template] = {
    "weather_city": everyday("weather", _CITY, _shown_start, _city_check, _city_way, {"city": CITIES}),
    "weather_day": everyday(
        "weather",
        {**_CITY, "day": str},
        _shown_start,
        _day_check,
        _day_way,
        {"city": CITIES, "day": DAY_NAMES},
    ),
    "weather_add": everyday(
        "weather", _CITY, _added_start, _added_check, _added_way, {"city": CITIES}, (_SHOWN,)
    ),
    "calculate": everyday("calculator", {"expression": str}, _sum_start, _sum_check, _sum_way),
    "web_search": everyday("browser", {"query": str}, fresh, _web_check, _web_way),
    "launch": Template(
        {"app": str, "start": str},
        _launch_start,
        is_open,
        open_it,
        {"app": EVERYDAY, "start": ("launcher", *EVERYDAY)},
        EVERYDAY,
    ),
}
