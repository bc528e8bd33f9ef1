"""The notification shade: quick settings, brightness, and the list of notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrl.simulator.apps import APPS, launcher, settings
from distrl.simulator.phone import state as st
from distrl.simulator.phone import system
from distrl.simulator.phone.nodes import WIDTH, Arg, Node, group, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, nav_height, viewport

LIST = "shade.list"
"""The scroll offset of the list of notifications."""
TILES = (
    ("wifi", "Wi-Fi", "wifi", "network"),
    ("bluetooth", "Bluetooth", "bluetooth", "devices"),
    ("flashlight", "Flashlight", "flashlight_on", ""),
    ("dnd", "Do Not Disturb", "do_not_disturb_on", "sound"),
    ("airplane", "Airplane mode", "airplanemode_active", "network"),
    ("rotate", "Auto-rotate", "screen_rotation", "display"),
    ("data", "Mobile data", "signal_cellular_alt", "network"),
    ("saver", "Battery saver", "battery_saver", "battery"),
)
"""Key, label, icon, and the page of the settings that a long press opens; the flashlight is not a setting."""
_TOP = STATUS_H + 48


def view(ui: Ui) -> list[Node]:
    """The shade over the whole screen."""
    ink = ui.theme.text
    tiles, y = _pills(ui) if ui.layout.nav == "gesture" else _discs(ui)
    nodes = [ui.text(24, STATUS_H + 4, 200, 40, launcher.DATE, 18, ink, rid="shade_date"), *tiles]
    nodes += _brightness(ui, y + 4)
    y += 64
    notices = ui.state["notifications"]
    title = "Notifications" if notices else "No notifications"
    nodes.append(ui.text(24, y, 200, 48, title, 15, ui.theme.muted, True, rid="shade_title"))
    if notices:
        nodes.append(
            ui.button(WIDTH - 128, y, 112, "Clear all", ("shade", "clear"), "clear_all", "text", 48, 15)
        )
    bottom = ui.height - nav_height(ui.layout)
    nodes.append(viewport(ui, LIST, y + 52, bottom, lambda top: _list(ui, top)))
    nodes.append(system.status_bar(ui, ink))
    return [
        Node(0, 0, WIDTH, ui.height, "widget.FrameLayout", "shade", fill=ui.theme.bg, children=tuple(nodes))
    ]


def is_on(state: State, key: str) -> bool:
    """Whether a tile is on."""
    return bool(state["flashlight"] if key == "flashlight" else state["apps"]["settings"][key])


def _pills(ui: Ui) -> tuple[list[Node], float]:
    """Two columns of wide tiles; the nodes and where they end."""
    theme, width, nodes = ui.theme, (WIDTH - 40) / 2, []
    for place, (key, label, icon, section) in enumerate(TILES):
        x, y = 16 + (width + 8) * (place % 2), _TOP + 64 * (place // 2)
        on = is_on(ui.state, key)
        ink = theme.on_primary if on else theme.text
        parts = (
            image(x + 14, y, 28, 56, icon, 22, ink),
            ui.text(x + 50, y + 8, width - 58, 22, label, 14, ink, True),
            ui.text(x + 50, y + 28, width - 58, 20, "On" if on else "Off", 13, ink),
        )
        nodes.append(
            _tile(x, y, width, 56, key, label, on, section).with_children(
                Node(x, y, width, 56, fill=theme.primary if on else theme.raised, radius=28), *parts
            )
        )
    return nodes, _TOP + 64 * 4


def _discs(ui: Ui) -> tuple[list[Node], float]:
    """Two rows of round tiles with their names below; the nodes and where they end."""
    theme, nodes = ui.theme, []
    for place, (key, label, icon, section) in enumerate(TILES):
        x, y = 8 + 86 * (place % 4), _TOP + 98 * (place // 4)
        on = is_on(ui.state, key)
        color = theme.on_primary if on else theme.text
        disc = image(x + 15, y + 2, 56, 56, icon, 26, color, theme.primary if on else theme.raised, 28)
        name = ui.text(x + 4, y + 60, 78, 32, label, 12, align="c", lines=2)
        nodes.append(_tile(x, y, 86, 94, key, label, on, section).with_children(disc, name))
    return nodes, _TOP + 98 * 2


def _tile(x: float, y: float, w: float, h: float, key: str, label: str, on: bool, section: str) -> Node:
    hold = ("shade", "section", section) if section else ()
    tap = ("shade", "toggle", key)
    return Node(x, y, w, h, "widget.Switch", "tile_" + key, desc=label, tap=tap, hold=hold, checked=on)


def _brightness(ui: Ui, y: float) -> list[Node]:
    x, w, value = 24.0, WIDTH - 48, ui.state["apps"]["settings"]["brightness"]
    theme = ui.theme
    filled = max(44.0, w * value / 100)
    parts = [
        Node(x, y + 6, w, 40, fill=theme.raised, radius=20),
        Node(x, y + 6, filled, 40, fill=theme.primary, radius=20),
        image(x + 8, y + 6, 28, 40, "brightness_6", 20, theme.on_primary),
    ]
    for step in range(10):
        percent, left = 10 * step + 10, x + w * step / 10
        rid, desc, tap = f"slider_shade_{percent}", f"Brightness {percent}%", ("shade", "brightness", percent)
        parts.append(Node(left, y, w / 10, 52, "widget.SeekBar", rid, desc=desc, tap=tap))
    return parts


def _list(ui: Ui, y: float) -> tuple[Sequence[Node], float]:
    nodes = []
    for place, notice in enumerate(ui.state["notifications"]):
        app, top = APPS[notice["app"]], y + 80 * place
        parts = (
            ui.disc(32, top + 16, 40, app.icon, app.color),
            ui.text(84, top + 12, WIDTH - 120, 24, notice["title"], 16, bold=True),
            ui.text(84, top + 37, WIDTH - 120, 22, notice["text"], 14, ui.theme.muted),
        )
        tap, rid, title = ("shade", "open", place), f"notification_{place}", notice["title"]
        look: dict[str, Any] = {"cls": "widget.FrameLayout", "swipe": ("shade", "drop", place)}
        nodes.append(group(16, top, WIDTH - 32, 72, rid, parts, title, tap, ui.theme.card, 20, **look))
    return nodes, y + 80 * len(nodes) + 8


def act(state: State, verb: str, args: tuple[Arg, ...]) -> None:
    """Turns a setting on or off, opens or drops a notification, or clears the list."""
    if verb == "toggle":
        key = str(args[0])
        if key == "flashlight":
            state["flashlight"] = not state["flashlight"]
        else:
            settings.APP.act(state, "toggle", (key,))
    elif verb == "brightness":
        state["apps"]["settings"]["brightness"] = int(args[0])
    elif verb == "section":
        _close(state)
        st.reset(state, "settings", ["section", str(args[0])])
        st.show(state, "settings")
    elif verb == "clear":
        state["notifications"] = []
    else:
        notice = state["notifications"].pop(int(args[0]))
        if verb == "open":
            _close(state)
            state["opened"].append(notice)
            st.show(state, notice["app"])


def _close(state: State) -> None:
    state["shade"] = False
    launcher.close(state)
