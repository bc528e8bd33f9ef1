"""AndroidWorld's JSON actions to and from `Action`: fourteen types, points as whole numbers on a grid.

    {"action_type": "click", "x": 512, "y": 80}        {"action_type": "scroll", "direction": "down"}
    {"action_type": "input_text", "text": "milk"}      {"action_type": "status", "goal_status": "complete"}

The grid is the model's own (0 to 999 for many) or the device's pixels; a number stands for the centre of its
cell, so a point comes back from the same grid as it went in. `scroll` and `swipe` know four directions, each
one gesture on the screen, as in AndroidWorld's `actuation.execute_adb_action`: to scroll down the finger
moves up, from the middle to the edge. To swipe it goes from edge to edge: down for "down" and up for "up",
but to the right for "left", as in a scroll. Any other gesture is written as the scroll that is nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrl.core.actions import Action, ActionKind, Point
from distrl.workers.agents.notation import Grid, NoAction, encodable

Gesture = tuple[Point, Point]

_PLAIN = {
    "navigate_home": ActionKind.HOME,
    "navigate_back": ActionKind.BACK,
    "keyboard_enter": ActionKind.ENTER,
    "wait": ActionKind.WAIT,
}
_POINTED = {
    "click": ActionKind.TAP,
    "double_tap": ActionKind.DOUBLE_TAP,
    "long_press": ActionKind.LONG_PRESS,
}
_TEXTS = {
    "input_text": (ActionKind.TYPE, "text"),
    "answer": (ActionKind.ANSWER, "text"),
    "open_app": (ActionKind.OPEN_APP, "app_name"),
}
_STATUS = {"complete": ActionKind.COMPLETE, "infeasible": ActionKind.IMPOSSIBLE}
_NAMES = {kind: name for table in (_PLAIN, _POINTED) for name, kind in table.items()}
_STATUS_NAMES = {kind: name for name, kind in _STATUS.items()}
_TEXT_NAMES = {kind: (name, key) for name, (kind, key) in _TEXTS.items()}
ACTION_TYPES = (*_PLAIN, *_POINTED, *_TEXTS, "scroll", "swipe", "status", "unknown")
KEYS = frozenset(
    {
        "action_type",
        "index",
        "x",
        "y",
        "text",
        "direction",
        "goal_status",
        "app_name",
        "keycode",
        "clear_text",
    }
)

_MIDDLE: Point = (0.5, 0.5)
_EDGES: dict[str, Point] = {"down": (0.5, 0.0), "up": (0.5, 1.0), "right": (0.0, 0.5), "left": (1.0, 0.5)}
"""Where the finger ends to scroll in a direction."""
_OPPOSITE = {"down": "up", "up": "down", "left": "right", "right": "left"}
GESTURES: dict[tuple[str, str], Gesture] = {
    **{("scroll", name): (_MIDDLE, edge) for name, edge in _EDGES.items()},
    **{("swipe", name): (_EDGES[name], _EDGES[_OPPOSITE[name]]) for name in ("down", "up")},
    **{("swipe", name): (_EDGES[_OPPOSITE[name]], _EDGES[name]) for name in ("left", "right")},
}
_NAMES_OF_GESTURES = {gesture: names for names, gesture in GESTURES.items()}


def read(fields: Mapping[str, Any], grid: Grid) -> Action:
    """The action that a JSON object means.

    Args:
        fields: The object.
        grid: What its points are written in.

    Raises:
        NoAction: It is none, or one that is not supported here: an `index` into a list of elements, a
            `keycode`, `clear_text`.
    """
    name = fields.get("action_type")
    if not isinstance(name, str) or name not in ACTION_TYPES:
        raise NoAction(f"unknown action_type {str(name)[:40]!r}" if name is not None else "no action_type")
    if unknown := [key for key in fields if key not in KEYS]:
        raise NoAction(f"{name} has no {str(unknown[0])[:40]!r}")
    for key in ("index", "keycode", "clear_text"):
        if fields.get(key) not in (None, False):
            raise NoAction(f"{key} is not supported")
    if name in _PLAIN:
        return Action(kind=_PLAIN[name])
    if name in _POINTED:
        return Action(kind=_POINTED[name], point=_point(fields, grid))
    if name in _TEXTS:
        return _with_text(name, fields, grid)
    if name == "status":
        status = fields.get("goal_status")
        if not isinstance(status, str) or status not in _STATUS:
            raise NoAction(f"goal_status is {str(status)[:40]!r}, not complete or infeasible")
        return Action(kind=_STATUS[status])
    if name == "unknown":
        raise NoAction("the action_type is unknown")
    direction = fields.get("direction")
    if not isinstance(direction, str) or direction not in _EDGES:
        raise NoAction(f"direction is {str(direction)[:40]!r}, not one of {', '.join(_EDGES)}")
    return Action.swipe(*GESTURES[name, direction])


def write(action: Action, grid: Grid) -> dict[str, Any]:
    """The JSON object of `action`; of an INVALID one that of an unknown action."""
    kind = action.kind
    if kind in _TEXT_NAMES:
        name, key = _TEXT_NAMES[kind]
        return {"action_type": name, key: action.text, **_cell(action, grid)}
    if kind in _STATUS_NAMES:
        return {"action_type": "status", "goal_status": _STATUS_NAMES[kind]}
    if kind is ActionKind.SWIPE:
        name, direction = named_gesture(action) or ("scroll", _nearest(action))
        return {"action_type": name, "direction": direction}
    return {"action_type": _NAMES.get(kind, "unknown"), **_cell(action, grid)}


def named_gesture(action: Action) -> tuple[str, str] | None:
    """The name and direction of a swipe that is one of `GESTURES`, else None."""
    if action.point is None or action.to is None:
        return None
    return _NAMES_OF_GESTURES.get((action.point, action.to))


def _nearest(action: Action) -> str:
    """The direction to scroll whose finger moves most like `action`'s."""
    if action.point is None or action.to is None:
        raise ValueError("a swipe has two points")
    dx, dy = action.to[0] - action.point[0], action.to[1] - action.point[1]
    if abs(dx) > abs(dy):
        return "left" if dx > 0 else "right"
    return "up" if dy > 0 else "down"


def _cell(action: Action, grid: Grid) -> dict[str, int]:
    if action.point is None:
        return {}
    x, y = grid.cell(action.point)
    return {"x": x, "y": y}


def _point(fields: Mapping[str, Any], grid: Grid) -> Point:
    return grid.point(_number(fields, "x"), _number(fields, "y"))


def _number(fields: Mapping[str, Any], key: str) -> float:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise NoAction(f"{key} is {str(value)[:40]!r}, not a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise NoAction(f"{key} is {str(value)[:40]!r}, not a number") from None
    if not abs(number) < 1e9:
        raise NoAction(f"{key} is {str(value)[:40]}, not on any screen")
    return number


def _with_text(name: str, fields: Mapping[str, Any], grid: Grid) -> Action:
    kind, key = _TEXTS[name]
    value = fields.get(key)
    text = "" if value is None else str(value)
    if not text:
        raise NoAction(f"{name} needs {key}")
    if encodable(text) != text:
        raise NoAction(f"{key} holds half a surrogate pair")
    is_pointed = kind is ActionKind.TYPE and (fields.get("x") is not None or fields.get("y") is not None)
    return Action(kind=kind, text=text, point=_point(fields, grid) if is_pointed else None)
