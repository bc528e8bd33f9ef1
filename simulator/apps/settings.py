"""Settings: a root list with coloured icons, nested pages with switches, sliders, options and facts."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.settings_pages import (
    CHOICES,
    SECTIONS,
    TOGGLES,
    Choice,
    Entry,
    Fact,
    Link,
    Section,
    Slider,
    Toggle,
)
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

_ON = {
    *("wifi", "data", "nfc", "rotate", "vibrate", "location", "lock"),
    *("touch_sounds", "find", "camera", "mic"),
}
"""Switches that a new phone has on, besides every app's notifications."""


def data() -> State:
    """Values of all settings, as a new phone has them (dark mode is set by the layout)."""
    values: State = {key: key in _ON or key.startswith("notify_") for key in TOGGLES}
    words = {key: choice.options[0] for key, (_, choice) in CHOICES.items()}
    levels = {"brightness": 60, "volume": 40, "ring": 70, "alarm_volume": 80}
    return {"edition": 1} | values | words | levels


def view(ui: Ui) -> list[Node]:
    """The root list, one section, or the options of a choice."""
    top = st.page(ui.state, "settings")
    if top[0] == "choice":
        return _options(ui, CHOICES[str(top[1])][1])
    return _section(ui, SECTIONS[str(top[1])]) if top[0] == "section" else _root(ui)


def _root(ui: Ui) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        nodes = [ui.text(24, y, 280, 72, "Settings", 32, rid="title")]
        y += 76
        rows: list[Node] = []
        for place, name in enumerate(ui.layout.settings):
            section = SECTIONS[name]
            top = y + place * widgets.ROW_H
            lead = ui.disc(widgets.MARGIN + 14, top + 14, 44, section.icon, section.color)
            rows.append(
                widgets.row(
                    ui,
                    top,
                    section.title,
                    section.note,
                    lead=lead,
                    tap=("settings", "section", name),
                    rid="section_" + name,
                )
            )
        height = widgets.ROW_H * len(rows)
        nodes.append(widgets.card(ui, y, height, rows))
        return nodes, y + height + 12

    return [viewport(ui, "settings.root", STATUS_H, ui.bottom, build)]


def _section(ui: Ui, section: Section) -> list[Node]:
    def build(y: float) -> tuple[Sequence[Node], float]:
        y += 8
        nodes: list[Node] = []
        for entry in section.entries:
            if entry.edition > ui.state["apps"]["settings"]["edition"]:
                continue
            nodes.append(_entry(ui, y, entry, section.color))
            y += nodes[-1].h + 8
        return nodes, y

    top = STATUS_H + widgets.BAR_H
    return [
        viewport(ui, "settings." + section.icon, top, ui.bottom, build),
        widgets.app_bar(ui, section.title),
    ]


def _entry(ui: Ui, y: float, entry: Entry, color: str) -> Node:
    values = ui.state["apps"]["settings"]
    if isinstance(entry, Toggle):
        event = ("settings", "toggle", entry.key)
        on = values[entry.key]
        return widgets.switch_row(
            ui, y, entry.label, entry.note, on, event, "switch_" + entry.key, fill=ui.theme.card, h=84
        )
    if isinstance(entry, Slider):
        return _slider(ui, y, entry, values[entry.key], color)
    if isinstance(entry, Fact):
        told = entry.value.format(installed=len(ui.state["installed"]))
        return widgets.row(ui, y, entry.label, told, fill=ui.theme.card)
    if isinstance(entry, Link):
        below = SECTIONS[entry.section]
        return _opener(
            ui,
            y,
            below.title,
            below.note,
            below.icon,
            color,
            ("section", entry.section),
        )
    return _opener(ui, y, entry.label, values[entry.key], entry.icon, color, ("choice", entry.key))


def _opener(ui: Ui, y: float, title: str, note: str, icon: str, color: str, target: tuple[str, str]) -> Node:
    """A row that opens a page: `target` is its kind, which is also its event, and its argument."""
    lead = ui.disc(widgets.MARGIN + 14, y + 20, 44, icon, color)
    tap, rid = ("settings", *target), "_".join(target)
    return widgets.row(ui, y, title, note, lead=lead, tap=tap, rid=rid, fill=ui.theme.card, h=84)


def _options(ui: Ui, choice: Choice) -> list[Node]:
    chosen, top = ui.state["apps"]["settings"][choice.key], STATUS_H + widgets.BAR_H

    def build(y: float) -> tuple[Sequence[Node], float]:
        rows = []
        for place, option in enumerate(choice.options):
            tap = ("settings", "choose", choice.key, option)
            rows.append(
                widgets.radio_row(ui, y + 8 + 70 * place, option, tap, f"option_{place}", option == chosen)
            )
        return rows, y + 8 + 70 * len(rows)

    return [viewport(ui, "settings.options", top, ui.bottom, build), widgets.app_bar(ui, choice.label)]


def _slider(ui: Ui, y: float, entry: Slider, value: int, color: str) -> Node:
    x, w = widgets.MARGIN + 64, WIDTH - 2 * widgets.MARGIN - 88
    track_y = y + 62
    parts = [
        ui.disc(widgets.MARGIN + 12, y + 42, 40, entry.icon, color),
        ui.text(widgets.MARGIN + 20, y + 8, 240, 28, f"{entry.label}: {value}%", 17),
        Node(x, track_y - 8, w, 16, fill=ui.theme.tint, radius=8),
        Node(x, track_y - 8, max(16.0, w * value / 100), 16, fill=ui.theme.primary, radius=8),
        Node(x + w * value / 100 - 2, track_y - 22, 5, 44, fill=ui.theme.primary, radius=2.5),
    ]
    for step in range(11):
        parts.append(
            Node(
                x + w * step / 10 - w / 20,
                track_y - 24,
                w / 10,
                48,
                "widget.SeekBar",
                f"slider_{entry.key}_{step * 10}",
                desc=f"{entry.label} {step * 10}%",
                tap=("settings", "slide", entry.key, step * 10),
            )
        )
    return widgets.card(ui, y, 100, parts, rid="slider_" + entry.key)


def act(state: State, verb: str, args: Args) -> None:
    """Opens a page, flips a switch, moves a slider or takes an option."""
    values = state["apps"]["settings"]
    key = str(args[0])
    if verb in ("section", "choice"):
        st.push(state, "settings", verb, key)
    elif verb == "toggle":
        values[key] = not values[key]
        if key == "airplane" and values[key]:
            values["wifi"] = values["bluetooth"] = False
    elif verb in ("slide", "choose"):
        values[key] = args[1]


APP = App("settings", "Settings", "settings", "#5b6472", data, view, act, keeps=("*",))
