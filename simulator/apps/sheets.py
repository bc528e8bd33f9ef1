"""Sheets over an app's page: a menu under the app bar, and a question with two answers.

A sheet is a page of the app like any other: back, or a tap beside it, closes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.ui import STATUS_H, Ui

_MENU_W, _ITEM_H = 216.0, 56.0


def _over(ui: Ui, under: Sequence[Node], sheet: Node) -> list[Node]:
    page = Node(0, 0, WIDTH, ui.height, "widget.FrameLayout", "page", children=tuple(under))
    scrim = Node(
        0, 0, WIDTH, ui.height, "view.View", "scrim", desc="Close", tap=("system", "back"), fill="#00000070"
    )
    return [page, scrim, sheet]


def menu(ui: Ui, under: Sequence[Node], items: Sequence[tuple[str, str, Event, str]]) -> list[Node]:
    """A menu at the top right over the page `under`; each item is icon, label, event and resource id."""
    x, y, theme = WIDTH - _MENU_W - 12, STATUS_H + 12, ui.theme
    rows = []
    for place, (icon, label, event, rid) in enumerate(items):
        top = y + 8 + place * _ITEM_H
        sign = Node(x + 16, top, 24, _ITEM_H, "widget.ImageView", icon=icon, color=theme.muted)
        name = ui.text(x + 56, top, _MENU_W - 72, _ITEM_H, label, 16)
        rows.append(
            Node(
                x, top, _MENU_W, _ITEM_H, "view.ViewGroup", rid, desc=label, tap=event, children=(sign, name)
            )
        )
    height = 16 + _ITEM_H * len(rows)
    sheet = Node(
        x,
        y,
        _MENU_W,
        height,
        "view.ViewGroup",
        "menu",
        fill=theme.raised,
        radius=18,
        shadow=4,
        children=tuple(rows),
    )
    return _over(ui, under, sheet)


def confirm(ui: Ui, under: Sequence[Node], title: str, body: str, yes: str, event: Event) -> list[Node]:
    """A question in the middle of the screen: "Cancel" closes it, `yes` does `event`."""
    w, h = WIDTH - 48, 208.0
    x, y, theme = 24.0, (ui.height - h) / 2 - 20, ui.theme
    parts = (
        ui.text(x + 24, y + 20, w - 48, 32, title, 22, rid="question"),
        ui.text(x + 24, y + 60, w - 48, 56, body, 16, theme.muted, lines=2, top=True),
        ui.button(x + 16, y + h - 68, 132, "Cancel", ("system", "back"), "dismiss", "outlined"),
        ui.button(x + w - 148, y + h - 68, 132, yes, event, "confirm"),
    )
    sheet = Node(
        x, y, w, h, "view.ViewGroup", "dialog", fill=theme.raised, radius=28, shadow=4, children=parts
    )
    return _over(ui, under, sheet)
