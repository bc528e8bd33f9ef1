"""Weather: today, the week and one day in a few cities of a list; tasks about the weather."""

from __future__ import annotations

from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import Family, May, Params, Template, everyday, only
from distrl.simulator.tasks.expert import BACK, Expert

CITIES = ("Harbour", "Hillside", "Old Town", "Lakeside", "Northgate", "Seaview", "Westwood", "Brookfield")
"""The cities of a new phone, of which the first three are shown."""
MAX_SHOWN = 3
DAY_NAMES = ("Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SKIES = (
    ("wb_sunny", "Sunny", "#f9ab00"),
    ("cloud", "Cloudy", "#8aa0b8"),
    ("thunderstorm", "Storms", "#5c6bc0"),
)


def data() -> State:
    """Every city there is a forecast for, those that are shown, and the place of the one that is chosen."""
    return {"cities": list(CITIES), "shown": list(CITIES[:3]), "city": 0, "unit": "C"}


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
    for place, name in enumerate(weather["shown"]):
        index = weather["cities"].index(name)
        style = "filled" if index == city else "tonal"
        event = ("weather", "city", index)
        nodes.append(ui.button(12 + 98 * place, top, 94, name, event, f"city_{index}", style, 52, 14))
    nodes.append(
        ui.icon_button(WIDTH - 52, top + 2, "format_list_bulleted", "Cities", ("weather", "places"), "places")
    )
    warm = degrees(ui.state, city, 0)
    parts = (
        image(40, top + 90, 110, 130, icon, 108, color),
        ui.text(160, top + 92, 160, 88, f"{warm}°", 76, rid="degrees"),
        ui.text(164, top + 180, 160, 32, f"{words}, {weather['cities'][city]}", 16, theme.muted),
    )
    nodes.append(widgets.card(ui, top + 68, 176, parts, rid="today"))
    days = widgets.listing(ui, "weather.days", 76, DAY_NAMES, partial(_day_row, ui), top=top + 252, head=4)
    return [days, *nodes]


def _day_row(ui: Ui, y: float, place: int, day: str) -> Node:
    city = ui.state["apps"]["weather"]["city"]
    icon, words, color, _ = forecast(city, place)
    lead = image(32, y, 40, 70, icon, 36, ui.legible(color))
    trail = ui.text(WIDTH - 92, y, 60, 70, f"{degrees(ui.state, city, place)}°", 22, align="r")
    tap = ("weather", "day", city, place)
    return widgets.row(ui, y, day[:3], words, lead=lead, trail=trail, tap=tap, rid=f"day_{place}", h=70)


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
    return [*nodes, widgets.app_bar(ui, f"{DAY_NAMES[day]}, {ui.state['apps']['weather']['cities'][city]}")]


def _places(ui: Ui) -> list[Node]:
    weather = ui.state["apps"]["weather"]

    def row(y: float, place: int, name: str) -> Node:
        on = name in weather["shown"]
        return widgets.tick_row(ui, y, name, ("weather", "show", place), f"place_{place}", on)

    chips = []
    for x, unit in ((WIDTH - 136, "C"), (WIDTH - 74, "F")):
        tap, rid = ("weather", "unit", unit), "unit_" + unit.lower()
        chips.append(widgets.chip(ui, x, STATUS_H + 8, 58, "°" + unit, tap, rid, weather["unit"] == unit))
    return [
        widgets.listing(ui, "weather.places", 70, weather["cities"], row),
        widgets.app_bar(ui, "Cities", chips),
    ]


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
        _show(state, weather, weather["cities"][int(args[0])])


def _show(state: State, weather: State, city: str) -> None:
    shown = weather["shown"]
    if city not in shown:
        if len(shown) == MAX_SHOWN:
            state["toast"] = f"At most {MAX_SHOWN} cities: remove one first"
            return
        shown.append(city)
    elif len(shown) > 1:
        shown.remove(city)
        if weather["cities"][weather["city"]] == city:
            weather["city"] = weather["cities"].index(shown[0])


def fill(state: State, rng: Names) -> None:
    """Eight cities, of which three are shown and one is chosen."""
    cities = rng.names("town", 8)
    state["apps"]["weather"].update(cities=cities, shown=cities[:3], city=rng.randrange(3))


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


def _shown_start(state: State, params: Params, rng: Names) -> None:
    """The city is among those shown, and another is chosen."""
    _added_start(state, params, rng)
    weather = state["apps"]["weather"]
    weather["shown"] = rng.sample([params["city"], *weather["shown"]], 3)


def _city_check(state: State, params: Params) -> bool:
    """Whether the city's weather is in front, or today's page, which alone has rain and wind."""
    page, place = st.page(state, "weather"), _place(state, params)
    is_shown = page == ["day", place, 0] or (page[0] == "root" and state["apps"]["weather"]["city"] == place)
    return bool(is_shown and state["front"] == "weather")


def _city_step(expert: Expert, params: Params) -> Action:
    city = _place(expert.state, params)
    if expert.page("weather")[0] == "root":
        is_shown = params["city"] in expert.state["apps"]["weather"]["shown"]
        return expert.tap(f"city_{city}" if is_shown else "places")
    return _listed(expert, params)


def _listed(expert: Expert, params: Params) -> Action:
    """On the list of cities: has the city shown, if need be in place of one added since the start."""
    weather = expert.state["apps"]["weather"]
    if expert.page("weather")[0] != "places" or params["city"] in weather["shown"]:
        return BACK
    tapped = params["city"]
    if len(weather["shown"]) == MAX_SHOWN:  # at the start at most two others were shown
        tapped = next(city for city in weather["shown"] if city not in expert.state["kept"]["weather.shown"])
    return expert.tap(f"place_{weather['cities'].index(tapped)}")


def _day_check(state: State, params: Params) -> bool:
    wanted = ["day", _place(state, params), DAY_NAMES.index(params["day"])]
    return bool(st.page(state, "weather") == wanted and state["front"] == "weather")


def _day_step(expert: Expert, params: Params) -> Action:
    if expert.page("weather")[0] == "root" and _city_check(expert.state, params):
        return expert.tap(f"day_{DAY_NAMES.index(params['day'])}")
    return _city_step(expert, params)


def _added_start(state: State, params: Params, rng: Names) -> None:
    cities = [params["city"], *rng.names("town", 7, without=(params["city"],))]
    others = cities[1:3]
    rng.shuffle(cities)
    state["apps"]["weather"].update(cities=cities, shown=others, city=cities.index(others[0]))


def _place(state: State, params: Params) -> int:
    """The place of the task's city."""
    place: int = state["apps"]["weather"]["cities"].index(params["city"])
    return place


def _added_check(state: State, params: Params) -> bool:
    return params["city"] in state["apps"]["weather"]["shown"]


def _added_step(expert: Expert, params: Params) -> Action:
    if expert.page("weather")[0] == "root":
        return expert.tap("places")
    return _listed(expert, params)


_CITY = {"city": str}
_SHOWN = May("weather.shown", only("", "city"))
_task = partial(everyday, "weather")
TEMPLATES: dict[str, Template] = {
    "weather_city": _task(_CITY, _shown_start, _city_check, _city_step),
    "weather_day": _task({**_CITY, "day": str}, _shown_start, _day_check, _day_step, {"day": DAY_NAMES}),
    "weather_add": _task(_CITY, _added_start, _added_check, _added_step, may=(_SHOWN,)),
}
FAMILIES = (
    Family("weather_city", {"city": "town"}),
    Family("weather_day", {"city": "town", "day": DAY_NAMES}),
    Family("weather_add", {"city": "town"}),
)
