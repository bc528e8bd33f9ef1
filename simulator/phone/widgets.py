"""Material 3 components for all apps: bars, rows, fields, buttons, forms, searches, menus, dialogs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distrl.simulator.phone import state as st
from distrl.simulator.phone.fonts import text_width
from distrl.simulator.phone.nodes import WIDTH, Event, Node, button, group, icon_button, image, text_box
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

BAR_H = 64.0
TOP = STATUS_H + BAR_H
"""Where an app's page begins, below its bar."""
ROW_H = TAB_H = 72.0
FAB = 64.0
MARGIN = 16.0
T = TypeVar("T")
Item = tuple[str, str, Event]
"""An icon, a label and the event of choosing it."""


def app_bar(ui: Ui, title: str, actions: Sequence[Node] = (), back: bool = True, fill: str = "") -> Node:
    """The bar under the status bar: back arrow, title, and up to two actions placed from the right."""
    top, children = STATUS_H, []
    if back:
        children.append(ui.icon_button(4, top + 8, "arrow_back", "Navigate up", ("system", "back"), "up"))
    children.append(ui.text(56 if back else 20, top, WIDTH - 170, BAR_H, title, 22, rid="title"))
    children.extend(actions)
    return group(0, 0, WIDTH, top + BAR_H, "app_bar", children, fill=fill or ui.theme.bg)


def card(ui: Ui, y: float, h: float, children: Sequence[Node], rid: str = "", x: float = MARGIN) -> Node:
    """A rounded surface as wide as the screen less margins."""
    return group(x, y, WIDTH - 2 * x, h, rid, children, fill=ui.theme.card, radius=24)


def row(
    ui: Ui,
    y: float,
    title: str,
    subtitle: str = "",
    *,
    lead: Node | tuple[str, ...] | None = None,
    trail: Node | None = None,
    tap: Event = (),
    rid: str = "",
    checked: bool | None = None,
    h: float = ROW_H,
    flat: bool = False,
) -> Node:
    """A list row: `lead` on the left, title and subtitle, `trail` on the right; on a card unless `flat`.

    Args:
        lead: Placed by the caller; or icon and colours of a disc of 44 dp.
    """
    x, fill = MARGIN, "" if flat else ui.theme.card
    if isinstance(lead, tuple):
        lead = ui.disc(x + 14, y + (h - 44) / 2, 44, *lead)
    left = x + 16 if lead is None else max(x + 16, lead.x + lead.w + 16)
    right = WIDTH - x - 16 if trail is None or trail.x < left else trail.x - 8
    parts = [node for node in (lead, trail) if node is not None]
    if subtitle:
        parts.append(ui.text(left, y + h / 2 - 24, right - left, 24, title, 17))
        parts.append(ui.text(left, y + h / 2, right - left, 22, subtitle, 14, ui.theme.muted))
    else:
        parts.append(ui.text(left, y, right - left, h, title, 17))
    return group(x, y, WIDTH - 2 * x, h, rid, parts, title, tap, fill, 20 if fill else 0, checked=checked)


def switch(ui: Ui, x: float, y: float, on: bool) -> Node:
    """A Material 3 switch, 52 by 32 dp (the row around it takes the tap)."""
    theme = ui.theme
    d = 24.0 if on else 16.0
    left = x + (52 - 4 - d if on else 8)
    color, icon = theme.on_primary if on else theme.muted, "check" if on else ""
    look: dict[str, Any] = {"icon": icon, "icon_size": 16, "color": theme.primary}
    knob = Node(left, y + 16 - d / 2, d, d, fill=color, radius=d / 2, **look)
    fill = theme.primary if on else theme.raised
    border = "" if on else theme.muted
    return Node(x, y, 52, 32, "widget.Switch", fill=fill, border=border, radius=16, children=(knob,))


def switch_row(ui: Ui, y: float, title: str, subtitle: str, on: bool, tap: Event, rid: str) -> Node:
    """A row that turns something on or off; the switch stands where this layout has it."""
    x = MARGIN + 16 if ui.layout.switch_left else WIDTH - MARGIN - 68
    knob = switch(ui, x, y + 26, on)
    lead, trail = (knob, None) if ui.layout.switch_left else (None, knob)
    return row(ui, y, title, subtitle, lead=lead, trail=trail, tap=tap, rid=rid, checked=on, h=84)


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
        parts.append(image(x + 14, y, 28, h, icon, color=theme.muted))
    room = x + w - left - 14
    if focused:
        cursor = min(room, text_width(value, False, 17))
        parts.append(Node(left + cursor + 1, y + h / 2 - 12, 2, 24, fill=theme.primary))
    if value or not focused:
        parts.append(ui.text(left, y, room, h, value or hint, 17, theme.text if value else theme.muted))
    border = theme.primary if focused else "" if pill else theme.line
    look: dict[str, Any] = {"cls": "widget.EditText", "field": key, "value": value, "focused": focused}
    look |= {"fill": theme.card, "border": border, "radius": h / 2 if pill else 16}
    return group(x, y, w, h, rid or key.replace(".", "_"), parts, hint, **look)


def fab(ui: Ui, icon: str, desc: str, tap: Event, rid: str, bottom: float | None = None) -> Node:
    """The floating action button, on this layout's side."""
    x = {"left": MARGIN, "center": (WIDTH - FAB) / 2, "right": WIDTH - FAB - MARGIN}[ui.layout.fab]
    y = (ui.bottom if bottom is None else bottom) - FAB - MARGIN
    theme = ui.theme
    return icon_button(
        x, y, FAB, icon, desc, tap, rid, theme.on_primary, theme.primary, 30, radius=20, shadow=4
    )


def tab_bar(ui: Ui, y: float, items: Sequence[Item], chosen: int) -> Node:
    """Tabs with icons: a navigation bar at the bottom, or tabs at the top, as the caller places it."""
    theme, width = ui.theme, WIDTH / len(items)
    cells = []
    for index, (icon, label, tap) in enumerate(items):
        x, on = index * width, index == chosen
        color = theme.on_tint if on else theme.muted
        pill = image(
            x + width / 2 - 32, y + 8, 64, 32, icon, color=color, fill=theme.tint if on else "", radius=16
        )
        name = ui.text(x, y + 42, width, 22, label, 13, theme.text if on else theme.muted, on, "c")
        cells.append(group(x, y, width, TAB_H, "tab_" + label.lower(), (pill, name), label, tap, checked=on))
    return group(0, y, WIDTH, TAB_H, "tabs", cells, fill=theme.raised)


def tabbed(
    ui: Ui, title: str, items: Sequence[Item], chosen: int, gap: float
) -> tuple[list[Node], float, float]:
    """An app's bar and its tabs where this layout has them; and the top and bottom of the area between."""
    if ui.layout.tabs == "bottom":
        bottom = ui.bottom - TAB_H
        return [app_bar(ui, title, back=False), tab_bar(ui, bottom, items, chosen)], TOP, bottom
    bar = Node(0, 0, WIDTH, STATUS_H, fill=ui.theme.raised)
    return [bar, tab_bar(ui, STATUS_H, items, chosen)], STATUS_H + TAB_H + gap, ui.bottom


def avatar(x: float, y: float, d: float, name: str, color: str) -> Node:
    """A coloured disc with the name's first letter."""
    face, text = "widget.ImageView", name[:1].upper()
    return text_box(x, y, d, d, text, d * 0.46, "#ffffff", color, d / 2, bold=True, cls=face)


def empty(ui: Ui, y: float, icon: str, message: str) -> list[Node]:
    """What an empty list shows."""
    return [
        ui.disc(WIDTH / 2 - 40, y, 80, icon, ui.theme.tint, ui.theme.on_tint),
        ui.text(40, y + 92, WIDTH - 80, 48, message, 16, ui.theme.muted, align="c", lines=2),
    ]


def listing(
    ui: Ui,
    key: str,
    pitch: float,
    entries: Sequence[T],
    make: Callable[[float, int, T], Node],
    *,
    top: float = TOP,
    bottom: float | None = None,
    head: float = 0,
    foot: float = 0,
    none: tuple[str, str] = ("", ""),
    none_y: float = 80,
) -> Node:
    """A scrolling list: `make(y, place, entry)` for each entry, `pitch` dp apart.

    Args:
        head, foot: Room above and below the rows.
        none: The icon and the message of an empty list, `none_y` below its top.
    """

    def build(y: float) -> tuple[Sequence[Node], float]:
        if none[0] and not entries:
            return empty(ui, y + none_y, *none), y + 240
        rows = [make(y + head + pitch * place, place, entry) for place, entry in enumerate(entries)]
        return rows, y + head + pitch * len(rows) + foot

    return viewport(ui, key, top, ui.bottom if bottom is None else bottom, build)


def toast(ui: Ui, message: str) -> Node:
    """The short message that floats above tabs and action buttons."""
    ground, ink = ("#e3e5ec", "#22252b") if ui.theme.dark else ("#2e3138", "#f2f3f8")
    width = min(WIDTH - 2 * MARGIN, text_width(message, False, 15) + 48)
    x, y = (WIDTH - width) / 2, ui.bottom - 208
    label = ui.text(x + 20, y, width - 40, 44, message, 15, ink, align="c")
    return group(x, y, width, 44, "toast", (label,), fill=ground, radius=22, shadow=3)


def form(ui: Ui, title: str, nodes: Sequence[Node], save: Event, label: str = "Save") -> list[Node]:
    """A form's page: its fields, and where this layout has them, the buttons to save and to cancel."""
    if ui.layout.save == "top":
        button = ui.button(WIDTH - 124, STATUS_H + 8, 112, label, save, "save", h=48)
        return [*nodes, app_bar(ui, title, [button])]
    y, half, back = ui.bottom - 64, WIDTH / 2, ("system", "back")
    cancel = ui.button(MARGIN, y, half - 2 * MARGIN, "Cancel", back, "cancel", "tonal")
    return [*nodes, app_bar(ui, title), cancel, ui.button(half, y, half - MARGIN, label, save, "save")]


def clearable(ui: Ui, y: float, key: str, hint: str, icon: str = "") -> list[Node]:
    """A text field 60 dp high; once it holds text, a button beside it empties it."""
    wide = WIDTH - 2 * MARGIN
    if not st.text(ui.state, key):
        return [field(ui, y, key, hint, icon=icon, h=60, w=wide)]
    name = "clear_" + key.split(".")[-1]
    box = field(ui, y, key, hint, icon=icon, h=60, w=wide - 56)
    return [box, ui.icon_button(WIDTH - 60, y + 6, "close", f"Clear {hint}", ("clear", key), name)]


def clear(state: State, key: str) -> None:
    """Empties a field and gives it the focus."""
    state["fields"][key] = ""
    st.focus(state, key)


def search_bar(ui: Ui, app: str, hint: str) -> Node:
    """An app bar with a search field, whose key is "<app>.search"."""
    up = ui.icon_button(4, STATUS_H + 8, "arrow_back", "Navigate up", ("system", "back"), "up")
    box = field(
        ui, STATUS_H + 6, app + ".search", hint, x=56, w=WIDTH - 72, h=52, pill=True, rid="search_field"
    )
    return group(0, 0, WIDTH, TOP, "app_bar", (up, box), fill=ui.theme.bg)


def start_search(state: State, app: str) -> None:
    """Opens the app's page "search" with an empty, focused field."""
    st.open_form(state, app, ["search"], {app + ".search": ""}, app + ".search")


def asked(state: State, app: str, *texts: str) -> bool:
    """Whether what is in the app's search field occurs in one of `texts`."""
    query = " ".join(st.text(state, app + ".search").split()).lower()
    return bool(query) and any(query in text.lower() for text in texts)


def chip(ui: Ui, x: float, y: float, w: float, label: str, tap: Event, rid: str, on: bool) -> Node:
    """A choice among others, 48 dp high."""
    theme = ui.theme
    color, fill = (theme.on_primary, theme.primary) if on else (theme.text, theme.card)
    look: dict[str, Any] = {
        "border": "" if on else theme.line,
        "cls": "widget.CheckBox",
        "checked": on,
        "bold": on,
    }
    return button(x, y, w, 48, label, tap, rid, 15, color, fill, 24, **look)


def chips(
    ui: Ui, y: float, labels: Sequence[str], taps: Sequence[Event], rids: Sequence[str], on: Sequence[bool]
) -> list[Node]:
    """A line of equally wide chips over the width of the screen."""
    pitch = (WIDTH - 2 * MARGIN + 6) / len(labels)
    return [
        chip(ui, MARGIN + pitch * place, y, pitch - 6, label, tap, rid, chosen)
        for place, (label, tap, rid, chosen) in enumerate(zip(labels, taps, rids, on, strict=True))
    ]


def stepper(ui: Ui, y: float, label: str, value: str, less: Event, more: Event, rid: str) -> Node:
    """A card with a value and, beside it, buttons for the one before and the one after."""
    x = MARGIN
    parts = (
        ui.text(x + 68, y + 8, WIDTH - 2 * x - 136, 24, label.capitalize(), 14, ui.theme.muted, align="c"),
        ui.text(x + 68, y + 32, WIDTH - 2 * x - 136, 34, value, 19, align="c", rid=rid),
        ui.icon_button(x + 12, y + 13, "chevron_left", f"Earlier {label}", less, rid + "_less"),
        ui.icon_button(WIDTH - x - 60, y + 13, "chevron_right", f"Later {label}", more, rid + "_more"),
    )
    return card(ui, y, 74, parts)


def radio_row(ui: Ui, y: float, label: str, tap: Event, rid: str, on: bool) -> Node:
    """One of several options, of which one is chosen."""
    icon = "radio_button_checked" if on else "radio_button_unchecked"
    return _choice_row(ui, y, label, tap, rid, on, "widget.RadioButton", icon)


def tick_row(ui: Ui, y: float, label: str, tap: Event, rid: str, on: bool) -> Node:
    """A line of a checklist."""
    icon = "check_box" if on else "check_box_outline_blank"
    return _choice_row(ui, y, label, tap, rid, on, "widget.CheckBox", icon)


def _choice_row(ui: Ui, y: float, label: str, tap: Event, rid: str, on: bool, cls: str, icon: str) -> Node:
    theme = ui.theme
    sign = Node(MARGIN + 16, y, 28, 64, cls, icon=icon, color=theme.primary if on else theme.muted)
    return row(ui, y, label, lead=sign, tap=tap, rid=rid, checked=on, h=64)


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
        sign = image(x + 16, top, 24, _ITEM_H, icon, color=theme.muted)
        name = ui.text(x + 56, top, _MENU_W - 72, _ITEM_H, label, 16)
        rows.append(group(x, top, _MENU_W, _ITEM_H, rid, (sign, name), label, event))
    height = 16 + _ITEM_H * len(rows)
    sheet = group(x, y, _MENU_W, height, "menu", rows, fill=theme.raised, radius=18, shadow=4)
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
    sheet = group(x, y, w, h, "dialog", parts, fill=theme.raised, radius=28, shadow=4)
    return _over(ui, under, sheet)
