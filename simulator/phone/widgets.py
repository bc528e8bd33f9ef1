"""Material 3 components that the apps share: app bar, list rows, switches, fields, FAB, tabs, snackbar."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.phone.fonts import text_width
from distrl.simulator.phone.nodes import WIDTH, Event, Node
from distrl.simulator.phone.ui import STATUS_H, Ui

BAR_H = 64.0
ROW_H = 72.0
FAB = 64.0
MARGIN = 16.0

Item = tuple[str, str, Event]
"""An icon, a label and the event of choosing it."""


def app_bar(ui: Ui, title: str, actions: Sequence[Node] = (), back: bool = True, fill: str = "") -> Node:
    """The bar under the status bar: back arrow, title, and up to two actions placed from the right."""
    top, children = STATUS_H, []
    if back:
        children.append(ui.icon_button(4, top + 8, "arrow_back", "Navigate up", ("system", "back"), "up"))
    children.append(ui.text(56 if back else 20, top, WIDTH - 170, BAR_H, title, 22, rid="title"))
    children.extend(actions)
    return Node(
        0,
        0,
        WIDTH,
        top + BAR_H,
        "view.ViewGroup",
        "app_bar",
        fill=fill or ui.theme.bg,
        children=tuple(children),
    )


def bar_save(ui: Ui, tap: Event, label: str = "Save") -> Node:
    """The form's save button where this layout has it: in the app bar or at the bottom."""
    if ui.layout.save == "top":
        return ui.button(WIDTH - 124, STATUS_H + 8, 112, label, tap, "save", h=48)
    return ui.button(WIDTH / 2, ui.bottom - 64, WIDTH / 2 - MARGIN, label, tap, "save")


def form_cancel(ui: Ui) -> Node:
    """The form's cancel button: at the bottom left."""
    return ui.button(
        MARGIN, ui.bottom - 64, WIDTH / 2 - 2 * MARGIN, "Cancel", ("system", "back"), "cancel", "tonal"
    )


def card(ui: Ui, y: float, h: float, children: Sequence[Node], rid: str = "", x: float = MARGIN) -> Node:
    """A rounded surface as wide as the screen less margins."""
    return Node(
        x, y, WIDTH - 2 * x, h, "view.ViewGroup", rid, fill=ui.theme.card, radius=24, children=tuple(children)
    )


def row(
    ui: Ui,
    y: float,
    title: str,
    subtitle: str = "",
    *,
    lead: Node | None = None,
    trail: Node | None = None,
    tap: Event = (),
    rid: str = "",
    checked: bool | None = None,
    h: float = ROW_H,
    x: float = MARGIN,
    fill: str = "",
) -> Node:
    """A list row: `lead` (placed by the caller) on the left, title and subtitle, `trail` on the right."""
    left = x + 16 if lead is None else max(x + 16, lead.x + lead.w + 16)
    right = WIDTH - x - 16 if trail is None or trail.x < left else trail.x - 8
    parts = [node for node in (lead, trail) if node is not None]
    if subtitle:
        parts.append(ui.text(left, y + h / 2 - 24, right - left, 24, title, 17))
        parts.append(ui.text(left, y + h / 2, right - left, 22, subtitle, 14, ui.theme.muted))
    else:
        parts.append(ui.text(left, y, right - left, h, title, 17))
    return Node(
        x,
        y,
        WIDTH - 2 * x,
        h,
        "view.ViewGroup",
        rid,
        desc=title,
        tap=tap,
        checked=checked,
        fill=fill,
        radius=20 if fill else 0,
        children=tuple(parts),
    )


def switch(ui: Ui, x: float, y: float, on: bool) -> Node:
    """A Material 3 switch, 52 by 32 dp (the row around it takes the tap)."""
    theme = ui.theme
    thumb = 24.0 if on else 16.0
    left = x + (52 - 4 - thumb if on else 8)
    knob = Node(
        left,
        y + 16 - thumb / 2,
        thumb,
        thumb,
        fill=theme.on_primary if on else theme.muted,
        radius=thumb / 2,
        icon="check" if on else "",
        icon_size=16,
        color=theme.primary,
    )
    return Node(
        x,
        y,
        52,
        32,
        "widget.Switch",
        fill=theme.primary if on else theme.raised,
        border="" if on else theme.muted,
        radius=16,
        children=(knob,),
    )


def switch_row(
    ui: Ui,
    y: float,
    title: str,
    subtitle: str,
    on: bool,
    tap: Event,
    rid: str,
    fill: str = "",
    h: float = ROW_H,
) -> Node:
    """A row that turns something on or off; the switch stands where this layout has it."""
    x = MARGIN + 16 if ui.layout.switch_left else WIDTH - MARGIN - 68
    knob = switch(ui, x, y + h / 2 - 16, on)
    lead, trail = (knob, None) if ui.layout.switch_left else (None, knob)
    return row(ui, y, title, subtitle, lead=lead, trail=trail, tap=tap, rid=rid, checked=on, fill=fill, h=h)


def field(
    ui: Ui,
    y: float,
    key: str,
    hint: str,
    *,
    x: float = MARGIN,
    w: float = WIDTH - 2 * MARGIN,
    h: float = 56,
    icon: str = "",
    pill: bool = False,
    rid: str = "",
) -> Node:
    """A text field; a tap gives it the focus."""
    theme, focused = ui.theme, ui.state["focus"] == key
    value = ui.state["fields"].get(key, "")
    left = x + (52 if icon else 20)
    parts = []
    if icon:
        parts.append(Node(x + 14, y, 28, h, "widget.ImageView", icon=icon, color=theme.muted))
    room = x + w - left - 14
    if focused:
        cursor = min(room, text_width(value, False, 17))
        parts.append(Node(left + cursor + 1, y + h / 2 - 12, 2, 24, fill=theme.primary))
    if value or not focused:
        parts.append(ui.text(left, y, room, h, value or hint, 17, theme.text if value else theme.muted))
    return Node(
        x,
        y,
        w,
        h,
        "widget.EditText",
        rid or key.replace(".", "_"),
        value=value,
        desc=hint,
        field=key,
        focused=focused,
        fill=theme.card,
        border=theme.primary if focused else ("" if pill else theme.line),
        radius=h / 2 if pill else 16,
        children=tuple(parts),
    )


def fab(ui: Ui, icon: str, desc: str, tap: Event, rid: str, bottom: float | None = None) -> Node:
    """The floating action button, on this layout's side."""
    x = {"left": MARGIN, "center": (WIDTH - FAB) / 2, "right": WIDTH - FAB - MARGIN}[ui.layout.fab]
    y = (ui.bottom if bottom is None else bottom) - FAB - MARGIN
    theme = ui.theme
    return Node(
        x,
        y,
        FAB,
        FAB,
        "widget.ImageButton",
        rid,
        desc=desc,
        tap=tap,
        fill=theme.primary,
        radius=20,
        shadow=4,
        icon=icon,
        icon_size=30,
        color=theme.on_primary,
    )


def tab_bar(ui: Ui, y: float, items: Sequence[Item], chosen: int, h: float = 72) -> Node:
    """Tabs with icons: a navigation bar at the bottom, or tabs at the top, as the caller places it."""
    theme, width = ui.theme, WIDTH / len(items)
    cells = []
    for index, (icon, label, tap) in enumerate(items):
        x, on = index * width, index == chosen
        pill = Node(
            x + width / 2 - 32,
            y + 8,
            64,
            32,
            "widget.ImageView",
            fill=theme.tint if on else "",
            radius=16,
            icon=icon,
            color=theme.on_tint if on else theme.muted,
        )
        name = ui.text(x, y + 42, width, 22, label, 13, theme.text if on else theme.muted, on, "c")
        cells.append(
            Node(
                x,
                y,
                width,
                h,
                "view.ViewGroup",
                "tab_" + label.lower(),
                desc=label,
                tap=tap,
                checked=on,
                children=(pill, name),
            )
        )
    return Node(0, y, WIDTH, h, "view.ViewGroup", "tabs", fill=theme.raised, children=tuple(cells))


def avatar(x: float, y: float, d: float, name: str, color: str) -> Node:
    """A coloured disc with the name's first letter."""
    return Node(
        x,
        y,
        d,
        d,
        "widget.ImageView",
        text=name[:1].upper(),
        fill=color,
        radius=d / 2,
        size=d * 0.46,
        color="#ffffff",
        bold=True,
        align="c",
    )


def empty(ui: Ui, y: float, icon: str, message: str) -> list[Node]:
    """What an empty list shows."""
    return [
        ui.disc(WIDTH / 2 - 40, y, 80, icon, ui.theme.tint, ui.theme.on_tint),
        ui.text(40, y + 92, WIDTH - 80, 48, message, 16, ui.theme.muted, align="c", lines=2),
    ]


def toast(ui: Ui, message: str) -> Node:
    """The short message that floats above tabs and action buttons."""
    ground, ink = ("#e3e5ec", "#22252b") if ui.theme.dark else ("#2e3138", "#f2f3f8")
    width = min(WIDTH - 2 * MARGIN, text_width(message, False, 15) + 48)
    x, y = (WIDTH - width) / 2, ui.bottom - 208
    label = ui.text(x + 20, y, width - 40, 44, message, 15, ink, align="c")
    return Node(
        x, y, width, 44, "view.ViewGroup", "toast", fill=ground, radius=22, shadow=3, children=(label,)
    )
