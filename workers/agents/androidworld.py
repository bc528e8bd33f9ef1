"""An agent for AndroidWorld and other phones: it reasons in words, then acts by one JSON object.

    Reason: The contact has no number yet, so I tap the field for it.
    Action: {"action_type": "click", "x": 512, "y": 310}

Points are whole numbers on a grid: the model's own (0 to 999 for many) or the device's pixels. `scroll`
and `swipe` have four directions, each one gesture on the screen, as in AndroidWorld's
`actuation.execute_adb_action`: to scroll down the finger moves up, from the middle to the edge. To swipe it
goes from edge to edge: down for "down" and up for "up", but to the right for "left", as in a scroll. Any
other gesture is written as the nearest scroll.

With a list of UI elements (`observe`) an action names an element by its number instead of a point, and
scrolls one from its middle to its edge:

    Action: {"action_type": "click", "index": 7}

The actions and their fields are those of AndroidWorld's agents T3A and M3A, which have no points and no
double_tap; their instructions are longer. The wording here is this project's own.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.types import Element, Observation, TimeStep
from distrl.workers.agents.chat_agent import LINE_CHARS, ChatAgent, Mode, Observe
from distrl.workers.agents.elements import centre, number_for, numbered, scrolling_at
from distrl.workers.agents.notation import Grid, NoAction, one_of, read_action, short, whole

INSTRUCTIONS = """You operate an Android phone for a user. At each step you {see}; answer with one action. \
Coordinates are whole numbers: x from 0 (left) to {max_x} (right), y from 0 (top) to {max_y} (bottom). The \
actions are:
{touches}
- Press Enter: {{"action_type": "keyboard_enter"}}
- See more of the screen: {{"action_type": "scroll", "direction": <"up", "down", "left" or "right">}}; \
"down" shows what is further down.{scrolls} "swipe" goes across the whole screen; its "up" and "down" \
are the other way round.
- Go to the home screen: {{"action_type": "navigate_home"}}
- Go back: {{"action_type": "navigate_back"}}
- Open an app: {{"action_type": "open_app", "app_name": <name>}}
- Wait for the screen: {{"action_type": "wait"}}
- Tell the user the answer to a question: {{"action_type": "answer", "text": <answer>}}; do so before you \
finish.
- Finish: {{"action_type": "status", "goal_status": "complete"}}, or "infeasible" if it cannot be done.
Write the reason first, then the action, as in:
Reason: <why>
Action: <JSON>"""

SEE = {
    "screenshot": "see the phone's screen",
    "elements": "get a numbered list of the UI elements on the phone's screen",
    "both": "see the phone's screen and get a numbered list of the UI elements on it",
    "marks": "see the phone's screen, with a numbered box around each UI element, and get a list of them",
}
BY_POINT = """\
- Tap: {"action_type": "click", "x": <x>, "y": <y>}; likewise "double_tap" and "long_press".
- Type: {"action_type": "input_text", "text": <text>, "x": <x>, "y": <y>} taps the field and types into \
it; without x and y it types where the cursor is."""
BY_NUMBER = """\
- Tap: {"action_type": "click", "index": <number of a UI element>}, or "x" and "y" instead of "index"; \
likewise "double_tap" and "long_press".
- Type: {"action_type": "input_text", "text": <text>, "index": <number>} taps the field and types into it; \
without "index" it types where the cursor is."""
SCROLLS = ' With "index" it scrolls that UI element.'


class AndroidWorldAgent(ChatAgent):
    """Stateless agent that writes AndroidWorld's JSON actions.

    Args:
        mode, history, summarise, observe: See `ChatAgent`.
        coordinates: How many numbers an axis has, 1000 for 0 to 999; or [across, down], for a model that
            writes pixels of the screenshot.
    """

    def __init__(
        self,
        mode: Mode = "history",
        coordinates: int | Sequence[int] = 1000,
        history: int = 50,
        summarise: bool = False,
        observe: Observe = "screenshot",
    ) -> None:
        super().__init__(mode, history, summarise, observe)
        axes = [coordinates, coordinates] if isinstance(coordinates, int) else list(coordinates)
        if len(axes) != 2 or not all(isinstance(axis, int) and 2 <= axis <= 100_000 for axis in axes):
            raise ValueError(f"coordinates must be a number from 2 to 100000, or two, not {coordinates!r}")
        self._grid = Grid(*axes)
        self._instructions = INSTRUCTIONS.format(
            see=SEE[observe],
            max_x=self._grid.columns - 1,
            max_y=self._grid.rows - 1,
            touches=BY_NUMBER if self.needs_elements else BY_POINT,
            scrolls=SCROLLS if self.needs_elements else "",
        )

    def grid(self, screen: Observation) -> Grid:
        return self._grid

    def system(self, screen: Observation) -> str:
        return self._instructions

    def question(self, goal: str, progress: str, number: int) -> str:
        progress = progress.rstrip() or "Nothing yet."
        return f"Goal: {goal}\n\nWhat you have done so far:\n{progress}\n\nStep {number + 1}. The screen now:"

    def opening(self, goal: str) -> str:
        return f"Goal: {goal}\n\nStep 1. The screen:"

    def summary(self, step: TimeStep, action: Action) -> str:
        reason = " ".join(reason_of(self.answer(step)).split())[:LINE_CHARS]
        done = self._write(action, step.observation) + self.target(step, action)
        return f"{reason} {done}" if reason else done

    def _write(self, action: Action, screen: Observation) -> str:
        return json.dumps(write_json(action, self._grid, self.listed(screen)), ensure_ascii=False)

    def parse(self, text: str, screen: Observation) -> Action:
        """The action in `text`; INVALID, with the reason and the text, for everything that is not an action.

        It is the first JSON object, or Python dictionary, behind the last "Action:" or in the whole text.
        """
        return read_action(lambda said: read_json(_object(said), self._grid, self.listed(screen)), text)

    def format(self, action: Action, screen: Observation) -> str:
        """The text of `action` without a reason; an INVALID action's own text is given back."""
        if action.kind is ActionKind.INVALID:
            return action.text
        # A typed text must not look like the start of the action.
        return "Action: " + self._write(action, screen).replace("Action:", r"Action\u003a")


def reason_of(text: str) -> str:
    """What stands between "Reason:" and the last "Action:", "" if nothing does."""
    return text[: _action_at(text)].removesuffix("Action:").partition("Reason:")[2].strip()


def _action_at(text: str) -> int:
    """Where the action begins: behind the last "Action:", if possible one that an object follows; else 0."""
    found = [*re.finditer(r"Action:(?=\s*\{)", text)] or [*re.finditer("Action:", text)]
    return found[-1].end() if found else 0


def _object(text: str) -> dict[str, Any]:
    rest = text[_action_at(text) :]
    start = rest.find("{")
    if start < 0:
        raise NoAction("no JSON object behind Action:" if rest != text else "no JSON object")
    try:
        found = json.JSONDecoder(strict=False).raw_decode(rest, start)[0]
    except ValueError:
        written = rest[start : rest.rfind("}") + 1]
        try:
            found = ast.literal_eval(written)
        except (ValueError, SyntaxError, TypeError, MemoryError):
            raise NoAction(f"malformed JSON {written[:40]!r}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise NoAction("no JSON object with names as keys")
    return found


Gesture = tuple[Point, Point]

_PLAIN = {
    "navigate_home": ActionKind.HOME,
    "navigate_back": ActionKind.BACK,
    "keyboard_enter": ActionKind.ENTER,
    "wait": ActionKind.WAIT,
}
_POINTED = {"click": ActionKind.TAP, "double_tap": ActionKind.DOUBLE_TAP, "long_press": ActionKind.LONG_PRESS}
_TEXTS = {
    "input_text": (ActionKind.TYPE, "text"),
    "answer": (ActionKind.ANSWER, "text"),
    "open_app": (ActionKind.OPEN_APP, "app_name"),
}
_STATUS = {"complete": ActionKind.COMPLETE, "infeasible": ActionKind.IMPOSSIBLE}
_NAMES = {kind: name for table in (_PLAIN, _POINTED) for name, kind in table.items()}
_STATUS_NAMES = {kind: name for name, kind in _STATUS.items()}
_TEXT_NAMES = {kind: (name, key) for name, (kind, key) in _TEXTS.items()}
ACTION_TYPES = (*_PLAIN, *_POINTED, *_TEXTS, "scroll", "swipe", "status")
UNSUPPORTED = ("keycode", "clear_text")
KEYS = {"action_type", "index", "x", "y", "text", "direction", "goal_status", "app_name", *UNSUPPORTED}

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


def read_json(fields: Mapping[str, Any], grid: Grid, elements: Sequence[Element] = ()) -> Action:
    """The action that a JSON object means. Raises NoAction if it is none that is supported here.

    `elements` are those that an index counts.
    """
    name = fields.get("action_type")
    if not isinstance(name, str) or name not in ACTION_TYPES:
        raise NoAction(f"unknown action_type {str(name)[:40]!r}" if name is not None else "no action_type")
    if unknown := [key for key in fields if key not in KEYS]:
        raise NoAction(f"{name} has no {short(unknown[0])}")
    for key in UNSUPPORTED:
        if fields.get(key) not in (None, False):
            raise NoAction(f"{key} is not supported")
    element = _element(fields, elements)
    has_point = name in _POINTED or (
        name == "input_text" and any(fields.get(axis) is not None for axis in "xy")
    )
    point = centre(element) if element else _point(fields, grid) if has_point else None
    if name in _PLAIN:
        return Action(kind=_PLAIN[name])
    if name in _POINTED:
        return Action(kind=_POINTED[name], point=point)
    if name in _TEXTS:
        kind, key = _TEXTS[name]
        value = fields.get(key)
        if value in (None, ""):
            raise NoAction(f"{name} needs {key}")
        text = whole(str(value), key)
        return Action(kind=kind, text=text, point=point if kind is ActionKind.TYPE else None)
    if name == "status":
        return Action(kind=one_of(_STATUS, fields.get("goal_status"), "goal_status"))
    one_of(_EDGES, fields.get("direction"), "direction")
    start, end = GESTURES[name, fields["direction"]]
    if element and name == "scroll":
        return Action.swipe(_inside(element, start), _inside(element, end))
    return Action.swipe(start, end)


def _element(fields: Mapping[str, Any], elements: Sequence[Element]) -> Element | None:
    """The one that the index names, None without an index."""
    if fields.get("index") is None:
        return None
    if not elements:
        raise NoAction("index is not supported without a list of UI elements")
    if fields.get("x") is not None or fields.get("y") is not None:
        raise NoAction("index and a point are given; give one of them")
    return numbered(elements, _number(fields, "index"))


def _inside(element: Element, point: Point) -> Point:
    """What `point` of the screen is in an element."""
    left, top, right, bottom = element.bounds
    return left + point[0] * (right - left), top + point[1] * (bottom - top)


def write_json(action: Action, grid: Grid, elements: Sequence[Element] = ()) -> dict[str, Any]:
    """The JSON object of `action`; of an INVALID one that of an unknown action.

    It names the one of `elements` that is touched, or scrolled, else a point.
    """
    kind = action.kind
    if kind in _TEXT_NAMES:
        name, key = _TEXT_NAMES[kind]
        return {"action_type": name, key: action.text, **_place(action, grid, elements)}
    if kind in _STATUS_NAMES:
        return {"action_type": "status", "goal_status": _STATUS_NAMES[kind]}
    if kind is ActionKind.SWIPE:
        if found := named_gesture(action):
            return {"action_type": found[0], "direction": found[1]}
        assert action.point is not None
        assert action.to is not None
        number = scrolling_at(elements, action.point, action.to)
        index = {} if number is None else {"index": number}
        return {"action_type": "scroll", "direction": _nearest(action), **index}
    return {"action_type": _NAMES.get(kind, "unknown"), **_place(action, grid, elements)}


def named_gesture(action: Action) -> tuple[str, str] | None:
    """The name and direction of a swipe that is one of `GESTURES`, else None."""
    if action.point is None or action.to is None:
        return None
    return _NAMES_OF_GESTURES.get((action.point, action.to))


def _nearest(action: Action) -> str:
    """The direction to scroll whose finger moves most like `action`'s."""
    assert action.point is not None
    assert action.to is not None
    dx, dy = action.to[0] - action.point[0], action.to[1] - action.point[1]
    if abs(dx) > abs(dy):
        return "left" if dx > 0 else "right"
    return "up" if dy > 0 else "down"


def _place(action: Action, grid: Grid, elements: Sequence[Element]) -> dict[str, int]:
    if action.point is None:
        return {}
    if (number := number_for(elements, action.point)) is not None:
        return {"index": number}
    x, y = grid.cell(action.point)
    return {"x": x, "y": y}


def _point(fields: Mapping[str, Any], grid: Grid) -> Point:
    return grid.point(_number(fields, "x"), _number(fields, "y"))


def _number(fields: Mapping[str, Any], key: str) -> float:
    value = fields.get(key)
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        raise NoAction(f"{key} is {str(value)[:40]!r}, not a number") from None
    if not abs(number) < 1e9:
        raise NoAction(f"{key} is {str(value)[:40]}, not on any screen")
    return number
