"""The launcher: wallpaper, clock widget, search pill, home grid, dock, and the app drawer."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.workers.simphone.apps import weather
from distrl.workers.simphone.apps.base import App
from distrl.workers.simphone.nodes import WIDTH, Node
from distrl.workers.simphone.state import clock_text
from distrl.workers.simphone.ui import STATUS_H, Ui, nav_height

CELL_W, CELL_H, ICON = 90.0, 100.0, 60.0
DATE = "Tue, June 3"


def view(ui: Ui, apps: Sequence[App]) -> list[Node]:
    """The home page, or the drawer when it is open."""
    return _drawer(ui, apps) if ui.state["drawer"] else _home(ui, apps)


def _place(ui: Ui, y: float) -> float:
    """A top edge that counts from the status bar, or from the navigation bar when negative."""
    return STATUS_H + y if y >= 0 else ui.height - nav_height(ui.layout) + y


def _home(ui: Ui, apps: Sequence[App]) -> list[Node]:
    by_name = {app.name: app for app in apps}
    dark = ui.layout.dark
    ink = "#ffffff" if dark else "#10182b"
    dock_y = ui.height - nav_height(ui.layout) - 104
    if ui.layout.search_y < 0 and ui.layout.search_y > -100:
        dock_y -= 72
    nodes = _widget(ui, ink)
    nodes.append(_search(ui))
    for place, row in enumerate(ui.layout.grid):
        for column, name in enumerate(row):
            if name:
                y = _place(ui, ui.layout.grid_y) + place * CELL_H
                nodes.append(_icon(ui, by_name[name], column * CELL_W, y, ui.layout.label, labelled=True))
    count = len(ui.layout.dock)
    if dark:
        plate = "#ffffff26" if ui.layout.nav == "gesture" else "#00000040"
        nodes.append(Node(10, dock_y, WIDTH - 20, 92, "view.View", "dock", fill=plate, radius=32))
    left = (WIDTH - count * 84) / 2
    for place, name in enumerate(ui.layout.dock):
        nodes.append(_icon(ui, by_name[name], left + 84 * place - 3, dock_y - 4, ink, labelled=False))
    return [Node(0, 0, WIDTH, ui.height, "view.View", "workspace", scroll="drawer", children=tuple(nodes))]


def _widget(ui: Ui, ink: str) -> list[Node]:
    y = _place(ui, ui.layout.widget_y)
    time = ui.text(28, y, WIDTH - 56, 64, clock_text(ui.time), 58, ink, rid="home_clock")
    icon, _, color, degrees = weather.forecast(ui.state["apps"]["weather"]["city"], 0)
    date = ui.text(30, y + 64, 102, 28, DATE, 18, ink, rid="home_date")
    sky = Node(134, y + 64, 28, 28, "widget.ImageView", icon=icon, icon_size=22, color=color)
    warm = ui.text(166, y + 64, 80, 28, f"{degrees}°", 18, ink, rid="home_degrees")
    face = Node(
        20,
        y - 6,
        WIDTH - 40,
        104,
        "view.ViewGroup",
        "clock_widget",
        desc="Clock",
        tap=("system", "open", "clock"),
    )
    return [face.with_children(time, date, sky, warm)]


def _search(ui: Ui) -> Node:
    y = _place(ui, ui.layout.search_y)
    theme = ui.theme
    glass = Node(24 + 14, y, 28, 54, "widget.ImageView", icon="search", color=theme.muted)
    hint = ui.text(24 + 54, y, 180, 54, "Search", 17, theme.muted)
    mic = Node(WIDTH - 24 - 44, y, 28, 54, "widget.ImageView", icon="mic", color=theme.primary)
    return Node(
        24,
        y,
        WIDTH - 48,
        54,
        "view.ViewGroup",
        "home_search",
        desc="Search the web",
        tap=("system", "search"),
        fill=theme.card,
        radius=27,
        children=(glass, hint, mic),
    )


def _icon(ui: Ui, app: App, x: float, y: float, ink: str, labelled: bool) -> Node:
    plate = Node(
        x + (CELL_W - ICON) / 2,
        y + 8,
        ICON,
        ICON,
        "widget.ImageView",
        fill=app.color,
        radius=ui.layout.icon_radius * ICON / 56,
        icon=app.icon,
        icon_size=34,
        color="#ffffff",
    )
    children = [plate]
    if labelled:
        children.append(ui.text(x, y + 72, CELL_W, 22, app.label, 14, ink, align="c"))
    return Node(
        x + 3,
        y,
        CELL_W - 6,
        CELL_H - 2 if labelled else 80,
        "widget.TextView",
        "app_" + app.name,
        value=app.label,
        desc=app.label,
        tap=("system", "open", app.name),
        children=tuple(children),
    )


def _drawer(ui: Ui, apps: Sequence[App]) -> list[Node]:
    theme = ui.theme
    nodes = [
        Node(0, 0, WIDTH, ui.height, "view.View", "drawer", fill=theme.bg),
        ui.text(24, STATUS_H + 16, WIDTH - 48, 48, "All apps", 26, rid="title"),
    ]
    for place, app in enumerate(sorted(apps, key=lambda app: app.label)):
        row, column = divmod(place, 4)
        nodes.append(_icon(ui, app, column * CELL_W, STATUS_H + 84 + row * 112, theme.text, labelled=True))
    return [Node(0, 0, WIDTH, ui.height, "view.View", "workspace", scroll="drawer", children=tuple(nodes))]
