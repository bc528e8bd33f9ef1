"""The clock's time picker: a dial, two grids on a page, or one grid after the other, by layout."""

from __future__ import annotations

import math

from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.ui import STATUS_H, Ui

_RADIUS, _NUMBER = 128.0, 48.0
HOURS = (12, *range(1, 12))
MINUTES = tuple(range(0, 60, 5))


def view(ui: Ui) -> list[Node]:
    """The picker's page for the time in the clock's `draft`."""
    clock = ui.state["apps"]["clock"]
    top = STATUS_H + widgets.BAR_H
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
    save = widgets.bar_save(ui, ("clock", "save"))
    title = "New alarm" if len(st.page(ui.state, "clock")) == 1 else "Edit alarm"
    if ui.layout.save == "top":
        return [*nodes, widgets.app_bar(ui, title, [save])]
    return [*nodes, widgets.app_bar(ui, title), widgets.form_cancel(ui), save]


def _header(ui: Ui, y: float, draft: int, phase: str) -> list[Node]:
    """The chosen time in two boxes, which also switch between hour and minute, and AM/PM."""
    hour, minute = st.clock_text(draft).split(":")
    nodes = []
    split = ui.layout.picker == "grid"
    for x, text, name in ((24.0, hour, "hour"), (140.0, minute, "minute")):
        on = phase == name or split
        nodes.append(
            Node(
                x,
                y + 12,
                96,
                88,
                "widget.TextView",
                "show_" + name,
                text,
                desc=name,
                tap=() if split else ("clock", "phase", name),
                fill=ui.theme.tint if on else ui.theme.raised,
                radius=16,
                size=52,
                align="c",
                color=ui.theme.on_tint if on else ui.theme.text,
            )
        )
    nodes.append(ui.text(120, y + 12, 20, 88, ":", 48, align="c"))
    for place, period in enumerate(("AM", "PM")):
        on = (draft >= 720) == (period == "PM")
        nodes.append(
            Node(
                260,
                y + 8 + 48 * place,
                76,
                48,
                "widget.TextView",
                "period_" + period.lower(),
                period,
                tap=("clock", "period", place),
                fill=ui.theme.tint if on else ui.theme.card,
                border=ui.theme.line,
                radius=12,
                size=17,
                bold=True,
                align="c",
                color=ui.theme.on_tint if on else ui.theme.muted,
            )
        )
    return nodes


def _number(
    ui: Ui, box: tuple[float, float, float, float], phase: str, number: int, on: bool, plain: str
) -> Node:
    x, y, w, h = box
    event: Event = ("clock", phase, number)
    return Node(
        x,
        y,
        w,
        h,
        "widget.TextView",
        f"{phase}_{number}",
        f"{number:02d}" if phase == "minute" else str(number),
        tap=event,
        checked=on,
        fill=ui.theme.primary if on else plain,
        radius=min(w, h) / 2 if plain == "" else 16,
        size=20,
        align="c",
        color=ui.theme.on_primary if on else ui.theme.text,
    )


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
