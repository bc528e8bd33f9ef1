"""`Ui`: what a view sees of the phone, and basic builders (text, icons, buttons) in its colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distrl.simulator.phone import theme
from distrl.simulator.phone.nodes import WIDTH, Event, Node, button, icon_button, image, text_box
from distrl.simulator.phone.state import State, now
from distrl.simulator.phone.theme import Layout, Theme, layout

STATUS_H = 32.0
"""Height of the status bar in dp."""


@dataclass(frozen=True)
class Ui:
    """The context of one screen; `bottom` is where the app's area ends, above the keyboard."""

    state: State
    layout: Layout
    theme: Theme
    height: float
    bottom: float

    @property
    def time(self) -> int:
        """Minutes after midnight."""
        return now(self.state)

    def text(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str,
        size: float = 16,
        color: str = "",
        bold: bool = False,
        align: str = "l",
        lines: int = 1,
        rid: str = "",
        top: bool = False,
    ) -> Node:
        """A label; `color` defaults to the primary text colour."""
        ink = color or self.theme.text
        return text_box(x, y, w, h, text, size, ink, rid=rid, bold=bold, align=align, lines=lines, top=top)

    def legible(self, color: str, ground: str = "") -> str:
        """`color` with enough contrast to `ground`, by default a card."""
        return theme.legible(color, ground or self.theme.card)

    def icon_button(
        self, x: float, y: float, icon: str, desc: str, tap: Event, rid: str, color: str = ""
    ) -> Node:
        """A 48 dp icon button."""
        return icon_button(x, y, 48, icon, desc, tap, rid, color or self.theme.text)

    def disc(self, x: float, y: float, d: float, icon: str, fill: str, color: str = "#ffffff") -> Node:
        """A filled circle with an icon."""
        return image(x, y, d, d, icon, d * 0.56, color, fill, d / 2)

    def app_icon(self, x: float, y: float, d: float, icon: str, size: float, color: str) -> Node:
        """The icon of an app in the form of this layout's icons."""
        return image(x, y, d, d, icon, size, "#ffffff", color, self.layout.icon_radius * d / 56)

    def button(
        self,
        x: float,
        y: float,
        w: float,
        label: str,
        tap: Event,
        rid: str,
        style: str = "filled",
        h: float = 52,
        size: float = 16,
    ) -> Node:
        """A pill button: "filled", "tonal", "outlined" or "text"."""
        theme = self.theme
        fill, color = {
            "filled": (theme.primary, theme.on_primary),
            "tonal": (theme.tint, theme.on_tint),
            "outlined": ("", theme.primary),
            "text": ("", theme.primary),
        }[style]
        border = theme.line if style == "outlined" else ""
        return button(x, y, w, h, label, tap, rid, size, color, fill, h / 2, border, bold=True)


def context(state: State, height: float, keyboard_h: float) -> Ui:
    """The `Ui` of a state on a screen `height` dp high."""
    version = layout(state["layout"])
    nav_h = nav_height(version)
    bottom = height - nav_h - (keyboard_h if state["focus"] else 0)
    return Ui(state, version, version.theme(state["apps"]["settings"]["dark"]), height, bottom)


def nav_height(version: Layout) -> float:
    """Height of the navigation bar in dp."""
    return 24.0 if version.nav == "gesture" else 52.0


def viewport(
    ui: Ui,
    key: str,
    top: float,
    bottom: float,
    build: Callable[[float], tuple[Sequence[Node], float]],
    at_end: bool = False,
) -> Node:
    """A vertically scrolling area.

    Args:
        build: Given the y at which the content starts, its nodes and the y at which it ends.
        at_end: Whether it shows its end until it is scrolled.
    """
    _, end = build(top)
    extent = max(0.0, float(round(end - bottom)))
    offset = min(float(ui.state["scrolls"].get(key, extent if at_end else 0)), extent)
    nodes, _ = build(top - offset)
    shown = tuple(node for node in nodes if node.y < bottom and node.y + node.h > top)
    return Node(
        0,
        top,
        WIDTH,
        bottom - top,
        "widget.ScrollView",
        key.replace(".", "_") + "_list",
        scroll=key if extent else "",
        extent=extent,
        offset=offset,
        clip=True,
        children=shown,
    )
