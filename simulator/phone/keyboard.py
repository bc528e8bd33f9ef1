"""The on-screen keyboard: its nodes, and what a key does to the focused field."""

from __future__ import annotations

from typing import Any

from distrl.simulator.phone.nodes import WIDTH, Node, group, text_box
from distrl.simulator.phone.state import MAX_TEXT, State
from distrl.simulator.phone.ui import Ui

KEY_H = 54.0
KEYBOARD_H = 4 * KEY_H + 12
_LETTERS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SYMBOLS = ("1234567890", "@#$%&-+()", "*\"':;!?")


def view(ui: Ui) -> Node:
    """The keyboard under the app's area."""
    top = ui.bottom
    shift, symbols = ui.state["shift"], ui.state["symbols"]
    keys: list[Node] = []
    for index, letters in enumerate(_SYMBOLS if symbols else _LETTERS):
        y = top + 6 + index * KEY_H
        left = (WIDTH - 36 * len(letters)) / 2
        for place, letter in enumerate(letters):
            shown = letter.upper() if shift and not symbols else letter
            keys.append(_key(ui, left + 36 * place, y, 36, shown, shown, f"key_{letter}"))
    third, last = top + 6 + 2 * KEY_H, top + 6 + 3 * KEY_H
    keys.append(_key(ui, 2, third, 50, "", "shift", "key_shift", "keyboard_arrow_up", shift))
    keys.append(_key(ui, WIDTH - 52, third, 50, "", "backspace", "key_backspace", "backspace", True))
    keys.append(_key(ui, 2, last, 58, "ABC" if symbols else "?123", "symbols", "key_symbols", "", True))
    keys.append(_key(ui, 60, last, 40, ",", ",", "key_comma"))
    keys.append(_key(ui, 100, last, 160, " ", " ", "key_space"))
    keys.append(_key(ui, 260, last, 40, ".", ".", "key_dot"))
    keys.append(_key(ui, 300, last, 58, "", "enter", "key_enter", "keyboard_return", True))
    return group(0, top, WIDTH, ui.height - top, "keyboard", keys, fill=ui.theme.raised)


def _key(
    ui: Ui,
    x: float,
    y: float,
    w: float,
    label: str,
    value: str,
    rid: str,
    icon: str = "",
    accent: bool = False,
) -> Node:
    theme, size = ui.theme, 15 if len(label) > 1 else 21
    color, fill = (theme.on_tint, theme.tint) if accent else (theme.text, theme.card)
    look: dict[str, Any] = {"icon": icon, "icon_size": 22}
    cap = text_box(x + 2.5, y + 4, w - 5, KEY_H - 8, label, size, color, fill, 8, **look)
    desc = value if icon else label
    return Node(x, y, w, KEY_H, "widget.Button", rid, desc=desc, tap=("key", value), children=(cap,))


def press(state: State, value: str) -> bool:
    """Applies a key to the focused field; True when it was enter, which the app must handle."""
    if value == "enter":
        return True
    if value == "shift":
        state["shift"] = not state["shift"]
    elif value == "symbols":
        state["symbols"] = not state["symbols"]
    elif value == "backspace":
        key = state["focus"]
        state["fields"][key] = state["fields"].get(key, "")[:-1]
    else:
        insert(state, value)
        state["shift"] = False
    return False


def insert(state: State, value: str) -> None:
    """Appends text to the focused field; control characters are dropped."""
    key = state["focus"]
    if key:
        clean = "".join(filter(str.isprintable, value))
        state["fields"][key] = (state["fields"].get(key, "") + clean)[:MAX_TEXT]
