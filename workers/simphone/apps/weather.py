"""Weather: today and the week for a few cities."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.workers.simphone import widgets
from distrl.workers.simphone.apps.base import App, Args
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.ui import STATUS_H, Ui, viewport

CITIES = ("Harbour", "Hillside", "Old Town")
_DAYS = ("Tue", "Wed", "Thu", "Fri", "Sat")
_SKIES = (
    ("wb_sunny", "Sunny", "#f9ab00"),
    ("cloud", "Cloudy", "#8aa0b8"),
    ("thunderstorm", "Storms", "#5c6bc0"),
)


def data() -> State:
    """The city shown."""
    return {"city": 0}


def forecast(city: int, day: int) -> tuple[str, str, str, int]:
    """Icon, words, colour and degrees for a city and a day."""
    sky = _SKIES[(city * 2 + day * day + day) % 3]
    return (*sky, 16 + (city * 5 + day * 3) % 11)


def view(ui: Ui) -> list[Node]:
    """The city's card and the days below it."""
    city = ui.state["apps"]["weather"]["city"]
    icon, words, color, degrees = forecast(city, 0)
    top, theme = STATUS_H + 8, ui.theme
    nodes: list[Node] = []
    for place, name in enumerate(CITIES):
        style = "filled" if place == city else "tonal"
        nodes.append(
            ui.button(
                16 + 112 * place, top, 104, name, ("weather", "city", place), f"city_{place}", style, 52, 15
            )
        )
    parts = (
        Node(40, top + 90, 110, 130, "widget.ImageView", icon=icon, icon_size=108, color=color),
        ui.text(160, top + 92, 160, 88, f"{degrees}°", 76, rid="degrees"),
        ui.text(164, top + 180, 160, 32, words, 20, theme.muted),
    )
    nodes.append(widgets.card(ui, top + 68, 176, parts, rid="today"))
    return [viewport(ui, "weather.days", top + 252, ui.bottom, lambda y: _days(ui, city, y)), *nodes]


def _days(ui: Ui, city: int, start: float) -> tuple[Sequence[Node], float]:
    nodes = []
    for place, day in enumerate(_DAYS):
        icon, words, color, degrees = forecast(city, place)
        y = start + 4 + 76 * place
        lead = Node(32, y, 40, 70, "widget.ImageView", icon=icon, icon_size=36, color=color)
        trail = ui.text(WIDTH - 92, y, 60, 70, f"{degrees}°", 22, align="r")
        nodes.append(
            widgets.row(
                ui, y, day, words, lead=lead, trail=trail, rid=f"day_{place}", fill=ui.theme.card, h=70
            )
        )
    return nodes, start + 4 + 76 * len(_DAYS)


def act(state: State, verb: str, args: Args) -> None:
    """Chooses a city."""
    state["apps"]["weather"]["city"] = int(args[0])


APP = App("weather", "Weather", "wb_sunny", "#2f9bff", data, view, act)
