"""The clock: alarms, timer and stopwatch; its second edition also has a world clock and alarms with days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distrl.simulator.apps import clock_pages, clock_timers, picker
from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

_TABS = (
    (0, "alarm", "Alarm", 1),
    (3, "public", "World", 2),
    (1, "hourglass_bottom", "Timer", 1),
    (2, "timer", "Stopwatch", 1),
)
"""Number, icon and label of each tab, and the edition that it is new in."""
_TAB_H = 72.0


def data() -> State:
    """No alarms; timer and stopwatch at rest. `draft` is the picker's time in minutes after midnight."""
    return {
        "edition": 1,
        "tab": 0,
        "alarms": [],
        "draft": 0,
        "phase": "hour",
        "world": [],
        **clock_timers.data(),
    }


def view(ui: Ui) -> list[Node]:
    """The picker, another page, or the chosen tab."""
    top = st.page(ui.state, "clock")
    if top[0] == "picker":
        return picker.view(ui)
    if top[0] == "cities":
        return clock_pages.cities(ui)
    if top[0] != "root":
        return (clock_pages.alarm if top[0] == "alarm" else clock_pages.label_form)(ui, int(top[1]))
    return _tabbed(ui)


def _tabbed(ui: Ui) -> list[Node]:
    clock = ui.state["apps"]["clock"]
    known = [tab for tab in _TABS if tab[3] <= clock["edition"]]
    items = [(icon, label, ("clock", "tab", number)) for number, icon, label, _ in known]
    chosen = next(place for place, tab in enumerate(known) if tab[0] == clock["tab"])
    if ui.layout.tabs == "bottom":
        top, bottom = STATUS_H + widgets.BAR_H, ui.bottom - _TAB_H
        tabs = widgets.tab_bar(ui, bottom, items, chosen, _TAB_H)
        bar = widgets.app_bar(ui, known[chosen][2], back=False)
    else:
        top, bottom = STATUS_H + _TAB_H + 8, ui.bottom
        tabs = widgets.tab_bar(ui, STATUS_H, items, chosen, _TAB_H)
        bar = Node(0, 0, WIDTH, STATUS_H, fill=ui.theme.raised)
    bodies = (_alarms, clock_timers.timer_view, clock_timers.watch_view, clock_pages.world)
    return [*bodies[clock["tab"]](ui, top, bottom), bar, tabs]


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
        ui.text(left, y + 60, 190, 24, clock_pages.note(alarm), 14, theme.muted),
        toggle,
    ]
    is_page = ui.state["apps"]["clock"]["edition"] > 1
    return replace(
        widgets.card(ui, y, 96, parts, rid=f"alarm_{place}"),
        hold=("clock", "delete", place),
        tap=("clock", "edit", place) if is_page else (),
    )


def act(state: State, verb: str, args: Args) -> None:
    """Tabs, alarms and the picker here; the rest in `clock_pages` and `clock_timers`."""
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
        clock_timers.act(state, verb, number)
    else:
        clock_pages.act(state, verb, number, args[-1] if args else "")


def _pick(state: State, clock: State, index: int) -> None:
    """Opens the picker for alarm `index`, or for a new one when it is negative."""
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


_KEEPS = ("alarms", "world", "timer.started", "watch.started")
APP = App("clock", "Clock", "schedule", "#202b4d", data, view, act, back=back, keeps=_KEEPS)
