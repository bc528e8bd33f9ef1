"""The tool `mobile_use`: its schema, as Qwen's models know it, and its calls to and from `Action`.

    {"action": "click", "coordinate": [512, 80]}   {"action": "swipe", "coordinate": […], "coordinate2": […]}
    {"action": "type", "text": "milk"}             {"action": "terminate", "status": "success"}

Of the tool's actions, `key` is read for the keys that a phone's buttons have (back, home, enter), and
`system_button` for all but Menu; the others of both are refused by name. `time` is checked and not used: how
long a press or a wait lasts is the device's matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distrl.core.actions import Action, ActionKind, Point
from distrl.workers.agents.notation import Grid, NoAction, encodable

NAME = "mobile_use"

_BUTTONS = {"Back": ActionKind.BACK, "Home": ActionKind.HOME, "Enter": ActionKind.ENTER}
_KEYS = {name.lower(): kind for name, kind in _BUTTONS.items()}
_POINTED = {"click": ActionKind.TAP, "long_press": ActionKind.LONG_PRESS}
_TEXTS = {"type": ActionKind.TYPE, "answer": ActionKind.ANSWER, "open": ActionKind.OPEN_APP}
_STATUS = {"success": ActionKind.COMPLETE, "failure": ActionKind.IMPOSSIBLE}
_BUTTON_NAMES = {kind: name for name, kind in _BUTTONS.items()}
_POINTED_NAMES = {kind: name for name, kind in _POINTED.items()}
_TEXT_NAMES = {kind: name for name, kind in _TEXTS.items()}
_STATUS_NAMES = {kind: name for name, kind in _STATUS.items()}
KINDS = frozenset(
    {*_BUTTON_NAMES, *_POINTED_NAMES, *_TEXT_NAMES, *_STATUS_NAMES, ActionKind.SWIPE, ActionKind.WAIT}
)
"""The kinds of action that the tool has. A tap before typing is an action of its own here."""

ACTIONS = {
    "key": "Perform a key event on the mobile device.\n    - This supports adb's `keyevent` syntax.\n"
    '    - Examples: "back", "home", "enter".',
    "click": "Click the point on the screen with coordinate (x, y).",
    "long_press": "Press the point on the screen with coordinate (x, y) for specified seconds.",
    "swipe": "Swipe from the starting point with coordinate (x, y) to the end point with coordinates2 "
    "(x2, y2).",
    "type": "Input the specified text into the activated input box.",
    "answer": "Output the answer.",
    "system_button": "Press the system button.",
    "open": "Open an app on the device.",
    "wait": "Wait specified seconds for the change to happen.",
    "terminate": "Terminate the current task and report its completion status.",
}
PROPERTIES = ("action", "coordinate", "coordinate2", "text", "time", "button", "status")

_DESCRIPTION = """Use a touchscreen to interact with a mobile device, and take screenshots.
* This is an interface to a mobile device with touchscreen. You can perform actions like clicking, typing, \
swiping, etc.
* Some applications may take time to start or process actions, so you may need to wait and take successive \
screenshots to see the results of your actions.
* The screen's resolution is {width}x{height}.
* Make sure to click any buttons, links, icons, etc with the cursor tip in the center of the element. Don't \
click boxes on their edges unless asked."""
_POINT = "(x, y): The x (pixels from the left edge) and y (pixels from the top edge) coordinates to move the \
mouse to. Required only by "


def schema(width: int, height: int) -> dict[str, Any]:
    """The function's signature for a screen of that size in model space, as stands within <tools></tools>."""
    listed = "\n".join(f"* `{name}`: {text}" for name, text in ACTIONS.items())
    properties = {
        "action": {
            "description": f"The action to perform. The available actions are:\n{listed}",
            "enum": list(ACTIONS),
            "type": "string",
        },
        "coordinate": {
            "description": f"{_POINT}`action=click`, `action=long_press`, and `action=swipe`.",
            "type": "array",
        },
        "coordinate2": {"description": f"{_POINT}`action=swipe`.", "type": "array"},
        "text": {
            "description": "Required only by `action=key`, `action=type`, `action=answer`, and "
            "`action=open`.",
            "type": "string",
        },
        "time": {
            "description": "The seconds to wait. Required only by `action=long_press` and `action=wait`.",
            "type": "number",
        },
        "button": {
            "description": "Back means returning to the previous interface, Home means returning to the "
            "desktop, and Enter means pressing the enter. Required only by `action=system_button`",
            "enum": list(_BUTTONS),
            "type": "string",
        },
        "status": {
            "description": "The status of the task. Required only by `action=terminate`.",
            "type": "string",
            "enum": list(_STATUS),
        },
    }
    return {
        "type": "function",
        "function": {
            "name_for_human": NAME,
            "name": NAME,
            "description": _DESCRIPTION.format(width=width, height=height),
            "parameters": {"properties": properties, "required": ["action"], "type": "object"},
            "args_format": "Format the arguments as a JSON object.",
        },
    }


def read(arguments: Mapping[str, Any], grid: Grid) -> Action:
    """The action that a call means.

    Args:
        arguments: The call's arguments.
        grid: What its points are written on.

    Raises:
        NoAction: It is none, or one that no device here can do.
    """
    name = arguments.get("action")
    if not isinstance(name, str) or name not in ACTIONS:
        raise NoAction("no action" if name is None else f"unknown action {_short(name)}")
    if unknown := [key for key in arguments if key not in PROPERTIES]:
        raise NoAction(f"{name} has no {_short(unknown[0])}")
    time = arguments.get("time")
    if time is not None and not _is_number(time):
        raise NoAction(f"time is {_short(time)}, not a number")
    if name in _POINTED:
        return Action(kind=_POINTED[name], point=_point(arguments, "coordinate", grid))
    if name == "swipe":
        start, end = (_point(arguments, key, grid) for key in ("coordinate", "coordinate2"))
        return Action.swipe(start, end)
    if name in _TEXTS:
        return Action(kind=_TEXTS[name], text=_text(arguments, name))
    if name == "key":
        key = _text(arguments, name).lower().removeprefix("keycode_")
        return Action(kind=_one_of(_KEYS, key, "key"))
    if name == "system_button":
        return Action(kind=_one_of(_BUTTONS, arguments.get("button"), "button"))
    if name == "terminate":
        return Action(kind=_one_of(_STATUS, arguments.get("status"), "status"))
    return Action(kind=ActionKind.WAIT)


def write(action: Action, grid: Grid) -> dict[str, Any]:
    """The arguments of the call that means `action`, one of `KINDS`."""
    kind = action.kind
    if kind in _POINTED_NAMES:
        call = {"action": _POINTED_NAMES[kind], "coordinate": _cell(action.point, grid)}
        return {**call, "time": 1} if kind is ActionKind.LONG_PRESS else call
    if kind is ActionKind.SWIPE:
        start, end = _cell(action.point, grid), _cell(action.to, grid)
        return {"action": "swipe", "coordinate": start, "coordinate2": end}
    if kind in _TEXT_NAMES:
        return {"action": _TEXT_NAMES[kind], "text": action.text}
    if kind in _BUTTON_NAMES:
        return {"action": "system_button", "button": _BUTTON_NAMES[kind]}
    if kind in _STATUS_NAMES:
        return {"action": "terminate", "status": _STATUS_NAMES[kind]}
    if kind is ActionKind.WAIT:
        return {"action": "wait", "time": 1}
    raise ValueError(f"the tool has no {kind.value}")


def dumps(call: Mapping[str, Any]) -> str:
    """A call as JSON in which no "<" stands, so that a typed text can neither open nor close a tag."""
    return json.dumps(call, ensure_ascii=False).replace("<", "\\u003c")


def _cell(point: Point | None, grid: Grid) -> list[int]:
    assert point is not None
    return list(grid.cell(point))


def _point(arguments: Mapping[str, Any], key: str, grid: Grid) -> Point:
    value = arguments.get(key)
    if not isinstance(value, list) or len(value) != 2 or not all(_is_number(number) for number in value):
        raise NoAction(f"{key} is {_short(value)}, not two numbers [x, y]")
    return grid.point(*value)


def _is_number(value: object) -> bool:
    """Whether it is a number that a screen or a clock could show; JSON also knows NaN and 1e999."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get("text")
    if not isinstance(value, str) or not value:
        raise NoAction(
            f"{name} needs text" if value in (None, "") else f"text is {_short(value)}, not a text"
        )
    if encodable(value) != value:
        raise NoAction("text holds half a surrogate pair")
    return value


def _one_of(kinds: Mapping[str, ActionKind], value: object, what: str) -> ActionKind:
    if not isinstance(value, str) or value not in kinds:
        raise NoAction(f"{what} is {_short(value)}, not one of {', '.join(kinds)}")
    return kinds[value]


def _short(value: object) -> str:
    return repr(value)[:40]
