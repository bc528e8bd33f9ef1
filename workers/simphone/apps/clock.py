"""The clock: alarms, timer and stopwatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.workers.simphone import state as st
from distrl.workers.simphone import widgets
from distrl.workers.simphone.apps import picker
from distrl.workers.simphone.apps.base import App, Args
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import State
from distrl.workers.simphone.ui import STATUS_H, Ui, viewport

_TABS = (("alarm", "Alarm"), ("hourglass_bottom", "Timer"), ("timer", "Stopwatch"))
_TAB_H = 72.0


def data() -> State:
    """No alarms; timer and stopwatch at rest. `draft` is the picker's time in minutes after midnight."""
    return {
        "tab": 0,
        "alarms": [],
        "draft": 0,
        "phase": "hour",
        "timer": {"left_s": 300, "started": None},
        "watch": {"base_s": 0, "started": None},
    }


def view(ui: Ui) -> list[Node]:
    """The picker, or the chosen tab."""
    if st.page(ui.state, "clock")[0] == "picker":
        return picker.view(ui)
    clock = ui.state["apps"]["clock"]
    items = [(icon, label, ("clock", "tab", place)) for place, (icon, label) in enumerate(_TABS)]
    if ui.layout.tabs == "bottom":
        top, bottom = STATUS_H + widgets.BAR_H, ui.bottom - _TAB_H
        tabs = widgets.tab_bar(ui, bottom, items, clock["tab"], _TAB_H)
        bar = widgets.app_bar(ui, _TABS[clock["tab"]][1], back=False)
    else:
        top, bottom = STATUS_H + _TAB_H + 8, ui.bottom
        tabs = widgets.tab_bar(ui, STATUS_H, items, clock["tab"], _TAB_H)
        bar = Node(0, 0, WIDTH, STATUS_H, fill=ui.theme.raised)
    body = (_alarms, _timer, _stopwatch)[clock["tab"]](ui, top, bottom)
    return [*body, bar, tabs]


def _alarms(ui: Ui, top: float, bottom: float) -> list[Node]:
    alarms = ui.state["apps"]["clock"]["alarms"]

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not alarms:
            return widgets.empty(ui, y + 96, "alarm", "No alarms yet"), y + 240
        rows: list[Node] = []
        for place, alarm in enumerate(alarms):
            rows.append(_alarm(ui, y + 8 + place * 104, alarm, place))
        return rows, y + 8 + len(alarms) * 104 + 96

    add = widgets.fab(ui, "add", "Add alarm", ("clock", "add"), "add_alarm", bottom)
    return [viewport(ui, "clock.alarms", top, bottom, build), add]


def _alarm(ui: Ui, y: float, alarm: State, place: int) -> Node:
    theme, on = ui.theme, alarm["on"]
    left = widgets.MARGIN + (88 if ui.layout.switch_left else 20)
    knob_x = widgets.MARGIN + 18 if ui.layout.switch_left else WIDTH - widgets.MARGIN - 72
    time = st.clock_text(alarm["minutes"], period=True)
    toggle = Node(
        knob_x - 12,
        y,
        76,
        96,
        "widget.Switch",
        f"alarm_{place}_switch",
        desc=f"{time} alarm",
        tap=("clock", "toggle", place),
        checked=on,
        children=(widgets.switch(ui, knob_x, y + 32, on),),
    )
    color = theme.text if on else theme.muted
    parts = [
        ui.text(left, y + 12, 190, 46, time, 36, color, rid=f"alarm_{place}_time"),
        ui.text(left, y + 60, 190, 24, "Once" if on else "Off", 14, theme.muted),
        toggle,
    ]
    return replace(widgets.card(ui, y, 96, parts, rid=f"alarm_{place}"), hold=("clock", "delete", place))


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


def _timer(ui: Ui, top: float, bottom: float) -> list[Node]:
    timer = ui.state["apps"]["clock"]["timer"]
    left, running = timer_left(ui.state), timer["started"] is not None
    nodes = _ring(ui, top + 24, f"{left // 60}:{left % 60:02d}", min(360, round(360 * left / 600)))
    for place, minutes in enumerate((1, 5, 10, 15)):
        event = ("clock", "timer_set", minutes)
        nodes.append(
            ui.button(
                12 + 86 * place, top + 300, 78, f"{minutes} min", event, f"timer_{minutes}", "tonal", 52, 15
            )
        )
    return nodes + _controls(ui, top + 380, "timer", running)


def _stopwatch(ui: Ui, top: float, bottom: float) -> list[Node]:
    seconds = watch_time(ui.state)
    running = ui.state["apps"]["clock"]["watch"]["started"] is not None
    nodes = _ring(ui, top + 24, f"{seconds // 60:02d}:{seconds % 60:02d}", seconds % 60 * 6)
    return nodes + _controls(ui, top + 380, "watch", running)


def _controls(ui: Ui, y: float, name: str, running: bool) -> list[Node]:
    start = ui.button(
        WIDTH / 2 + 8, y, 140, "Pause" if running else "Start", ("clock", name + "_run"), name + "_run"
    )
    reset = ui.button(WIDTH / 2 - 148, y, 140, "Reset", ("clock", name + "_reset"), name + "_reset", "tonal")
    return [reset, start]


def act(state: State, verb: str, args: Args) -> None:
    """Tabs, alarms and the picker here; the timer and the stopwatch in `_run`."""
    clock = state["apps"]["clock"]
    number = int(args[0]) if args and isinstance(args[0], int) else 0
    if verb == "tab":
        clock["tab"] = number
    elif verb == "toggle":
        clock["alarms"][number]["on"] = not clock["alarms"][number]["on"]
    elif verb == "delete":
        del clock["alarms"][number]
        state["toast"] = "Alarm deleted"
    elif verb == "add":
        clock["draft"], clock["phase"] = st.now(state), "hour"
        st.push(state, "clock", "picker")
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
    else:
        _run(state, clock, verb, number)


def _save(state: State, clock: State) -> None:
    others = [alarm for alarm in clock["alarms"] if alarm["minutes"] != clock["draft"]]
    alarms = [*others, {"minutes": clock["draft"], "on": True}]
    clock["alarms"] = sorted(alarms, key=lambda alarm: int(alarm["minutes"]))
    st.reset(state, "clock")
    state["toast"] = f"Alarm set for {st.clock_text(clock['draft'], period=True)}"


def _run(state: State, clock: State, verb: str, minutes: int) -> None:
    timer, watch = clock["timer"], clock["watch"]
    if verb == "timer_set":
        clock["timer"] = {"left_s": 60 * minutes, "started": None}
    elif verb == "timer_reset":
        clock["timer"] = {"left_s": 300, "started": None}
    elif verb == "watch_reset":
        clock["watch"] = {"base_s": 0, "started": None}
    elif verb == "timer_run":
        timer["left_s"] = timer_left(state)
        timer["started"] = state["elapsed_s"] if timer["started"] is None else None
    elif verb == "watch_run":
        watch["base_s"] = watch_time(state)
        watch["started"] = state["elapsed_s"] if watch["started"] is None else None


def back(state: State) -> bool:
    """Back from another tab shows the alarms."""
    clock = state["apps"]["clock"]
    if len(state["stacks"]["clock"]) == 1 and clock["tab"]:
        clock["tab"] = 0
        return True
    return False


APP = App("clock", "Clock", "schedule", "#202b4d", data, view, act, back=back)
