"""The clock's timer and stopwatch."""

from __future__ import annotations

from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import MAX_ITEMS, State
from distrl.simulator.phone.ui import Ui

MAX_TIMER_S = 99 * 60
PRESETS = (1, 5, 10, 15)
"""Minutes that one tap sets the timer to."""


def data() -> State:
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
    for place, lap in enumerate(reversed(watch["laps"])):
        y = top + 408 + 34 * place
        if y + 34 < bottom:
            number = len(watch["laps"]) - place
            nodes.append(ui.text(60, y, 140, 34, f"Lap {number}", 16, ui.theme.muted))
            nodes.append(ui.text(200, y, 100, 34, f"{lap // 60:02d}:{lap % 60:02d}", 16, align="r"))
    return nodes


def _controls(ui: Ui, y: float, name: str, running: bool) -> list[Node]:
    label, event = "Pause" if running else "Start", ("clock", name + "_run")
    return [
        ui.button(WIDTH / 2 - 148, y, 140, "Reset", ("clock", name + "_reset"), name + "_reset", "tonal"),
        ui.button(WIDTH / 2 + 8, y, 140, label, event, name + "_run"),
    ]


def act(state: State, verb: str, minutes: int) -> None:
    """Sets, starts, stops and resets them."""
    clock = state["apps"]["clock"]
    timer, watch = clock["timer"], clock["watch"]
    if verb == "timer_set":
        clock["timer"] = {"left_s": 60 * minutes, "set_s": 60 * minutes, "started": None}
    elif verb == "timer_add":
        seconds = min(MAX_TIMER_S, max(60, timer["set_s"] + 60 * minutes))
        clock["timer"] = {"left_s": seconds, "set_s": seconds, "started": None}
    elif verb in ("timer_reset", "watch_reset"):
        name = verb.split("_")[0]
        clock[name] = data()[name]
    elif verb == "timer_run":
        timer["left_s"] = timer_left(state)
        timer["started"] = state["elapsed_s"] if timer["started"] is None else None
    elif verb == "watch_run":
        watch["base_s"] = watch_time(state)
        watch["started"] = state["elapsed_s"] if watch["started"] is None else None
    elif verb == "watch_lap" and len(watch["laps"]) < MAX_ITEMS:
        watch["laps"].append(watch_time(state))
