"""The calculator: four operations on decimal numbers, evaluated as they are typed; tasks to calculate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation, localcontext

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.simulator.apps.base import App, Args
from distrl.simulator.names import Names
from distrl.simulator.phone.nodes import WIDTH, Node, button
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.tasks.base import Family, Params, Template, everyday
from distrl.simulator.tasks.expert import Expert

_KEYS = (
    ("C", "±", "%", "÷"),
    ("7", "8", "9", "×"),
    ("4", "5", "6", "-"),
    ("1", "2", "3", "+"),
    ("0", ".", "⌫", "="),
)
_NAMES = {
    "±": "sign",
    "%": "percent",
    "÷": "divide",
    "×": "times",
    "-": "minus",
    "+": "plus",
    ".": "dot",
    "⌫": "delete",
    "=": "equals",
    "C": "clear",
}
_DIGITS = 10


def data() -> State:
    """The number shown, the one before it, the pending operation, whether a digit starts afresh.

    `done` is what the number shown is the result of, "" if it is not a result.
    """
    return {"shown": "0", "left": "", "op": "", "fresh": True, "done": ""}


def view(ui: Ui) -> list[Node]:
    """Display and keys."""
    calc, theme = ui.state["apps"]["calculator"], ui.theme
    pitch = min(92.0, (ui.bottom - STATUS_H - 190) / 5)
    top = ui.bottom - 5 * pitch - 8
    asked = f"{calc['done']} =" if calc["done"] else f"{calc['left']} {calc['op']}".strip()
    nodes = [
        ui.text(24, top - 156, WIDTH - 48, 36, asked, 24, theme.muted, align="r"),
        ui.text(24, top - 112, WIDTH - 48, 88, calc["shown"], 54, align="r", rid="result"),
    ]
    for line, keys in enumerate(_KEYS):
        for column, label in enumerate(keys):
            nodes.append(
                _key(ui, 10 + 85 * column, top + pitch * line, pitch - 8, label, column == 3, line == 0)
            )
    return nodes


def _key(ui: Ui, x: float, y: float, h: float, label: str, operation: bool, upper: bool) -> Node:
    theme = ui.theme
    fill, color = (theme.card, theme.text)
    if operation:
        fill, color = (theme.primary, theme.on_primary)
    elif upper:
        fill, color = (theme.tint, theme.on_tint)
    name = _NAMES.get(label, label)
    text, icon = ("", "backspace") if label == "⌫" else (label, "")
    tap = ("calculator", "key", label)
    return button(x, y, 80, h, text, tap, "calc_" + name, 30, color, fill, h / 2, desc=name, icon=icon)


def act(state: State, verb: str, args: Args) -> None:
    """One key."""
    calc, key = state["apps"]["calculator"], str(args[0])
    if key != "=":
        calc["done"] = ""
    if key.isdigit() or key == ".":
        shown = "0" if calc["fresh"] else calc["shown"]
        if len(shown) < _DIGITS and not (key == "." and "." in shown):
            shown = key if shown == "0" and key != "." else shown + key
        calc.update(shown=shown, fresh=False)
    elif key == "C":
        calc.update(data())
    elif key == "⌫":
        rest = "" if calc["fresh"] else calc["shown"][:-1]
        calc.update(shown=rest if rest.strip("-") else "0")
    elif key == "±":
        calc.update(shown=_text(-_number(calc["shown"])))
    elif key == "%":
        calc.update(shown=_text(_number(calc["shown"]) / 100), fresh=not calc["op"])
    else:
        _operate(calc, key)


def _operate(calc: State, key: str) -> None:
    if calc["op"] and not calc["fresh"]:
        if key == "=":
            calc["done"] = f"{calc['left']} {calc['op']} {calc['shown']}"
        calc["shown"] = _result(_number(calc["left"]), calc["op"], _number(calc["shown"]))
    calc["left"], calc["op"] = ("", "") if key == "=" else (calc["shown"], key)
    calc["fresh"] = True


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(0)


def _result(left: Decimal, op: str, right: Decimal) -> str:
    if op == "÷" and right == 0:
        return "Error"
    with localcontext() as context:
        context.prec = 12
        value = {"+": left + right, "-": left - right, "×": left * right}.get(op)
        return _text(left / right if value is None else value)


def _text(value: Decimal) -> str:
    if value == 0:
        return "0"
    if abs(value) >= Decimal(10) ** _DIGITS or abs(value) < Decimal("1e-6"):
        return f"{value:.4e}"
    return f"{value:.6f}"[: _DIGITS + 2].rstrip("0").rstrip(".")


APP = App("calculator", "Calculator", "calculate", "#5f3dc4", data, view, act)


def _sum_start(state: State, params: Params, rng: Names) -> None:
    if not re.fullmatch(r"(0|[1-9]\d{0,5}) [-+×÷] (0|[1-9]\d{0,5})", params["expression"]):
        rule = f"{params['expression']!r} is not a valid calculation."
        raise TaskError(rule, "Write two whole numbers and one of + - × ÷ between them, as '12 + 30'.")


def _sum_check(state: State, params: Params) -> bool:
    """The calculation was made; the factors of a product, and the terms of a sum, in any order."""
    left, op, right = params["expression"].split()
    asked = {(left, op, right), (right, op, left) if op in "+×" else (left, op, right)}
    done = tuple(state["apps"]["calculator"]["done"].split())
    return done in asked and bool(state["front"] == "calculator")


def _sum_step(expert: Expert, params: Params) -> Action:
    calc = expert.state["apps"]["calculator"]
    left, op, right = params["expression"].split()
    if calc["op"]:
        typed = "" if calc["fresh"] else calc["shown"]
        if calc["op"] != op or calc["left"] != left or not right.startswith(typed):
            return expert.tap("calc_clear")
        return expert.tap("calc_equals" if typed == right else "calc_" + right[len(typed)])
    typed = "" if calc["fresh"] else calc["shown"]
    if calc == data() or (typed and left.startswith(typed)):
        return expert.tap("calc_" + (_NAMES[op] if typed == left else left[len(typed)]))
    return expert.tap("calc_clear")


def _sum(names: Names) -> str:
    """A calculation; those whose numbers add up to a multiple of five are held out."""
    while True:
        left, right = (names.randrange(2, names.choice((20, 100, 1000))) for _ in range(2))
        if ((left + right) % 5 == 0) == names.is_held_out:
            return f"{left} {names.choice(list(_SPOKEN))} {right}"


_SPOKEN = {"+": "plus", "-": "minus", "×": "times", "÷": "divided by"}


def _words(params: Params) -> Mapping[str, object]:
    left, op, right = params["expression"].split()
    return {**params, "spoken": f"{left} {_SPOKEN[op]} {right}"}


TEMPLATES: dict[str, Template] = {
    "calculate": everyday("calculator", {"expression": str}, _sum_start, _sum_check, _sum_step)
}
FAMILIES = (Family("calculate", {"expression": _sum}, _words),)
