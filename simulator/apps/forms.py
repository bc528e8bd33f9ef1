"""Pieces of forms and searches that the apps share: saving, search bars, chips, steppers, choices."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui


def form(ui: Ui, title: str, nodes: Sequence[Node], save: Event, label: str = "Save") -> list[Node]:
    """A form's page: its fields, and the save button where this layout has it."""
    button = widgets.bar_save(ui, save, label)
    if ui.layout.save == "top":
        return [*nodes, widgets.app_bar(ui, title, [button])]
    return [*nodes, widgets.app_bar(ui, title), widgets.form_cancel(ui), button]


def clearable(ui: Ui, y: float, app: str, key: str, hint: str, icon: str = "") -> list[Node]:
    """A text field 60 dp high; once it holds text, a button beside it empties it: ("app", "clear", key)."""
    wide = WIDTH - 2 * widgets.MARGIN
    if not st.text(ui.state, key):
        return [widgets.field(ui, y, key, hint, icon=icon, h=60, w=wide)]
    name = "clear_" + key.split(".")[-1]
    box = widgets.field(ui, y, key, hint, icon=icon, h=60, w=wide - 56)
    return [box, ui.icon_button(WIDTH - 60, y + 6, "close", f"Clear {hint}", (app, "clear", key), name)]


def clear(state: State, key: str) -> None:
    """Empties a field and gives it the focus."""
    state["fields"][key] = ""
    st.focus(state, key)


def search_bar(ui: Ui, app: str, hint: str) -> Node:
    """An app bar with a search field, whose key is "<app>.search"."""
    top = STATUS_H + widgets.BAR_H
    up = ui.icon_button(4, STATUS_H + 8, "arrow_back", "Navigate up", ("system", "back"), "up")
    box = widgets.field(
        ui, STATUS_H + 6, app + ".search", hint, x=56, w=WIDTH - 72, h=52, pill=True, rid="search_field"
    )
    return Node(0, 0, WIDTH, top, "view.ViewGroup", "app_bar", fill=ui.theme.bg, children=(up, box))


def start_search(state: State, app: str) -> None:
    """Opens the app's page "search" with an empty, focused field."""
    state["fields"].pop(app + ".search", None)
    st.push(state, app, "search")
    st.focus(state, app + ".search")


def asked(state: State, app: str, *texts: str) -> bool:
    """Whether what is in the app's search field occurs in one of `texts`."""
    query = " ".join(st.text(state, app + ".search").split()).lower()
    return bool(query) and any(query in text.lower() for text in texts)


def chip(ui: Ui, x: float, y: float, w: float, label: str, tap: Event, rid: str, on: bool) -> Node:
    """A choice among others, 48 dp high."""
    theme = ui.theme
    return Node(
        x,
        y,
        w,
        48,
        "widget.CheckBox",
        rid,
        label,
        tap=tap,
        checked=on,
        fill=theme.primary if on else theme.card,
        border="" if on else theme.line,
        radius=24,
        size=15,
        bold=on,
        align="c",
        color=theme.on_primary if on else theme.text,
    )


def chips(
    ui: Ui, y: float, labels: Sequence[str], taps: Sequence[Event], rids: Sequence[str], on: Sequence[bool]
) -> list[Node]:
    """A line of equally wide chips over the width of the screen."""
    pitch = (WIDTH - 2 * widgets.MARGIN + 6) / len(labels)
    return [
        chip(ui, widgets.MARGIN + pitch * place, y, pitch - 6, label, tap, rid, chosen)
        for place, (label, tap, rid, chosen) in enumerate(zip(labels, taps, rids, on, strict=True))
    ]


def stepper(ui: Ui, y: float, label: str, value: str, less: Event, more: Event, rid: str) -> Node:
    """A card with a value and, beside it, buttons for the one before and the one after."""
    x = widgets.MARGIN
    parts = (
        ui.text(x + 68, y + 8, WIDTH - 2 * x - 136, 24, label.capitalize(), 14, ui.theme.muted, align="c"),
        ui.text(x + 68, y + 32, WIDTH - 2 * x - 136, 34, value, 19, align="c", rid=rid),
        ui.icon_button(x + 12, y + 13, "chevron_left", f"Earlier {label}", less, rid + "_less"),
        ui.icon_button(WIDTH - x - 60, y + 13, "chevron_right", f"Later {label}", more, rid + "_more"),
    )
    return widgets.card(ui, y, 74, parts)


def radio_row(ui: Ui, y: float, label: str, tap: Event, rid: str, on: bool, note: str = "") -> Node:
    """One of several options, of which one is chosen."""
    theme = ui.theme
    icon = "radio_button_checked" if on else "radio_button_unchecked"
    dot = Node(
        widgets.MARGIN + 16,
        y,
        28,
        64,
        "widget.RadioButton",
        icon=icon,
        color=theme.primary if on else theme.muted,
    )
    return widgets.row(ui, y, label, note, lead=dot, tap=tap, rid=rid, checked=on, h=64, fill=theme.card)


def tick_row(ui: Ui, y: float, label: str, tap: Event, rid: str, on: bool, note: str = "") -> Node:
    """A line of a checklist."""
    theme = ui.theme
    icon = "check_box" if on else "check_box_outline_blank"
    box = Node(
        widgets.MARGIN + 16,
        y,
        28,
        64,
        "widget.CheckBox",
        icon=icon,
        color=theme.primary if on else theme.muted,
    )
    return widgets.row(ui, y, label, note, lead=box, tap=tap, rid=rid, checked=on, h=64, fill=theme.card)
