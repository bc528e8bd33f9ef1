"""The small apps of the store: checklists, readers, counters, players and a game, each with a sign-in page.

What an app shows is in its entry of the store; `_PAGES` says how each kind of page looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from distrl.simulator.apps.base import App, Args
from distrl.simulator.apps.store_catalog import ENTRIES, Entry
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Event, Node, icon_button, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.phone.widgets import TOP, T

_NEIGHBOURS = ((0, 1, 3), (0, 1, 2, 4), (1, 2, 5), (0, 3, 4, 6), (1, 3, 4, 5, 7), (2, 4, 5, 8), (3, 6, 7))
_LIGHTS = (*_NEIGHBOURS, (4, 6, 7, 8), (5, 7, 8))
"""Which lights of the three by three a touch turns over."""


def user_field(app: str) -> str:
    """The key of the sign-in page's first field."""
    return app + ".user"


def password_field(app: str) -> str:
    """The key of the sign-in page's second field."""
    return app + ".password"


def _view(entry: Entry, ui: Ui) -> list[Node]:
    page = st.page(ui.state, entry.name)
    if page[0] == "sign_in":
        return _sign_in(entry, ui)
    if page[0] == "item":
        return _item(entry, ui, int(page[1]))
    user = ui.state["apps"][entry.name]["user"]
    who = "Account of " + user if user else "Sign in"
    account = ui.icon_button(
        WIDTH - 56, STATUS_H + 8, "account_circle", who, (entry.name, "account"), "account"
    )
    bar = widgets.app_bar(ui, entry.label, [account], back=False)
    return [*_PAGES[entry.kind](entry, ui), bar]


def _sign_in(entry: Entry, ui: Ui) -> list[Node]:
    data, name = ui.state["apps"][entry.name], entry.name
    if data["user"]:
        return [
            *widgets.empty(ui, TOP + 60, "account_circle", f"Signed in as {data['user']}"),
            ui.button(60, TOP + 230, WIDTH - 120, "Sign out", (name, "sign_out"), "sign_out", "outlined"),
            widgets.app_bar(ui, "Account"),
        ]
    return [
        widgets.field(ui, TOP + 16, user_field(name), "User name or email", icon="person", rid="user_name"),
        widgets.field(ui, TOP + 88, password_field(name), "Password", icon="lock", rid="password"),
        ui.button(16, TOP + 164, WIDTH - 32, "Sign in", (name, "sign_in"), "sign_in"),
        ui.text(16, TOP + 228, WIDTH - 32, 24, f"Welcome to {entry.label}", 14, ui.theme.muted, align="c"),
        widgets.app_bar(ui, "Sign in"),
    ]


def _rows(
    ui: Ui, name: str, entries: Sequence[T], make: Callable[[float, int, T], Node], top: float = TOP
) -> Node:
    return widgets.listing(ui, name + ".list", 80, entries, make, top=top, head=8, foot=8)


def _checklist(entry: Entry, ui: Ui) -> list[Node]:
    name = entry.name

    def row(y: float, place: int, item: tuple[str, bool]) -> Node:
        text, done = item
        icon = "check_box" if done else "check_box_outline_blank"
        box = Node(36, y, 28, 72, "widget.CheckBox", icon=icon, color=ui.theme.primary)
        return widgets.row(
            ui, y, text, lead=box, tap=(name, "tick", place), rid=f"item_{place}", checked=done
        )

    field = widgets.field(ui, TOP + 4, name + ".new", "Add an item", icon="add", rid="new_item")
    return [_rows(ui, name, ui.state["apps"][name]["items"], row, TOP + 64), field]


def _sign(entry: Entry, ui: Ui, y: float) -> Node:
    return ui.disc(32, y + 14, 44, entry.icon, entry.color)


def _reader(entry: Entry, ui: Ui) -> list[Node]:
    saved, name = ui.state["apps"][entry.name]["saved"], entry.name

    def row(y: float, place: int, line: str) -> Node:
        note = "Saved" if place in saved else f"{3 + 2 * place} min"
        lead, tap = _sign(entry, ui, y), (name, "read", place)
        return widgets.row(ui, y, line, note, lead=lead, tap=tap, rid=f"item_{place}")

    return [_rows(ui, name, entry.lines, row)]


def _item(entry: Entry, ui: Ui, place: int) -> list[Node]:
    is_saved = place in ui.state["apps"][entry.name]["saved"]
    banner = image(16, TOP + 8, WIDTH - 32, 160, fill=entry.color, radius=24)
    words = f"{entry.summary} {entry.lines[place]} is what people who like {entry.label} look at most."
    label = "Saved" if is_saved else "Save for later"
    tap = (entry.name, "save", place)
    return [
        banner,
        Node(16, TOP + 8, WIDTH - 32, 160, icon=entry.icon, icon_size=88, color="#ffffffd9"),
        ui.text(20, TOP + 184, WIDTH - 40, 40, entry.lines[place], 26, rid="headline"),
        ui.text(20, TOP + 230, WIDTH - 40, 120, words, 16, ui.theme.muted, lines=5, top=True),
        ui.button(20, TOP + 366, WIDTH - 40, label, tap, "save_item", "tonal" if is_saved else "filled"),
        widgets.app_bar(ui, entry.label),
    ]


def _counter(entry: Entry, ui: Ui) -> list[Node]:
    counts, name, nodes, theme = ui.state["apps"][entry.name]["counts"], entry.name, [], ui.theme

    def step(x: float, y: float, icon: str, desc: str, tap: Event, rid: str) -> Node:
        return icon_button(x, y + 44, 60, icon, desc, tap, rid, theme.on_tint, theme.tint, 28)

    for place, line in enumerate(entry.lines):
        y = TOP + 12 + 132 * place
        parts = (
            ui.text(40, y + 10, 200, 34, line, 18),
            ui.text(40, y + 46, 120, 62, str(counts[place]), 44, rid=f"count_{place}"),
            step(WIDTH - 176, y, "remove", f"Less {line}", (name, "count", place, -1), f"less_{place}"),
            step(WIDTH - 100, y, "add", f"More {line}", (name, "count", place, 1), f"more_{place}"),
        )
        nodes.append(widgets.card(ui, y, 120, parts, rid=f"counter_{place}"))
    return nodes


def _player(entry: Entry, ui: Ui) -> list[Node]:
    playing, name = ui.state["apps"][entry.name]["playing"], entry.name

    def row(y: float, place: int, line: str) -> Node:
        on, lead, tap = place == playing, _sign(entry, ui, y), (name, "play", place)
        icon = "pause_circle" if on else "play_circle"
        trail = image(WIDTH - 76, y, 40, 72, icon, 36, ui.theme.primary)
        note = "On air" if on else "Live"
        return widgets.row(ui, y, line, note, lead=lead, trail=trail, tap=tap, rid=f"item_{place}")

    return [_rows(ui, name, entry.lines, row)]


def _game(entry: Entry, ui: Ui) -> list[Node]:
    data, side = ui.state["apps"][entry.name], 96.0
    left, top = (WIDTH - 3 * side - 16) / 2, TOP + 96
    is_won = not any(data["board"])
    cells = []
    for place, on in enumerate(data["board"]):
        x, y, tap = left + (side + 8) * (place % 3), top + (side + 8) * (place // 3), ("light", place)
        color, fill = ("#ffffff", entry.color) if on else (ui.theme.muted, ui.theme.raised)
        look: dict[str, Any] = {"cls": "widget.Button", "checked": on, "desc": f"Light {place + 1}"}
        look |= {"rid": f"light_{place}", "tap": (entry.name, *tap)}
        cells.append(image(x, y, side, side, "lightbulb", 40, color, fill, 20, **look))
    words = "Solved!" if is_won else entry.lines[0]
    return [
        ui.text(20, TOP + 16, WIDTH - 40, 36, words, 22, align="c", rid="goal"),
        ui.text(20, TOP + 52, WIDTH - 40, 28, f"Moves: {data['moves']}", 16, ui.theme.muted, align="c"),
        *cells,
        ui.button(100, top + 336, WIDTH - 200, "New game", (entry.name, "new"), "new_game", "tonal"),
    ]


_PAGES: dict[str, Callable[[Entry, Ui], list[Node]]] = {
    "checklist": _checklist,
    "reader": _reader,
    "counter": _counter,
    "player": _player,
    "game": _game,
}


def _act(entry: Entry, state: State, verb: str, args: Args) -> None:
    name, data = entry.name, state["apps"][entry.name]
    place = int(args[0]) if args else 0
    if verb == "account":
        st.open_form(state, name, ["sign_in"], {user_field(name): "", password_field(name): ""})
    elif verb in ("sign_in", "sign_out"):
        _account(state, name, verb == "sign_in")
    elif verb == "read":
        st.push(state, name, "item", place)
    elif verb == "save":
        data["saved"] = sorted({*data["saved"]} ^ {place})
    elif verb == "tick":
        data["items"][place][1] = not data["items"][place][1]
    elif verb == "count":
        data["counts"][place] = min(max(0, data["counts"][place] + int(args[1])), 999)
    elif verb == "play":
        data["playing"] = -1 if data["playing"] == place else place
    elif verb == "light" and any(data["board"]):
        data["moves"] += 1
        for each in _LIGHTS[place]:
            data["board"][each] = not data["board"][each]
    elif verb == "new":
        data |= {key: value for key, value in entry.data().items() if key in ("board", "moves")}


def _account(state: State, name: str, is_in: bool) -> None:
    data = state["apps"][name]
    if not is_in:
        data["user"] = data["password"] = ""
    elif st.text(state, user_field(name)).strip() and st.text(state, password_field(name)).strip():
        data["user"] = st.take(state, user_field(name))
        data["password"] = st.take(state, password_field(name))
        st.blur(state)
    else:
        state["toast"] = "Enter user name and password"


def _submit(entry: Entry, state: State, key: str) -> None:
    items = state["apps"][entry.name].get("items")
    if key == user_field(entry.name):
        st.focus(state, password_field(entry.name))
    elif key == password_field(entry.name):
        _account(state, entry.name, True)
    elif items is not None:
        text = st.take(state, key)
        if text and len(items) < st.MAX_ITEMS:
            items.append([text, False])
        st.blur(state)


APPS: tuple[App, ...] = tuple(
    App(
        entry.name,
        entry.label,
        entry.icon,
        entry.color,
        entry.data,
        partial(_view, entry),
        partial(_act, entry),
        partial(_submit, entry),
        keeps=("user", "password", "items", "saved", "counts"),
        comes="store",
        asks=entry.asks,
        permissions=("INTERNET",),
    )
    for entry in ENTRIES.values()
)
"""An app for every entry of the store."""
