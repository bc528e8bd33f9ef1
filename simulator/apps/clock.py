"""The clock: alarms and their time picker, timer, stopwatch; its second edition also has a world clock."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node, button, group, image, text_box
from distrl.simulator.phone.state import MAX_ITEMS, State
from distrl.simulator.phone.ui import Ui
from distrl.simulator.phone.widgets import TOP

_TABS = (
    (0, "alarm", "Alarm", 1),
    (3, "public", "World", 2),
    (1, "hourglass_bottom", "Timer", 1),
    (2, "timer", "Stopwatch", 1),
)
"""Number, icon and label of each tab, and the edition that it is new in."""


def data() -> State:
    """No alarms; timer and stopwatch at rest. `draft` is the picker's time in minutes after midnight."""
    return {"edition": 1, "tab": 0, "alarms": [], "draft": 0, "phase": "hour", "world": [], **_timers()}


def view(ui: Ui) -> list[Node]:
    """The picker, another page, or the chosen tab."""
    top = st.page(ui.state, "clock")
    if top[0] == "picker":
        return _picker(ui)
    if top[0] == "cities":
        return cities(ui)
    if top[0] != "root":
        return (alarm if top[0] == "alarm" else label_form)(ui, int(top[1]))
    return _tabbed(ui)


def _tabbed(ui: Ui) -> list[Node]:
    clock = ui.state["apps"]["clock"]
    known = [tab for tab in _TABS if tab[3] <= clock["edition"]]
    items = [(icon, label, ("clock", "tab", number)) for number, icon, label, _ in known]
    chosen = next(place for place, tab in enumerate(known) if tab[0] == clock["tab"])
    bars, top, bottom = widgets.tabbed(ui, known[chosen][2], items, chosen, 8)
    bodies = (_alarms, timer_view, watch_view, world)
    return [*bodies[clock["tab"]](ui, top, bottom), *bars]


def _alarms(ui: Ui, top: float, bottom: float) -> list[Node]:
    alarms, none = ui.state["apps"]["clock"]["alarms"], ("alarm", "No alarms yet")
    area = {"top": top, "bottom": bottom, "none_y": 96.0}
    add = widgets.fab(ui, "add", "Add alarm", ("clock", "add"), "add_alarm", bottom)
    make = partial(_alarm, ui)
    return [widgets.listing(ui, "clock.alarms", 104, alarms, make, head=8, foot=96, none=none, **area), add]


def _alarm(ui: Ui, y: float, place: int, alarm: State) -> Node:
    theme, on = ui.theme, alarm["on"]
    left = widgets.MARGIN + (88 if ui.layout.switch_left else 20)
    knob_x = widgets.MARGIN + 18 if ui.layout.switch_left else WIDTH - widgets.MARGIN - 72
    time = st.clock_text(alarm["minutes"], period=True)
    knob, tap = widgets.switch(ui, knob_x, y + 32, on), ("clock", "toggle", place)
    look: dict[str, Any] = {"cls": "widget.Switch", "checked": on}
    rid, desc = f"alarm_{place}_switch", f"{time} alarm"
    toggle = group(knob_x - 12, y, 76, 96, rid, (knob,), desc, tap, **look)
    color = theme.text if on else theme.muted
    parts = [
        ui.text(left, y + 12, 190, 46, time, 36, color, rid=f"alarm_{place}_time"),
        ui.text(left, y + 60, 190, 24, note(alarm), 14, theme.muted),
        toggle,
    ]
    is_page = ui.state["apps"]["clock"]["edition"] > 1
    return replace(
        widgets.card(ui, y, 96, parts, rid=f"alarm_{place}"),
        hold=("clock", "delete", place),
        tap=("clock", "edit", place) if is_page else (),
    )


def act(state: State, verb: str, args: Args) -> None:
    """Tabs, alarms and the picker here; the rest in `_act_more` and `_act_timers`."""
    clock = state["apps"]["clock"]
    number = int(args[0]) if args and isinstance(args[0], int) else 0
    if verb == "tab":
        clock["tab"] = number
    elif verb == "toggle":
        clock["alarms"][number]["on"] = not clock["alarms"][number]["on"]
    elif verb == "delete":
        del clock["alarms"][number]
        st.reset(state, "clock")
        state["toast"] = "Alarm deleted"
    elif verb in ("add", "retime"):
        _pick(state, clock, number if verb == "retime" else -1)
    elif verb == "hour":
        clock["draft"] = clock["draft"] // 720 * 720 + number % 12 * 60 + clock["draft"] % 60
        clock["phase"] = "minute"
    elif verb == "minute":
        clock["draft"] = clock["draft"] // 60 * 60 + number
    elif verb == "period":
        clock["draft"] = clock["draft"] % 720 + 720 * number
    elif verb == "phase":
        clock["phase"] = str(args[0])
    elif verb == "save":
        _save(state, clock)
    elif verb.startswith(("timer_", "watch_")):
        _act_timers(state, verb, number)
    else:
        _act_more(state, verb, number, args[-1] if args else "")


def _pick(state: State, clock: State, index: int) -> None:
    clock["draft"] = clock["alarms"][index]["minutes"] if index >= 0 else st.now(state)
    clock["phase"] = "hour"
    st.push(state, "clock", "picker", *([index] if index >= 0 else []))


def _save(state: State, clock: State) -> None:
    page = st.page(state, "clock")
    changed = clock["alarms"].pop(int(page[1])) if len(page) > 1 else {}
    others = [alarm for alarm in clock["alarms"] if alarm["minutes"] != clock["draft"]]
    alarms = [*others, {**changed, "minutes": clock["draft"], "on": True}]
    clock["alarms"] = sorted(alarms, key=lambda alarm: int(alarm["minutes"]))
    st.reset(state, "clock")
    state["toast"] = f"Alarm set for {st.clock_text(clock['draft'], period=True)}"


def back(state: State) -> bool:
    """Back from another tab shows the alarms."""
    clock = state["apps"]["clock"]
    if len(state["stacks"]["clock"]) == 1 and clock["tab"]:
        clock["tab"] = 0
        return True
    return False


def fill(state: State, rng: Names) -> None:
    """The second edition, with three alarms and two cities."""
    clock = state["apps"]["clock"]
    clock["edition"] = 2
    clock["alarms"] = [
        {"minutes": minutes, "on": rng.random() < 0.7}
        for minutes in sorted(rng.sample(range(302, 1380, 55), 3))
    ]
    clock["cities"] = sorted(rng.names("town", 18))
    clock["world"] = rng.sample(clock["cities"], 2)


APP = App(
    name="clock",
    label="Clock",
    icon="schedule",
    color="#202b4d",
    data=data,
    view=view,
    act=act,
    submit=through(),
    back=back,
    keeps=("alarms", "world", "timer.started", "watch.started"),
    fill=fill,
    permissions=("POST_NOTIFICATIONS",),
)
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

    def row(y: float, place: int, city: str) -> Node:
        hours = zlib.crc32(city.encode()) % 24 - 11  # ahead of the phone
        ahead = "Same time" if hours == 0 else f"{abs(hours)} h {'ahead' if hours > 0 else 'behind'}"
        time, tap = st.clock_text(ui.time + 60 * hours, period=True), ("clock", "remove", city)
        parts = [
            ui.text(36, y + 12, 130, 28, city, 18),
            ui.text(36, y + 40, 130, 24, ahead, 14, ui.theme.muted),
            ui.text(WIDTH - 178, y, 108, 76, time, 22, align="r", rid=f"city_{place}_time"),
            ui.icon_button(WIDTH - 68, y + 14, "close", f"Remove {city}", tap, f"remove_{place}"),
        ]
        return widgets.card(ui, y, 76, parts, rid=f"city_{place}")

    cities, none = ui.state["apps"]["clock"]["world"], ("public", "No cities yet")
    area = {"top": top, "bottom": bottom, "none_y": 96.0}
    add = widgets.fab(ui, "add", "Add city", ("clock", "cities"), "add_city", bottom)
    return [widgets.listing(ui, "clock.world", 84, cities, row, head=8, foot=96, none=none, **area), add]


def cities(ui: Ui) -> list[Node]:
    """The cities that can be added, found by typing."""
    query = st.text(ui.state, "clock.search").strip()
    listed = ui.state["apps"]["clock"]["cities"]
    found = [city for city in listed if not query or widgets.asked(ui.state, "clock", city)]

    def row(y: float, place: int, city: str) -> Node:
        is_chosen = city in ui.state["apps"]["clock"]["world"]
        mark = image(WIDTH - 64, y, 32, 56, "check") if is_chosen else None
        tap, rid = ("clock", "choose", city), "choose_" + city.lower().replace(" ", "_")
        return widgets.row(ui, y, city, trail=mark, tap=tap, rid=rid, h=56, flat=True)

    listed = widgets.listing(ui, "clock.cities", 60, found, row)
    return [listed, widgets.search_bar(ui, "clock", "Search city")]


def alarm(ui: Ui, index: int) -> list[Node]:
    """One alarm: its time, days, label, and a button that deletes it."""
    entry, theme, left = ui.state["apps"]["clock"]["alarms"][index], ui.theme, widgets.MARGIN
    text, wide = st.clock_text(entry["minutes"], period=True), WIDTH - 2 * left
    look = {"desc": "Change the time", "cls": "widget.TextView"}
    tap = ("clock", "retime", index)
    time = button(left, TOP + 8, wide, 112, text, tap, "alarm_time", 48, theme.text, theme.card, 24, **look)
    chips = []
    for place, day in enumerate(DAYS):
        line, column = divmod(place, 4)
        x, y, event = left + 83 * column, TOP + 168 + 56 * line, ("clock", "day", index, place)
        on = place in entry.get("days", [])
        chips.append(widgets.chip(ui, x, y, 78, day, event, "day_" + day.lower(), on))
    lead, tap, label = ("label", theme.tint, theme.on_tint), ("clock", "relabel", index), entry.get("label")
    edit = widgets.row(ui, TOP + 288, "Label", label or "None", lead=lead, tap=tap, rid="alarm_label")
    tap, sign = ("clock", "delete", index), ("delete", "#d93025")
    gone = widgets.row(ui, TOP + 368, "Delete alarm", lead=sign, tap=tap, rid="delete_alarm")
    repeat = ui.text(24, TOP + 132, 200, 28, "Repeat", 15, theme.muted)
    return [time, repeat, *chips, edit, gone, widgets.app_bar(ui, "Alarm")]


def label_form(ui: Ui, index: int) -> list[Node]:
    """The alarm's label, to be typed."""
    fields = widgets.clearable(ui, TOP + 16, "clock.label", "Label", "label")
    return widgets.form(ui, "Label", fields, ("clock", "save_label", index))


def _act_more(state: State, verb: str, index: int, argument: str | int) -> None:
    clock = state["apps"]["clock"]
    if verb == "cities":
        st.open_form(state, "clock", ["cities"], {"clock.search": ""})
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
        label = clock["alarms"][index].get("label", "")
        st.open_form(state, "clock", ["label", index], {"clock.label": label}, "clock.label")
    elif verb == "save_label":
        clock["alarms"][index]["label"] = st.take(state, "clock.label")
        st.pop(state, "clock")


_RADIUS, _NUMBER = 128.0, 48.0
HOURS = (12, *range(1, 12))
MINUTES = tuple(range(0, 60, 5))


def _picker(ui: Ui) -> list[Node]:
    clock, top = ui.state["apps"]["clock"], TOP
    nodes = _header(ui, top, clock["draft"], clock["phase"])
    hour, minute = (clock["draft"] // 60 - 1) % 12 + 1, clock["draft"] % 60
    if ui.layout.picker == "grid":
        nodes.append(ui.text(24, top + 116, 200, 28, "Hour", 15, ui.theme.muted))
        nodes += _grid(ui, top + 146, 64, "hour", HOURS, hour)
        nodes.append(ui.text(24, top + 346, 200, 28, "Minute", 15, ui.theme.muted))
        nodes += _grid(ui, top + 376, 64, "minute", MINUTES, minute)
    else:
        phase, numbers, chosen = (
            ("hour", HOURS, hour) if clock["phase"] == "hour" else ("minute", MINUTES, minute)
        )
        if ui.layout.picker == "dial":
            nodes += _dial(ui, top + 132, phase, numbers, chosen)
        else:
            nodes.append(ui.text(24, top + 116, 200, 32, phase.capitalize(), 18, ui.theme.muted))
            nodes += _grid(ui, top + 156, 96, phase, numbers, chosen)
    title = "New alarm" if len(st.page(ui.state, "clock")) == 1 else "Edit alarm"
    return widgets.form(ui, title, nodes, ("clock", "save"))


def _header(ui: Ui, y: float, draft: int, phase: str) -> list[Node]:
    """The chosen time in two boxes, which also switch between hour and minute, and AM/PM."""
    hour, minute = st.clock_text(draft).split(":")
    nodes = []
    split = ui.layout.picker == "grid"
    for x, text, name in ((24.0, hour, "hour"), (140.0, minute, "minute")):
        on = phase == name or split
        color = ui.theme.on_tint if on else ui.theme.text
        tap = () if split else ("clock", "phase", name)
        fill = ui.theme.tint if on else ui.theme.raised
        nodes.append(
            text_box(x, y + 12, 96, 88, text, 52, color, fill, 16, rid="show_" + name, desc=name, tap=tap)
        )
    nodes.append(ui.text(120, y + 12, 20, 88, ":", 48, align="c"))
    for place, period in enumerate(("AM", "PM")):
        theme, on = ui.theme, (draft >= 720) == (period == "PM")
        color, fill = (theme.on_tint, theme.tint) if on else (theme.muted, theme.card)
        look: dict[str, Any] = {"border": theme.line, "bold": True, "cls": "widget.TextView"}
        event, rid = ("clock", "period", place), "period_" + period.lower()
        nodes.append(button(260, y + 8 + 48 * place, 76, 48, period, event, rid, 17, color, fill, 12, **look))
    return nodes


def _number(
    ui: Ui, box: tuple[float, float, float, float], phase: str, number: int, on: bool, plain: str
) -> Node:
    x, y, w, h = box
    tap: Event = ("clock", phase, number)
    text = f"{number:02d}" if phase == "minute" else str(number)
    color, fill = (ui.theme.on_primary, ui.theme.primary) if on else (ui.theme.text, plain)
    look: dict[str, Any] = {"cls": "widget.TextView", "checked": on}
    radius = min(w, h) / 2 if plain == "" else 16
    return button(x, y, w, h, text, tap, f"{phase}_{number}", 20, color, fill, radius, **look)


def _grid(ui: Ui, y: float, pitch: float, phase: str, numbers: tuple[int, ...], chosen: int) -> list[Node]:
    nodes = []
    for place, number in enumerate(numbers[1:] + numbers[:1] if phase == "hour" else numbers):
        row, column = divmod(place, 4)
        box = (widgets.MARGIN + 83 * column, y + pitch * row, 78.0, pitch - 8)
        nodes.append(_number(ui, box, phase, number, number == chosen, ui.theme.card))
    return nodes


def _dial(ui: Ui, y: float, phase: str, numbers: tuple[int, ...], chosen: int) -> list[Node]:
    face = 2 * _RADIUS + _NUMBER + 12
    left, middle = (WIDTH - face) / 2, y + face / 2
    angle = chosen * (30 if phase == "hour" else 6) % 360
    nodes = [
        Node(left, y, face, face, "view.View", "dial", fill=ui.theme.raised, radius=face / 2),
        Node(
            left, y, face, face, art=("hand", angle, round(200 * _RADIUS / face), 2), color=ui.theme.primary
        ),
        Node(WIDTH / 2 - 4, middle - 4, 8, 8, fill=ui.theme.primary, radius=4),
    ]
    if chosen not in numbers:
        x = WIDTH / 2 + _RADIUS * math.sin(math.radians(angle))
        height = middle - _RADIUS * math.cos(math.radians(angle))
        nodes.append(Node(x - 7, height - 7, 14, 14, fill=ui.theme.primary, radius=7))
    for place, number in enumerate(numbers):
        x = WIDTH / 2 + _RADIUS * math.sin(math.radians(30 * place)) - _NUMBER / 2
        top = middle - _RADIUS * math.cos(math.radians(30 * place)) - _NUMBER / 2
        box = (float(round(x)), float(round(top)), _NUMBER - 2, _NUMBER - 2)
        nodes.append(_number(ui, box, phase, number, number == chosen, ""))
    return nodes


MAX_TIMER_S = 99 * 60
PRESETS = (1, 5, 10, 15)
"""Minutes that one tap sets the timer to."""


def _timers() -> State:
    """Both at rest: the timer at five minutes, the stopwatch at zero."""
    return {
        "timer": {"left_s": 300, "set_s": 300, "started": None},
        "watch": {"base_s": 0, "started": None, "laps": []},
    }


def _ring(ui: Ui, y: float, text: str, degrees: int) -> list[Node]:
    x = WIDTH / 2 - 120
    return [
        Node(x, y, 240, 240, "view.View", art=("ring", 360), color=ui.theme.raised),
        Node(x, y, 240, 240, "view.View", art=("ring", degrees), color=ui.theme.primary),
        ui.text(x, y, 240, 240, text, 50, align="c", rid="time"),
    ]


def timer_left(state: State) -> int:
    """Seconds left on the timer."""
    timer = state["apps"]["clock"]["timer"]
    ran = 0 if timer["started"] is None else state["elapsed_s"] - timer["started"]
    return max(0, int(timer["left_s"]) - ran)


def watch_time(state: State) -> int:
    """Seconds on the stopwatch."""
    watch = state["apps"]["clock"]["watch"]
    ran = 0 if watch["started"] is None else state["elapsed_s"] - watch["started"]
    return int(watch["base_s"]) + ran


def timer_view(ui: Ui, top: float, bottom: float) -> list[Node]:
    """The ring with a minute less and more at its sides, presets, start and reset."""
    timer = ui.state["apps"]["clock"]["timer"]
    left, running = timer_left(ui.state), timer["started"] is not None
    nodes = _ring(ui, top + 12, f"{left // 60}:{left % 60:02d}", min(360, round(360 * left / timer["set_s"])))
    for x, icon, minutes, rid in ((8, "remove", -1, "timer_less"), (WIDTH - 56, "add", 1, "timer_more")):
        label = "One minute less" if minutes < 0 else "One minute more"
        nodes.append(ui.icon_button(x, top + 108, icon, label, ("clock", "timer_add", minutes), rid))
    for place, minutes in enumerate(PRESETS):
        event = ("clock", "timer_set", minutes)
        x = 12 + 86 * place
        nodes.append(
            ui.button(x, top + 280, 78, f"{minutes} min", event, f"timer_{minutes}", "tonal", 52, 15)
        )
    return nodes + _controls(ui, top + 360, "timer", running)


def watch_view(ui: Ui, top: float, bottom: float) -> list[Node]:
    """The ring, start and reset, laps."""
    seconds, watch = watch_time(ui.state), ui.state["apps"]["clock"]["watch"]
    nodes = _ring(ui, top + 12, f"{seconds // 60:02d}:{seconds % 60:02d}", seconds % 60 * 6)
    nodes += _controls(ui, top + 280, "watch", watch["started"] is not None)
    nodes.append(
        ui.button(
            WIDTH / 2 - 70, top + 348, 140, "Lap", ("clock", "watch_lap"), "watch_lap", "outlined", h=48
        )
    )

    def row(y: float, place: int, lap: int) -> Node:
        number = len(watch["laps"]) - place
        label = ui.text(60, y, 140, 34, f"Lap {number}", 16, ui.theme.muted)
        time = ui.text(200, y, 100, 34, f"{lap // 60:02d}:{lap % 60:02d}", 16, align="r")
        return group(60, y, 240, 34, f"lap_{number}", (label, time))

    if watch["laps"]:
        laps = watch["laps"][::-1]
        nodes.append(widgets.listing(ui, "clock.laps", 34, laps, row, top=top + 408, bottom=bottom))
    return nodes


def _controls(ui: Ui, y: float, name: str, running: bool) -> list[Node]:
    label, event = "Pause" if running else "Start", ("clock", name + "_run")
    return [
        ui.button(WIDTH / 2 - 148, y, 140, "Reset", ("clock", name + "_reset"), name + "_reset", "tonal"),
        ui.button(WIDTH / 2 + 8, y, 140, label, event, name + "_run"),
    ]


def _act_timers(state: State, verb: str, minutes: int) -> None:
    clock = state["apps"]["clock"]
    timer, watch = clock["timer"], clock["watch"]
    if verb == "timer_set":
        clock["timer"] = {"left_s": 60 * minutes, "set_s": 60 * minutes, "started": None}
    elif verb == "timer_add":
        seconds = min(MAX_TIMER_S, max(60, timer["set_s"] + 60 * minutes))
        clock["timer"] = {"left_s": seconds, "set_s": seconds, "started": None}
    elif verb in ("timer_reset", "watch_reset"):
        name = verb.split("_")[0]
        clock[name] = _timers()[name]
    elif verb == "timer_run":
        timer["left_s"] = timer_left(state)
        timer["started"] = state["elapsed_s"] if timer["started"] is None else None
    elif verb == "watch_run":
        watch["base_s"] = watch_time(state)
        watch["started"] = state["elapsed_s"] if watch["started"] is None else None
    elif verb == "watch_lap" and watch["started"] is not None and len(watch["laps"]) < MAX_ITEMS:
        watch["laps"].append(watch_time(state))
