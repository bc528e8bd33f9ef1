"""Weather: today, the week and one day in a few cities of a list; tasks about the weather."""

from __future__ import annotations

import random
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import Family, May, Params, Template, everyday, held_out, product, where
from distrl.simulator.tasks.expert import BACK, Expert

CITIES = ("Harbour", "Hillside", "Old Town", "Lakeside", "Northgate", "Seaview", "Westwood", "Brookfield")
"""Every city there is a forecast for; the first three are shown on a new phone."""
MAX_SHOWN = 3
_DAYS = ("Tue", "Wed", "Thu", "Fri", "Sat")
DAY_NAMES = ("Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SKIES = (
    ("wb_sunny", "Sunny", "#f9ab00"),
    ("cloud", "Cloudy", "#8aa0b8"),
    ("thunderstorm", "Storms", "#5c6bc0"),
)


def data() -> State:
    """The cities shown, by their place in `CITIES`, and the one that is chosen."""
    return {"shown": [0, 1, 2], "city": 0, "unit": "C"}


def forecast(city: int, day: int) -> tuple[str, str, str, int]:
    """Icon, words, colour and degrees for a city and a day."""
    sky = _SKIES[(city * 2 + day * day + day) % 3]
    return (*sky, 16 + (city * 5 + day * 3) % 11)


def degrees(state: State, city: int, day: int) -> int:
    """A day's degrees in the unit that the app shows."""
    celsius = forecast(city, day)[3]
    return celsius if state["apps"]["weather"]["unit"] == "C" else round(celsius * 9 / 5 + 32)


def view(ui: Ui) -> list[Node]:
    """The chosen city, one of its days, or the list of cities."""
    top = st.page(ui.state, "weather")
    if top[0] == "day":
        return _day(ui, int(top[1]), int(top[2]))
    return _places(ui) if top[0] == "places" else _city(ui)


def _city(ui: Ui) -> list[Node]:
    weather = ui.state["apps"]["weather"]
    city = weather["city"]
    icon, words, color, _ = forecast(city, 0)
    color = ui.legible(color)
    top, theme = STATUS_H + 8, ui.theme
    nodes: list[Node] = []
    for place, index in enumerate(weather["shown"]):
        style = "filled" if index == city else "tonal"
        event = ("weather", "city", index)
        nodes.append(
            ui.button(12 + 98 * place, top, 94, CITIES[index], event, f"city_{index}", style, 52, 14)
        )
    nodes.append(
        ui.icon_button(WIDTH - 52, top + 2, "format_list_bulleted", "Cities", ("weather", "places"), "places")
    )
    warm = degrees(ui.state, city, 0)
    parts = (
        image(40, top + 90, 110, 130, icon, 108, color),
        ui.text(160, top + 92, 160, 88, f"{warm}°", 76, rid="degrees"),
        ui.text(164, top + 180, 160, 32, f"{words}, {CITIES[city]}", 16, theme.muted),
    )
    nodes.append(widgets.card(ui, top + 68, 176, parts, rid="today"))
    days = widgets.listing(ui, "weather.days", 76, _DAYS, partial(_day_row, ui), top=top + 252, head=4)
    return [days, *nodes]


def _day_row(ui: Ui, y: float, place: int, day: str) -> Node:
    city = ui.state["apps"]["weather"]["city"]
    icon, words, color, _ = forecast(city, place)
    lead = image(32, y, 40, 70, icon, 36, ui.legible(color))
    trail = ui.text(WIDTH - 92, y, 60, 70, f"{degrees(ui.state, city, place)}°", 22, align="r")
    tap = ("weather", "day", city, place)
    return widgets.row(ui, y, day, words, lead=lead, trail=trail, tap=tap, rid=f"day_{place}", h=70)


def _day(ui: Ui, city: int, day: int) -> list[Node]:
    icon, words, color, _ = forecast(city, day)
    color = ui.legible(color)
    warm, top, theme = degrees(ui.state, city, day), TOP, ui.theme
    parts = (
        image(40, top + 16, 110, 130, icon, 108, color),
        ui.text(160, top + 20, 160, 88, f"{warm}°", 76, rid="degrees"),
        ui.text(164, top + 104, 160, 32, words, 18, theme.muted),
    )
    facts = (
        ("water_drop", "Rain", f"{(city * 13 + day * 29) % 90} %"),
        ("air", "Wind", f"{5 + (city * 7 + day * 11) % 30} km/h"),
        ("wb_sunny", "Sunrise", f"6:{10 + (city * 3 + day) % 40} AM"),
        ("bedtime", "Sunset", f"8:{10 + (city * 5 + day) % 40} PM"),
    )
    nodes = [widgets.card(ui, top + 8, 150, parts, rid="day_card")]
    for place, (sign, label, value) in enumerate(facts):
        lead, y = (sign, theme.tint, theme.on_tint), top + 174 + 78 * place
        nodes.append(widgets.row(ui, y, label, value, lead=lead, rid=f"fact_{place}"))
    return [*nodes, widgets.app_bar(ui, f"{DAY_NAMES[day]}, {CITIES[city]}")]


def _places(ui: Ui) -> list[Node]:
    weather = ui.state["apps"]["weather"]

    def row(y: float, place: int, name: str) -> Node:
        on = place in weather["shown"]
        return widgets.tick_row(ui, y, name, ("weather", "show", place), f"place_{place}", on)

    chips = []
    for x, unit in ((WIDTH - 136, "C"), (WIDTH - 74, "F")):
        tap, rid = ("weather", "unit", unit), "unit_" + unit.lower()
        chips.append(widgets.chip(ui, x, STATUS_H + 8, 58, "°" + unit, tap, rid, weather["unit"] == unit))
    return [widgets.listing(ui, "weather.places", 70, CITIES, row), widgets.app_bar(ui, "Cities", chips)]


def act(state: State, verb: str, args: Args) -> None:
    """Chooses a city or a day, changes which cities are shown and the unit."""
    weather = state["apps"]["weather"]
    if verb == "city":
        weather["city"] = int(args[0])
    elif verb in ("day", "places"):
        st.push(state, "weather", verb, *args)
    elif verb == "unit":
        weather["unit"] = args[0]
    elif verb == "show":
        _show(state, weather, int(args[0]))


def _show(state: State, weather: State, city: int) -> None:
    shown = weather["shown"]
    if city not in shown:
        if len(shown) == MAX_SHOWN:
            state["toast"] = f"At most {MAX_SHOWN} cities: remove one first"
            return
        shown.append(city)
    elif len(shown) > 1:
        shown.remove(city)
        if weather["city"] == city:
            weather["city"] = shown[0]


def fill(state: State, rng: random.Random) -> None:
    """One of the cities is chosen."""
    state["apps"]["weather"]["city"] = rng.choice(state["apps"]["weather"]["shown"])


APP = App(
    name="weather",
    label="Weather",
    icon="wb_sunny",
    color="#2f9bff",
    data=data,
    view=view,
    act=act,
    keeps=("shown", "unit"),
    fill=fill,
    asks="location",
    permissions=("INTERNET", "ACCESS_COARSE_LOCATION"),
)


def _shown_start(state: State, params: Params, rng: random.Random) -> None:
    """The city is among those shown, and another is chosen."""
    _added_start(state, params, rng)
    weather = state["apps"]["weather"]
    weather["shown"] = rng.sample([CITIES.index(params["city"]), *weather["shown"]], 3)


def _city_check(state: State, params: Params) -> bool:
    chosen = CITIES[state["apps"]["weather"]["city"]] == params["city"]
    return bool(chosen and st.page(state, "weather")[0] == "root" and state["front"] == "weather")


def _city_step(expert: Expert, params: Params) -> Action:
    city = CITIES.index(params["city"])
    if expert.page("weather")[0] == "root":
        return expert.tap(f"city_{city}" if city in expert.state["apps"]["weather"]["shown"] else "places")
    return _listed(expert, city)


def _listed(expert: Expert, city: int) -> Action:
    """On the list of cities: has `city` shown, in another's place if need be."""
    shown = expert.state["apps"]["weather"]["shown"]
    if expert.page("weather")[0] != "places" or city in shown:
        return BACK
    return expert.tap(f"place_{min(shown) if len(shown) == 3 else city}")


def _day_check(state: State, params: Params) -> bool:
    wanted = ["day", CITIES.index(params["city"]), DAY_NAMES.index(params["day"])]
    return bool(st.page(state, "weather") == wanted and state["front"] == "weather")


def _day_step(expert: Expert, params: Params) -> Action:
    if expert.page("weather")[0] == "root" and _city_check(expert.state, params):
        return expert.tap(f"day_{DAY_NAMES.index(params['day'])}")
    return _city_step(expert, params)


def _added_start(state: State, params: Params, rng: random.Random) -> None:
    city = CITIES.index(params["city"])
    others = rng.sample([other for other in range(len(CITIES)) if other != city], 2)
    state["apps"]["weather"].update(shown=others, city=others[0])


def _added_check(state: State, params: Params) -> bool:
    return CITIES.index(params["city"]) in state["apps"]["weather"]["shown"]


def _added_step(expert: Expert, params: Params) -> Action:
    if expert.page("weather")[0] == "root":
        return expert.tap("places")
    return _listed(expert, CITIES.index(params["city"]))


_CITY = {"city": str}
_SHOWN = May("weather.shown", where(lambda city, params: CITIES[city] == params["city"]))
_task = partial(everyday, "weather")
TEMPLATES: dict[str, Template] = {
    "weather_city": _task(_CITY, _shown_start, _city_check, _city_step, {"city": CITIES}),
    "weather_day": _task(
        {**_CITY, "day": str}, _shown_start, _day_check, _day_step, {"city": CITIES, "day": DAY_NAMES}
    ),
    "weather_add": _task(_CITY, _added_start, _added_check, _added_step, {"city": CITIES}, (_SHOWN,)),
}
FAMILIES = (
    Family(
        "weather_city",
        product(city=CITIES),
        (
            "What is the weather in {city}?",
            "Show the weather for {city}",
            "How warm does it get in {city}?",
            "Is it raining in {city}? Look at the weather",
            "Open the weather app at {city}",
            "Tell me how sunny it is in {city}",
        ),
        ("How warm is it in {city}?", "Is it sunny in {city}? Look at the weather app"),
    ),
    Family(
        "weather_day",
        product(city=CITIES, day=DAY_NAMES),
        (
            "Show the weather on {day} in {city}",
            "What will the weather be in {city} on {day}?",
            "Is there rain in {city} on {day}?",
            "How warm will {city} be on {day}?",
            "Open the weather of {day} for {city}",
            "Will the wind be strong on {day} in {city}?",
        ),
        ("Will it rain in {city} on {day}?", "How strong is the wind in {city} on {day}?"),
    ),
    held_out(
        "weather_add",
        product(city=CITIES),
        "Add {city} to the cities of the weather app",
        "I want {city} among the cities in the weather app",
    ),
)
