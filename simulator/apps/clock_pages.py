"""Pages that the clock's second edition adds: the world clock, and one alarm with its days and label."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

CITIES: dict[str, int] = {
    "Auckland": 10,
    "Berlin": 0,
    "Cairo": 1,
    "Chicago": -7,
    "Delhi": 4,
    "Dubai": 2,
    "Honolulu": -12,
    "Lima": -7,
    "London": -1,
    "Nairobi": 1,
    "New York": -6,
    "Santiago": -6,
    "Seoul": 7,
    "Singapore": 6,
    "Sydney": 8,
    "Tokyo": 7,
    "Toronto": -6,
    "Vancouver": -9,
}
"""Cities of the world clock and how many hours they are ahead of the phone."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def note(alarm: State) -> str:
    """What stands under an alarm's time: label, days, or that it is off."""
    days = alarm.get("days", [])
    when = "Every day" if len(days) == 7 else ", ".join(DAYS[day] for day in days) or "Once"
    if not alarm["on"]:
        when = "Off"
    label = alarm.get("label", "")
    return f"{label} · {when}" if label else when


def world(ui: Ui, top: float, bottom: float) -> list[Node]:
    """The chosen cities with their times, and a button to add one."""
    cities = ui.state["apps"]["clock"]["world"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not cities:
            return widgets.empty(ui, y + 96, "public", "No cities yet"), y + 240
        rows = []
        for place, city in enumerate(cities):
            row_y, hours = y + 8 + 84 * place, CITIES[city]
            ahead = "Same time" if hours == 0 else f"{abs(hours)} h {'ahead' if hours > 0 else 'behind'}"
            time = st.clock_text(ui.time + 60 * hours, period=True)
            shown = ui.text(WIDTH - 178, row_y, 108, 76, time, 22, align="r", rid=f"city_{place}_time")
            gone = ui.icon_button(
                WIDTH - 68,
                row_y + 14,
                "close",
                f"Remove {city}",
                ("clock", "remove", city),
                f"remove_{place}",
            )
            parts = [
                ui.text(36, row_y + 12, 130, 28, city, 18),
                ui.text(36, row_y + 40, 130, 24, ahead, 14, ui.theme.muted),
                shown,
                gone,
            ]
            rows.append(widgets.card(ui, row_y, 76, parts, rid=f"city_{place}"))
        return rows, y + 8 + 84 * len(cities) + 96

    add = widgets.fab(ui, "add", "Add city", ("clock", "cities"), "add_city", bottom)
    return [viewport(ui, "clock.world", top, bottom, build), add]


def cities(ui: Ui) -> list[Node]:
    """The cities that can be added, found by typing."""
    top = STATUS_H + widgets.BAR_H
    query = st.text(ui.state, "clock.search").strip()
    chosen = ui.state["apps"]["clock"]["world"]
    found = [city for city in CITIES if not query or widgets.asked(ui.state, "clock", city)]

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = []
        for place, city in enumerate(found):
            mark = None
            if city in chosen:
                mark = Node(WIDTH - 64, y + 60 * place, 32, 56, "widget.ImageView", icon="check")
            rows.append(
                widgets.row(
                    ui,
                    y + 60 * place,
                    city,
                    trail=mark,
                    tap=("clock", "choose", city),
                    rid="choose_" + city.lower().replace(" ", "_"),
                    h=56,
                )
            )
        return rows, y + 60 * len(found)

    return [
        viewport(ui, "clock.cities", top, ui.bottom, build),
        widgets.search_bar(ui, "clock", "Search city"),
    ]


def alarm(ui: Ui, index: int) -> list[Node]:
    """One alarm: its time, days, label, and a button that deletes it."""
    entry, theme = ui.state["apps"]["clock"]["alarms"][index], ui.theme
    top = STATUS_H + widgets.BAR_H
    days, label = entry.get("days", []), entry.get("label", "")
    time = Node(
        widgets.MARGIN,
        top + 8,
        WIDTH - 2 * widgets.MARGIN,
        112,
        "widget.TextView",
        "alarm_time",
        st.clock_text(entry["minutes"], period=True),
        desc="Change the time",
        tap=("clock", "retime", index),
        fill=theme.card,
        radius=24,
        size=48,
        align="c",
        color=theme.text,
    )
    chips = []
    for place, day in enumerate(DAYS):
        line, column = divmod(place, 4)
        chips.append(
            widgets.chip(
                ui,
                widgets.MARGIN + 83 * column,
                top + 168 + 56 * line,
                78,
                day,
                ("clock", "day", index, place),
                "day_" + day.lower(),
                place in days,
            )
        )
    lead = ui.disc(widgets.MARGIN + 14, top + 302, 44, "label", theme.tint, theme.on_tint)
    edit = widgets.row(
        ui,
        top + 288,
        "Label",
        label or "None",
        lead=lead,
        tap=("clock", "relabel", index),
        rid="alarm_label",
        fill=theme.card,
    )
    lead = ui.disc(widgets.MARGIN + 14, top + 382, 44, "delete", "#d93025")
    gone = widgets.row(
        ui,
        top + 368,
        "Delete alarm",
        lead=lead,
        tap=("clock", "delete", index),
        rid="delete_alarm",
        fill=theme.card,
    )
    repeat = ui.text(24, top + 132, 200, 28, "Repeat", 15, theme.muted)
    return [time, repeat, *chips, edit, gone, widgets.app_bar(ui, "Alarm")]


def label_form(ui: Ui, index: int) -> list[Node]:
    """The alarm's label, to be typed."""
    fields = widgets.clearable(ui, STATUS_H + widgets.BAR_H + 16, "clock", "clock.label", "Label", "label")
    return widgets.form(ui, "Label", fields, ("clock", "save_label", index))


def act(state: State, verb: str, index: int, argument: str | int) -> None:
    """The world clock's events and those of one alarm's page."""
    clock = state["apps"]["clock"]
    if verb == "cities":
        state["fields"].pop("clock.search", None)
        st.push(state, "clock", "cities")
    elif verb == "choose":
        if argument not in clock["world"]:
            clock["world"].append(argument)
        st.reset(state, "clock")
    elif verb == "remove":
        clock["world"].remove(argument)
    elif verb == "edit":
        st.push(state, "clock", "alarm", index)
    elif verb == "day":
        entry = clock["alarms"][index]
        entry["days"] = sorted(set(entry.get("days", [])) ^ {int(argument)})
    elif verb == "relabel":
        st.push(state, "clock", "label", index)
        state["fields"]["clock.label"] = clock["alarms"][index].get("label", "")
        st.focus(state, "clock.label")
    elif verb == "save_label":
        clock["alarms"][index]["label"] = st.take(state, "clock.label")
        st.pop(state, "clock")
    elif verb == "clear":
        widgets.clear(state, str(argument))
