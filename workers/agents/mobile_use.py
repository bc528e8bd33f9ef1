"""The agent of Qwen2.5-VL and Qwen3-VL for phones: it calls the function `mobile_use`, and may think before.

    Thought: The alarm is set in the clock.
    Action: Open the clock.
    <tool_call>
    {"name": "mobile_use", "arguments": {"action": "open", "text": "Clock"}}
    </tool_call>

The format is that of the models' cookbooks (QwenLM/Qwen3-VL, cookbooks/mobile_agent.ipynb and
utils/agent_function_call.py). Text in <think> or <thinking> is part of what is stored and learnt, and is
skipped when the call is read. Lists of UI elements (`observe`) are not from the cookbooks: with one the
function has another parameter, `"index": 7`, which takes the place of `"coordinate": [512, 80]`.

`key` and `system_button` are read for back, home and enter. `time` is checked and not used: how long a press
or a wait lasts is the device's matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.errors import ConfigError
from distrl.core.model_points import Resize
from distrl.core.types import Element, Observation, TimeStep
from distrl.workers.agents.chat_agent import LINE_CHARS, ChatAgent, Mode, Observe
from distrl.workers.agents.elements import centre, number_for, numbered
from distrl.workers.agents.notation import Grid, NoAction, one_of, read_action, short, spoken, whole

MAX_TEXT_CHARS = 200_000  # longer model outputs are refused unread; thinking may be long
Coordinates = Literal["relative", "absolute"]
Reasoning = Literal["action", "conclusion", "none"]

SYSTEM = """You are a helpful assistant.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> \
XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

TOOLS = """{"type": "function", "function": {"name_for_human": "mobile_use", "name": "mobile_use", \
"description": "Use a touchscreen to interact with a mobile device, and take screenshots.\\n* This is an \
interface to a mobile device with touchscreen. You can perform actions like clicking, typing, swiping, \
etc.\\n* Some applications may take time to start or process actions, so you may need to wait and take \
successive screenshots to see the results of your actions.\\n* The screen's resolution is WIDTHxHEIGHT.\\n* \
Make sure to click any buttons, links, icons, etc with the cursor tip in the center of the element. Don't \
click boxes on their edges unless asked.LISTED", "parameters": {"properties": {"action": {"description": "\
The action to perform. The available actions are:\\n* `key`: Perform a key event on the mobile device.\\n    \
- This supports adb's `keyevent` syntax.\\n    - Examples: \\"back\\", \\"home\\", \\"enter\\".\\n* `click`: \
Click the point on the screen with coordinate (x, y).\\n* `long_press`: Press the point on the screen with \
coordinate (x, y) for specified seconds.\\n* `swipe`: Swipe from the starting point with coordinate (x, y) \
to the end point with coordinates2 (x2, y2).\\n* `type`: Input the specified text into the activated input \
box.\\n* `answer`: Output the answer.\\n* `system_button`: Press the system button.\\n* `open`: Open an app \
on the device.\\n* `wait`: Wait specified seconds for the change to happen.\\n* `terminate`: Terminate the \
current task and report its completion status.", "enum": ["key", "click", "long_press", "swipe", "type", \
"answer", "system_button", "open", "wait", "terminate"], "type": "string"}, "coordinate": {"description": \
"(x, y): The x (pixels from the left edge) and y (pixels from the top edge) coordinates to move the mouse \
to. Required only by `action=click`, `action=long_press`, and `action=swipe`.", "type": "array"}, \
"coordinate2": {"description": "(x, y): The x (pixels from the left edge) and y (pixels from the top edge) \
coordinates to move the mouse to. Required only by `action=swipe`.", "type": "array"}, INDEX"text": \
{"description": "Required only by `action=key`, `action=type`, `action=answer`, and `action=open`.", \
"type": "string"}, "time": {"description": "The seconds to wait. Required only by `action=long_press` and \
`action=wait`.", "type": "number"}, "button": {"description": "Back means returning to the previous \
interface, Home means returning to the desktop, and Enter means pressing the enter. Required only by \
`action=system_button`", "enum": ["Back", "Home", "Enter"], "type": "string"}, "status": {"description": \
"The status of the task. Required only by `action=terminate`.", "type": "string", "enum": ["success", \
"failure"]}}, "required": ["action"], "type": "object"}, "args_format": "Format the arguments as a JSON \
object."}}"""
"""The function's signature, for a screen of that size in model space; LISTED and INDEX are for lists."""

LISTED = {
    "screenshot": "",
    "elements": "\\n* Instead of screenshots you get numbered lists of the UI elements on the screen.",
    "both": "\\n* Beside screenshots you get numbered lists of the UI elements on the screen.",
    "marks": "\\n* Screenshots have a numbered box around each UI element, and you get lists of these.",
}
INDEX = """"index": {"description": "The number of a UI element in the list. May take the place of \
coordinate with `action=click` and `action=long_press`.", "type": "integer"}, """

FORMAT = """

# Response format

Response format for every step:
1) Thought: one concise sentence explaining the next move (no multi-step reasoning).
2) Action: a short imperative describing what to do in the UI.
3) A single <tool_call>...</tool_call> block containing only the JSON: {"name": <function-name>, \
"arguments": <args-json-object>}.

Rules:
- Output exactly in the order: Thought, Action, <tool_call>.
- Be brief: one sentence for Thought, one for Action.
- Do not output anything else outside those three parts.
- If finishing, use action=terminate in the tool call."""

CONCLUDE = """Before answering, explain your reasoning step-by-step in <thinking></thinking> tags, and \
insert them before the <tool_call></tool_call> XML tags.
After answering, summarize your action in <conclusion></conclusion> tags, and insert them after the \
<tool_call></tool_call> XML tags.
"""

_CONCLUSION = re.compile(r"<conclusion>(.*?)(?:</conclusion>|\Z)", re.DOTALL)
_ACTION_LINE = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class MobileUseAgent(ChatAgent):
    """Stateless agent that calls `mobile_use`.

    Args:
        mode, history, summarise, observe: See `ChatAgent`.
        coordinates: What points are written in: "relative", 0 to 999 across and down (Qwen3-VL), or
            "absolute", pixels of the resized picture (Qwen2.5-VL).
        resize: For "absolute", fields of `Resize` that differ in the model's image processor.
        reasoning: What is asked for beside the call: "action", a thought and a line `Action: …` before it
            (Qwen3-VL); "conclusion", <thinking> before it and a <conclusion> after it (Qwen2.5-VL); "none".
    """

    line_end = "; "

    def __init__(
        self,
        mode: Mode = "history",
        coordinates: Coordinates = "relative",
        resize: Mapping[str, int] | None = None,
        reasoning: Reasoning = "action",
        history: int = 50,
        summarise: bool = False,
        observe: Observe = "screenshot",
    ) -> None:
        super().__init__(mode, history, summarise, observe)
        if reasoning not in get_args(Reasoning):
            raise ValueError(f"reasoning must be one of {', '.join(get_args(Reasoning))}, not {reasoning!r}")
        self.coordinates, self._resize = resize_of(coordinates, resize)
        self.reasoning = reasoning

    def grid(self, screen: Observation) -> Grid:
        """The whole numbers that the model writes for points on `screen`."""
        if self.coordinates == "relative":
            return Grid(1000, 1000)
        return Grid(*self._resize.size(screen.width, screen.height))

    def system(self, screen: Observation) -> str:
        grid = self.grid(screen)
        # Qwen3-VL's own prompt calls 0 to 999 a screen of 999x999.
        size = "999x999" if self.coordinates == "relative" else f"{grid.columns}x{grid.rows}"
        tools = TOOLS.replace("WIDTHxHEIGHT", size).replace("LISTED", LISTED[self.observe])
        tools = tools.replace("INDEX", INDEX if self.needs_elements else "")
        return SYSTEM.format(tools=tools) + (FORMAT if self.reasoning == "action" else "")

    def question(self, goal: str, progress: str, number: int) -> str:
        text = f"The user query: {goal}\n"
        if progress:
            done = "You have done the following operation on the current device"
            text += f"Task progress ({done}): {progress}\n"
        return text + (CONCLUDE if self.reasoning == "conclusion" else "")

    def opening(self, goal: str) -> str:
        return self.question(goal, "", 0)

    def summary(self, step: TimeStep, action: Action) -> str:
        summary = " ".join(summary_of(self.answer(step)).split())[:LINE_CHARS]
        if summary or action.kind not in _NAMES:
            return summary or action.kind.value
        return self._write(action, step.observation) + self.target(step, action)

    def _write(self, action: Action, screen: Observation) -> str:
        arguments = write_call(action, self.grid(screen), self.listed(screen))
        return dump_call({"name": TOOL, "arguments": arguments})

    def parse(self, text: str, screen: Observation) -> Action:
        """The action of the one call in `text`, behind any thinking; else INVALID with the reason."""
        grid, elements = self.grid(screen), self.listed(screen)
        return read_action(lambda said: read_call(call_in(said), grid, elements), text, MAX_TEXT_CHARS)

    def format(self, action: Action, screen: Observation) -> str:
        """The call of `action`; an INVALID one's own text. Raises ConfigError for a kind without a call."""
        if action.kind is ActionKind.INVALID:
            return action.text
        if action.kind not in _NAMES:
            raise ConfigError(
                f"The tool mobile_use has no action {action.kind.value!r}.",
                "Choose another agent, agent.kind.",
            )
        return f"{_OPEN}\n{self._write(action, screen)}\n{_CLOSE}"


def resize_of(coordinates: Coordinates, resize: Mapping[str, int] | None) -> tuple[Coordinates, Resize]:
    """The options that say where points lie, checked. Raises ValueError."""
    if coordinates not in get_args(Coordinates):
        raise ValueError(f"coordinates must be relative or absolute, not {coordinates!r}")
    try:
        return coordinates, Resize(**(resize or {}))
    except TypeError as error:
        raise ValueError(f"resize has patch_size, merge_size, min_pixels and max_pixels: {error}") from None


def call_in(text: str) -> dict[str, Any]:
    """The arguments of the one call of `mobile_use` in `text`. Raises NoAction if there is not just one."""
    _, *blocks = spoken(text).split(_OPEN)
    if len(blocks) != 1:
        raise NoAction(f"{len(blocks)} calls, and one was asked for" if blocks else f"no {_OPEN}")
    body, closed, _ = blocks[0].partition(_CLOSE)
    if not closed:
        raise NoAction(f"no {_CLOSE}")
    try:
        call = json.loads(body, strict=False)
    except ValueError:
        raise NoAction(f"malformed JSON {body.strip()[:40]!r}") from None
    if not isinstance(call, dict) or call.get("name") != TOOL:
        raise NoAction(f"not a call of {TOOL}")
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        raise NoAction("arguments are not a JSON object")
    return arguments


def summary_of(text: str) -> str:
    """How the model itself called its action: the conclusion, else the last line `Action: …`, else ""."""
    try:
        said = spoken(text)
    except NoAction:
        return ""
    if found := _CONCLUSION.search(said):
        return found[1].strip()
    lines = _ACTION_LINE.findall(said.partition(_OPEN)[0])
    return str(lines[-1]).strip() if lines else ""


TOOL = "mobile_use"

_BUTTONS = {"Back": ActionKind.BACK, "Home": ActionKind.HOME, "Enter": ActionKind.ENTER}
_KEYS = {name.lower(): kind for name, kind in _BUTTONS.items()}
_POINTED = {"click": ActionKind.TAP, "long_press": ActionKind.LONG_PRESS}
_TEXTS = {"type": ActionKind.TYPE, "answer": ActionKind.ANSWER, "open": ActionKind.OPEN_APP}
_STATUS = {"success": ActionKind.COMPLETE, "failure": ActionKind.IMPOSSIBLE}
_NAMES = {kind: name for table in (_BUTTONS, _POINTED, _TEXTS, _STATUS) for name, kind in table.items()} | {
    ActionKind.SWIPE: "swipe",
    ActionKind.WAIT: "wait",
}
"""Names by kind of action, of the kinds that the tool has. A tap before typing is an action of its own."""

ACTIONS = {"key", *_POINTED, *_TEXTS, "swipe", "system_button", "wait", "terminate"}
PROPERTIES = ("action", "index", "coordinate", "coordinate2", "text", "time", "button", "status")


def read_call(arguments: Mapping[str, Any], grid: Grid, elements: Sequence[Element] = ()) -> Action:
    """The action that a call means. Raises NoAction if it is none, or one that no device here can do.

    `elements` are those that an index counts.
    """
    name = arguments.get("action")
    if not isinstance(name, str) or name not in ACTIONS:
        raise NoAction("no action" if name is None else f"unknown action {short(name)}")
    if unknown := [key for key in arguments if key not in PROPERTIES]:
        raise NoAction(f"{name} has no {short(unknown[0])}")
    time = arguments.get("time")
    if time is not None and not _is_number(time):
        raise NoAction(f"time is {short(time)}, not a number")
    if name in _POINTED:
        if (index := arguments.get("index")) is None:
            return Action(kind=_POINTED[name], point=_point(arguments, "coordinate", grid))
        if arguments.get("coordinate") is not None or not elements or not _is_number(index):
            raise NoAction("index must be the number of a listed UI element, without a coordinate")
        return Action(kind=_POINTED[name], point=centre(numbered(elements, index)))
    if name == "swipe":
        start, end = (_point(arguments, key, grid) for key in ("coordinate", "coordinate2"))
        return Action.swipe(start, end)
    if name in _TEXTS:
        return Action(kind=_TEXTS[name], text=_text(arguments, name))
    if name == "key":
        key = _text(arguments, name).lower().removeprefix("keycode_")
        return Action(kind=one_of(_KEYS, key, "key"))
    if name == "system_button":
        return Action(kind=one_of(_BUTTONS, arguments.get("button"), "button"))
    if name == "terminate":
        return Action(kind=one_of(_STATUS, arguments.get("status"), "status"))
    return Action(kind=ActionKind.WAIT)


def write_call(action: Action, grid: Grid, elements: Sequence[Element] = ()) -> dict[str, Any]:
    """The arguments of the call that means `action`, whose kind is one of the tool's.

    It names the one of `elements` that is touched, else a point.
    """
    kind, name = action.kind, _NAMES[action.kind]
    if kind is ActionKind.SWIPE:
        return {
            "action": name,
            "coordinate": _cell(action.point, grid),
            "coordinate2": _cell(action.to, grid),
        }
    if kind in _POINTED.values():
        number = number_for(elements, action.point) if action.point else None
        place = {"coordinate": _cell(action.point, grid)} if number is None else {"index": number}
        call = {"action": name, **place}
        return {**call, "time": 1} if kind is ActionKind.LONG_PRESS else call
    if kind in _TEXTS.values():
        return {"action": name, "text": action.text}
    if kind in _BUTTONS.values():
        return {"action": "system_button", "button": name}
    if kind in _STATUS.values():
        return {"action": "terminate", "status": name}
    return {"action": name, "time": 1}


def dump_call(call: Mapping[str, Any]) -> str:
    """A call as JSON in which no "<" stands, so that a typed text can neither open nor close a tag."""
    return json.dumps(call, ensure_ascii=False).replace("<", "\\u003c")


def _cell(point: Point | None, grid: Grid) -> list[int]:
    assert point is not None
    return list(grid.cell(point))


def _point(arguments: Mapping[str, Any], key: str, grid: Grid) -> Point:
    value = arguments.get(key)
    if not isinstance(value, list) or len(value) != 2 or not all(_is_number(number) for number in value):
        raise NoAction(f"{key} is {short(value)}, not two numbers [x, y]")
    return grid.point(*value)


def _is_number(value: object) -> bool:
    """Whether it is a number that a screen or a clock could show; JSON also has NaN and 1e999."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get("text")
    if value in (None, ""):
        raise NoAction(f"{name} needs text")
    if not isinstance(value, str):
        raise NoAction(f"text is {short(value)}, not a text")
    return whole(value, "text")
