"""The launcher: wallpaper, clock widget, search pill, home grid, dock, and the app drawer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrl.simulator.apps import store_catalog, weather
from distrl.simulator.apps.base import App
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, image
from distrl.simulator.phone.state import State, clock_text
from distrl.simulator.phone.theme import Layout, layout
from distrl.simulator.phone.ui import STATUS_H, Ui, nav_height, viewport

CELL_W, CELL_H, ICON = 90.0, 100.0, 60.0
DATE = "Tue, June 3"
DRAWER_LIST = "launcher.drawer"
"""The scroll offset of the drawer's list."""
_DRAWER_ROW = 112.0


def view(ui: Ui, apps: Sequence[App]) -> list[Node]:
    """The home page, or the drawer when it is open."""
    return _drawer(ui, apps) if ui.state["drawer"] else _home(ui, apps)


def _place(ui: Ui, y: float) -> float:
    """A top edge that counts from the status bar, or from the navigation bar when negative."""
    return STATUS_H + y if y >= 0 else ui.height - nav_height(ui.layout) + y


def _first_page(version: Layout) -> set[str]:
    return {name for row in (*version.grid, version.dock) for name in row}


def has_more(state: State) -> bool:
    """Whether there are apps that the first page has no place for."""
    return not set(state["installed"]) <= _first_page(layout(state["layout"]))


def turn(state: State, step: int) -> None:
    """Turns to another page of the home screen, if there is one."""
    if not state["drawer"]:
        state["home_page"] = min(max(0, state["home_page"] + step), int(has_more(state)))


def pull(state: State, is_open: bool) -> None:
    """Opens or closes the drawer; with nothing to close, the first page is shown."""
    if not is_open and not state["drawer"]:
        state["home_page"] = 0
    if state["drawer"] != is_open:
        close(state)
        state["drawer"] = is_open
        state["scrolls"].pop(DRAWER_LIST, None)


def close(state: State) -> None:
    """Closes the drawer, forgets what was searched there, and turns to the first page."""
    state["drawer"] = False
    state["home_page"] = 0
    state["fields"].pop(st.DRAWER_SEARCH, None)
    if state["focus"] == st.DRAWER_SEARCH:
        st.blur(state)


def _home(ui: Ui, apps: Sequence[App]) -> list[Node]:
    by_name = {app.name: app for app in apps}
    dark = ui.layout.dark
    ink = "#ffffff" if dark else "#10182b"
    dock_y = ui.height - nav_height(ui.layout) - 104
    if ui.layout.search_y < 0 and ui.layout.search_y > -100:
        dock_y -= 72
    if ui.state["home_page"] and has_more(ui.state):
        nodes = _second_page(ui, apps, dock_y)
    else:
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
    if has_more(ui.state):
        nodes += _dots(ui, dock_y + (95 if dark else 80), ink)
    return [Node(0, 0, WIDTH, ui.height, "view.View", "workspace", scroll="drawer", children=tuple(nodes))]


def _second_page(ui: Ui, apps: Sequence[App], dock_y: float) -> list[Node]:
    """What the first page has no place for, as many as there is room for; all are in the drawer."""
    first, top = _first_page(ui.layout), STATUS_H + 24
    rows = int((dock_y - top - 24) // CELL_H)
    shown = [app for app in apps if app.name not in first][: 4 * rows]
    height = CELL_H * ((len(shown) + 3) // 4) + 20
    ground = ui.theme.card + "d9"
    nodes = [Node(8, top, WIDTH - 16, height, "view.View", "home_page_2", fill=ground, radius=28)]
    for place, app in enumerate(shown):
        row, column = divmod(place, 4)
        x, y = 8 + column * (WIDTH - 16) / 4, top + 10 + row * CELL_H
        nodes.append(_icon(ui, app, x - 2, y, ui.theme.text, labelled=True))
    return nodes


def _dots(ui: Ui, y: float, ink: str) -> list[Node]:
    fills = (ink if place == ui.state["home_page"] else ink + "66" for place in range(2))
    return [
        Node(WIDTH / 2 - 10 + 14 * place, y, 6, 6, fill=fill, radius=3) for place, fill in enumerate(fills)
    ]


def _widget(ui: Ui, ink: str) -> list[Node]:
    y = _place(ui, ui.layout.widget_y)
    time = ui.text(28, y, WIDTH - 56, 64, clock_text(ui.time), 58, ink, rid="home_clock")
    city = ui.state["apps"]["weather"]["city"]
    date = ui.text(30, y + 64, 102, 28, DATE, 18, ink, rid="home_date")
    sky = image(134, y + 64, 28, 28, weather.forecast(city, 0)[0], 22, ink)
    warm = ui.text(166, y + 64, 80, 28, f"{weather.degrees(ui.state, city, 0)}°", 18, ink, rid="home_degrees")
    face = group(20, y - 6, WIDTH - 40, 104, "clock_widget", desc="Clock", tap=("system", "open", "clock"))
    return [face.with_children(time, date, sky, warm)]


def _search(ui: Ui) -> Node:
    y = _place(ui, ui.layout.search_y)
    theme = ui.theme
    glass = image(24 + 14, y, 28, 54, "search", color=theme.muted)
    hint = ui.text(24 + 54, y, 180, 54, "Search", 17, theme.muted)
    mic = image(WIDTH - 24 - 44, y, 28, 54, "mic", color=theme.primary)
    tap = ("system", "search")
    return group(
        24, y, WIDTH - 48, 54, "home_search", (glass, hint, mic), "Search the web", tap, theme.card, 27
    )


def _icon(ui: Ui, app: App, x: float, y: float, ink: str, labelled: bool) -> Node:
    children = [ui.app_icon(x + (CELL_W - ICON) / 2, y + 8, ICON, app.icon, 34, app.color)]
    is_fixed = app.name not in store_catalog.ENTRIES
    if labelled:
        margin = 0 if is_fixed else 4
        width = CELL_W - 2 * margin
        children.append(ui.text(x + margin, y + 72, width, 22, app.label, 14, ink, align="c"))
    h, label, tap = CELL_H - 2 if labelled else 80, app.label, ("system", "open", app.name)
    hold = () if is_fixed else ("system", "uninstall", app.name)
    look: dict[str, Any] = {"cls": "widget.TextView", "value": label, "hold": hold}
    return group(x + 3, y, CELL_W - 6, h, "app_" + app.name, children, label, tap, **look)


def _drawer(ui: Ui, apps: Sequence[App]) -> list[Node]:
    theme = ui.theme
    by_label = sorted(apps, key=lambda app: app.label)
    nodes = [Node(0, 0, WIDTH, ui.height, "view.View", "drawer", fill=theme.bg)]
    if has_more(ui.state):
        nodes += _long_list(ui, by_label)
    else:
        nodes.append(ui.text(24, STATUS_H + 16, WIDTH - 48, 48, "All apps", 26, rid="title"))
        nodes += _cells(ui, by_label, STATUS_H + 84)
    return [Node(0, 0, WIDTH, ui.height, "view.View", "workspace", scroll="drawer", children=tuple(nodes))]


def _cells(ui: Ui, apps: Sequence[App], top: float) -> list[Node]:
    return [
        _icon(ui, app, place % 4 * CELL_W, top + place // 4 * _DRAWER_ROW, ui.theme.text, labelled=True)
        for place, app in enumerate(apps)
    ]


def _long_list(ui: Ui, apps: Sequence[App]) -> list[Node]:
    wanted = st.text(ui.state, st.DRAWER_SEARCH).strip().lower()
    found = [app for app in apps if wanted in app.label.lower()]

    def build(y: float) -> tuple[Sequence[Node], float]:
        return _cells(ui, found, y + 8), y + 16 + (len(found) + 3) // 4 * _DRAWER_ROW

    top = STATUS_H + 76
    nodes = [viewport(ui, DRAWER_LIST, top, ui.bottom, build)]
    if not found:
        nodes += widgets.empty(ui, top + 80, "search", "No apps found")
    nodes.append(widgets.field(ui, STATUS_H + 12, st.DRAWER_SEARCH, "Search apps", icon="search", pill=True))
    return nodes
