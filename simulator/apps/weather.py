"""Weather: today, the week and one day in a few cities of a list."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

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
    """Buttons for the cities, today's card and the days below it."""
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
        Node(40, top + 90, 110, 130, "widget.ImageView", icon=icon, icon_size=108, color=color),
        ui.text(160, top + 92, 160, 88, f"{warm}°", 76, rid="degrees"),
        ui.text(164, top + 180, 160, 32, f"{words}, {CITIES[city]}", 16, theme.muted),
    )
    nodes.append(widgets.card(ui, top + 68, 176, parts, rid="today"))
    return [viewport(ui, "weather.days", top + 252, ui.bottom, lambda y: _days(ui, city, y)), *nodes]


def _days(ui: Ui, city: int, start: float) -> tuple[Sequence[Node], float]:
    nodes = []
    for place, day in enumerate(_DAYS):
        icon, words, color, _ = forecast(city, place)
        y = start + 4 + 76 * place
        lead = Node(32, y, 40, 70, "widget.ImageView", icon=icon, icon_size=36, color=ui.legible(color))
        trail = ui.text(WIDTH - 92, y, 60, 70, f"{degrees(ui.state, city, place)}°", 22, align="r")
        event = ("weather", "day", city, place)
        nodes.append(
            widgets.row(
                ui,
                y,
                day,
                words,
                lead=lead,
                trail=trail,
                tap=event,
                rid=f"day_{place}",
                fill=ui.theme.card,
                h=70,
            )
        )
    return nodes, start + 4 + 76 * len(_DAYS)


def _day(ui: Ui, city: int, day: int) -> list[Node]:
    """A day's facts."""
    icon, words, color, _ = forecast(city, day)
    color = ui.legible(color)
    warm, top, theme = degrees(ui.state, city, day), STATUS_H + widgets.BAR_H, ui.theme
    parts = (
        Node(40, top + 16, 110, 130, "widget.ImageView", icon=icon, icon_size=108, color=color),
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
        y = top + 174 + 78 * place
        lead = ui.disc(widgets.MARGIN + 14, y + 14, 44, sign, theme.tint, theme.on_tint)
        nodes.append(widgets.row(ui, y, label, value, lead=lead, rid=f"fact_{place}", fill=theme.card))
    return [*nodes, widgets.app_bar(ui, f"{DAY_NAMES[day]}, {CITIES[city]}")]


def _places(ui: Ui) -> list[Node]:
    """Every city, with a tick on those shown, and the unit."""
    weather, top = ui.state["apps"]["weather"], STATUS_H + widgets.BAR_H

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = []
        for place, name in enumerate(CITIES):
            tap, on = ("weather", "show", place), place in weather["shown"]
            rows.append(widgets.tick_row(ui, y + 70 * place, name, tap, f"place_{place}", on))
        return rows, y + 70 * len(CITIES)

    units = [("C", "°C"), ("F", "°F")]
    chips = [
        widgets.chip(
            ui,
            WIDTH - 136 + 62 * place,
            STATUS_H + 8,
            58,
            label,
            ("weather", "unit", unit),
            "unit_" + unit.lower(),
            weather["unit"] == unit,
        )
        for place, (unit, label) in enumerate(units)
    ]
    return [viewport(ui, "weather.places", top, ui.bottom, build), widgets.app_bar(ui, "Cities", chips)]


def act(state: State, verb: str, args: Args) -> None:
    """Chooses a city or a day, changes which cities are shown and the unit."""
    weather = state["apps"]["weather"]
    if verb == "city":
        weather["city"] = int(args[0])
    elif verb == "day":
        st.push(state, "weather", "day", *args)
    elif verb == "places":
        st.push(state, "weather", "places")
    elif verb == "unit":
        weather["unit"] = args[0]
    elif verb == "show":
        _show(state, weather, int(args[0]))


def _show(state: State, weather: State, city: int) -> None:
    """Adds a city to those shown, or takes it away; one stays."""
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


APP = App("weather", "Weather", "wb_sunny", "#2f9bff", data, view, act, keeps=("shown", "unit"))
