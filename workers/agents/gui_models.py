"""Agents of published GUI models: each writes one call, in the notation of its model's public repository.

    agent       an answer
    ui-tars     Thought: …  Action: click(start_box='<|box_start|>(197,525)<|box_end|>')
                2: <thinkt>…</thinkt><seed:tool_call> <function=click> <parameter=point>… </seed:tool_call>
    autoglm     <think>…</think><answer>do(action="Tap", element=[197,525])</answer>
    ui-venus    <think>…</think><action>Click(box=(197,525))</action><conclusion>…</conclusion>
    mai-ui      <thinking>…</thinking><tool_call>{"name": "mobile_use", "arguments": {…}}</tool_call>
    holo        {"note": …, "thought": …, "tool_call": {"tool_name": "click", "x": 197, "y": 525, …}}
    gui-owl     as `mobile-use`, of which it is a variant

A `Dialect` is a table of verbs, the syntax around a call, and the prompt; models of one name that write
differently are versions of one agent. Actions and formats are those that are published, and so are the places
of points: pixels of the resized picture ("absolute") or a scale ("relative"). The rest of the wording is
shortened, and the summary of earlier steps is this project's, see `ChatAgent`. How far a scroll without an
end goes is this project's, too, except for MAI-UI. Actions that no device here can do (asking the user, the
list of recent apps) are invalid, and the message of a call that ends the task is not an answer.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from xml.sax.saxutils import escape, unescape

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.errors import ConfigError
from distrl.core.types import Observation, TimeStep
from distrl.workers.agents.chat_agent import LINE_CHARS, ChatAgent, Mode
from distrl.workers.agents.mobile_use import (
    MAX_TEXT_CHARS,
    Coordinates,
    MobileUseAgent,
    resize_of,
)
from distrl.workers.agents.notation import Grid, NoAction, read_action, short, spoken, whole

Cell = tuple[int | str, int | str]
PLACES: Sequence[Cell] = (("x1", "y1"), ("x2", "y2"))
"""The points of an action in a list of actions."""
MAX_LOOSE_CHARS = 4_000  # of arguments that are not Python
_TEXTS = re.compile(r"""(\w+)\s*=\s*(["'])((?:(?!\2).)*)\2\s*,""")
_LOOSE = re.compile(
    rf"""((?:\s*{_TEXTS.pattern.replace("2", "3")})*)\s*(\w+)\s*=\s*(["'])(.*)\6\s*""", re.DOTALL
)
# Of odd literals in a model's answer Python would warn on standard error; `ast.parse` reads "<unknown>".
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")


@dataclass(frozen=True)
class Verb:
    """A call and the action that it means.

    Attributes:
        at, to: The arguments that are a point, "" if it has none: "box", or "x y" where they are two numbers.
        text: The argument that is the action's text.
        fixed: Arguments with these values belong to the call, whatever their case.
        blank: Arguments that are not read and written as "".
        more: Arguments that are not read and not written.
        move: For a swipe without `to`: how far the finger goes from `at`, or from the middle of the screen.
        shown: Values of `fixed` that the prompt has instead; None if the prompt leaves out the call.
        then: What the call types after its text.
    """

    kind: ActionKind
    name: str
    at: str = ""
    to: str = ""
    text: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict)
    blank: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    move: Point | None = None
    shown: Mapping[str, str] | None = field(default_factory=dict)
    then: str = ""

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        same = all(str(arguments.get(key)).lower() == value.lower() for key, value in self.fixed.items())
        return same and all(key in arguments for key in self.to.split())

    @property
    def as_shown(self) -> Verb:
        return replace(self, fixed={**self.fixed, **(self.shown or {})})

    @property
    def places(self) -> list[str]:
        return [key for key in (self.at, self.to) if key]

    @property
    def keys(self) -> set[str]:
        return {*self.at.split(), *self.to.split(), self.text, *self.fixed, *self.blank, *self.more}


def _between(text: str, opens: str, closes: str) -> str:
    """What stands behind the last `opens`, up to the last `closes`; the tags may be left out.

    Raises NoAction if there are several `opens` although `closes` ends one.
    """
    if closes and (count := text.count(opens.strip())) > 1:
        raise NoAction(f"{count} calls, and one was asked for")
    rest = text.rpartition(opens.strip())[2] if opens else text
    return rest.rpartition(closes.strip())[0] if closes and closes.strip() in rest else rest


def _escaped(literal: str) -> str:
    """A text's literal in which nothing that opens or closes a call can stand."""
    return literal.replace("<", "\\u003c").replace("Action:", "Action\\u003a")


@dataclass(frozen=True)
class Calls:
    """A Python call: name(key=value, …).

    Attributes:
        opens, closes: What stands around it.
        quote: The quotation mark of texts.
        point: A point, with {x} and {y}.
    """

    opens: str
    closes: str
    quote: str
    point: str

    def read(self, text: str, names: Collection[str]) -> tuple[str, dict[str, Any]]:
        region = _between(text, self.opens, self.closes)
        start = rf"\b({'|'.join(names)})\s*\("
        found = re.search(start, region)
        if not found or ")" not in region[found.end() :]:
            raise NoAction(f"none of the calls {', '.join(dict.fromkeys(names))}")
        name, inside = found[1], region[found.end() : region.rindex(")")]
        try:
            call = ast.parse(f"_({inside})", mode="eval").body
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
                return name, {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        except (SyntaxError, ValueError, TypeError, MemoryError):
            if re.search(rf"\)\s*{start}", inside):
                raise NoAction("several calls, and one was asked for") from None
            # Models do not escape every quotation mark and line end in a text, which is the last argument.
            if len(inside) < MAX_LOOSE_CHARS and (loose := _LOOSE.fullmatch(inside)):
                return name, {key: value for key, _, value in _TEXTS.findall(loose[1])} | {loose[5]: loose[7]}
        raise NoAction(f"malformed arguments of {name}: {short(inside)}")

    def call(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        """The call without what stands around it."""
        pairs = [(key, f"{self.quote}{value}{self.quote}") for key, value in verb.fixed.items()]
        pairs += zip(verb.places, [self.point.format(x=x, y=y) for x, y in cells], strict=True)
        if verb.text:
            inner = json.dumps(text, ensure_ascii=False)[1:-1]
            if self.quote == "'":
                inner = re.sub(r"\\.|'", lambda found: found[0].replace("'", "\\'"), inner)
            pairs.append((verb.text, f"{self.quote}{_escaped(inner)}{self.quote}"))
        return f"{verb.name}({', '.join(f'{key}={value}' for key, value in pairs)})"

    def write(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        return f"{self.opens}{self.call(verb, cells, text)}{self.closes}"


@dataclass(frozen=True)
class Objects:
    """A JSON object with the call under one of its keys.

    Attributes:
        opens, closes: What stands around it.
        around: What else the object has; a `name` in it must be that of an answer.
        inside: The key whose value is the call.
        name: The key of the call's name there, beside its arguments.
    """

    opens: str
    closes: str
    around: Mapping[str, str]
    inside: str
    name: str

    def read(self, text: str, names: Collection[str]) -> tuple[str, dict[str, Any]]:
        rest = _between(text, self.opens, self.closes)
        try:
            found, end = json.JSONDecoder(strict=False).raw_decode(rest, max(0, rest.find("{")))
        except ValueError:
            raise NoAction(f"malformed JSON {rest.strip()[:40]!r}") from None
        call = found.get(self.inside) if isinstance(found, dict) else None
        if (
            not isinstance(call, dict)
            or rest[end:].strip("` \n")
            or found.get("name") != self.around.get("name")
        ):
            raise NoAction(f"not just one JSON object with {self.inside}")
        name = call.pop(self.name, None)
        if name not in names:
            raise NoAction(f"{self.name} is {short(name)}, not one of {', '.join(dict.fromkeys(names))}")
        return str(name), call

    def call(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        """The call without what stands around it."""
        call: dict[str, Any] = {self.name: verb.name, **verb.fixed, **dict.fromkeys(verb.blank, "")}
        for key, cell in zip(verb.places, cells, strict=True):
            call |= zip(key.split(), cell, strict=True) if " " in key else {key: list(cell)}
        return _escaped(json.dumps(call | ({verb.text: text} if verb.text else {}), ensure_ascii=False))

    def write(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        around = json.dumps({**self.around, self.inside: None})
        return f"{self.opens}{around.replace('null', self.call(verb, cells, text))}{self.closes}"


@dataclass(frozen=True)
class Tags:
    """A call whose arguments stand in tags. A text without a call ends the task: a verb without a name.

    Attributes:
        opens, closes: What stands around it.
        point: A point, with {x} and {y}.
    """

    opens: str
    closes: str
    point: str

    def read(self, text: str, names: Collection[str]) -> tuple[str, dict[str, Any]]:
        if self.opens.strip() not in text and "<function=" not in text and text.strip():
            return "", {}
        inside = _between(text, self.opens, self.closes).strip()
        found = re.fullmatch(r"<function=(\w+)>(.*)</function>", inside, re.DOTALL)
        if not found or found[1] not in names:
            raise NoAction(f"none of the calls {', '.join(filter(None, dict.fromkeys(names)))}")
        if "<function=" in found[2]:
            raise NoAction("several calls, and one was asked for")
        pairs = re.findall(r"<parameter=(\w+)>(.*?)</parameter>", found[2], re.DOTALL)
        return found[1], {key: unescape(value) for key, value in pairs}

    def call(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        """The call without what stands around it."""
        pairs = [*verb.fixed.items()]
        pairs += zip(verb.places, [self.point.format(x=x, y=y) for x, y in cells], strict=True)
        pairs += [(verb.text, escape(text))] if verb.text else []
        lines = [f"<parameter={key}>{value}</parameter>\n" for key, value in pairs]
        return f"<function={verb.name}>\n{''.join(lines)}</function>"

    def write(self, verb: Verb, cells: Sequence[Cell], text: str) -> str:
        return f"{self.opens}{self.call(verb, cells, text)}{self.closes}" if verb.name else "Done."


@dataclass(frozen=True)
class Dialect:
    """How one version of a model is asked and writes.

    Attributes:
        coordinates: What its points are; a scale has `steps` whole numbers from 0.
        system, question: The instructions, and the user's message before the screen. Either has {actions},
            and the latter {goal} and {progress}.
        thought: Where an answer says what it does and why: its first group, which later prompts repeat.
    """

    verbs: tuple[Verb, ...]
    syntax: Calls | Objects | Tags
    coordinates: Coordinates
    system: str
    question: str
    thought: str
    steps: int = 1000


class GuiModelAgent(ChatAgent):
    """Stateless agent that writes the calls of one model.

    Args:
        version: The model's version, of which the notation depends.
        mode, history, summarise: See `ChatAgent`.
        coordinates: What points are written in, if a model was trained to write them otherwise: "relative",
            on the model's scale, or "absolute", pixels of the resized picture.
        resize: For "absolute", fields of `Resize` that differ in the model's image processor.
    """

    dialects: ClassVar[Mapping[str, Dialect]]

    def __init__(
        self,
        version: str | float | None = None,
        mode: Mode = "history",
        coordinates: Coordinates | None = None,
        resize: Mapping[str, int] | None = None,
        history: int = 50,
        summarise: bool = False,
    ) -> None:
        super().__init__(mode, history, summarise)
        self._dialect: Dialect = chosen(self.dialects, version)
        dialect = self._dialect
        self.coordinates, self._resize = resize_of(coordinates or dialect.coordinates, resize)
        self._names, call = [verb.name for verb in dialect.verbs], dialect.syntax.call
        self._actions = "\n".join(
            re.sub(r'"([xy]\d)"', r"\1", call(verb.as_shown, PLACES[: len(verb.places)], "xxx"))
            for verb in dialect.verbs
            if verb.shown is not None
        )

    def grid(self, screen: Observation) -> Grid:
        if self.coordinates == "relative":
            return Grid(self._dialect.steps, self._dialect.steps)
        return Grid(*self._resize.size(screen.width, screen.height))

    def system(self, screen: Observation) -> str:
        return self._dialect.system.replace("{actions}", self._actions)

    def question(self, goal: str, progress: str, number: int) -> str:
        said = {"{actions}": self._actions, "{progress}": progress.rstrip() or "None", "{goal}": goal}
        text: str = re.sub(r"{\w+}", lambda found: said[found[0]], self._dialect.question)
        return text

    def opening(self, goal: str) -> str:
        return self.question(goal, "", 0)

    def summary(self, step: TimeStep, action: Action) -> str:
        found = re.findall(self._dialect.thought, self.answer(step), re.DOTALL)
        said = " ".join(found[-1].split())[:LINE_CHARS] if found else ""
        with suppress(ConfigError):  # an action of another actor, which the notation lacks
            return f"{said} {self._write(action, step.observation)}".strip()
        return action.kind.value

    def parse(self, text: str, screen: Observation) -> Action:
        """The action of the one call in `text`, behind any thinking; else INVALID with the reason."""
        return read_action(lambda said: self._read(said, self.grid(screen)), text, MAX_TEXT_CHARS)

    def _read(self, text: str, grid: Grid) -> Action:
        name, arguments = self._dialect.syntax.read(spoken(text), self._names)
        verbs = [verb for verb in self._dialect.verbs if verb.name == name]
        verb = next((verb for verb in verbs if verb.fits(arguments)), None)
        if verb is None:
            raise NoAction(f"{name} with {short(arguments)} is not supported")
        if unknown := arguments.keys() - verb.keys:
            raise NoAction(f"{name} has no {short(sorted(unknown)[0])}")
        said = arguments.get(verb.text) if verb.text else ""
        if not isinstance(said, str) or (verb.text and not said):
            raise NoAction(f"{name} needs {verb.text}, a text")
        has_start = verb.at and (verb.move is None or verb.at in arguments)
        at = _point(arguments, verb.at, grid) if has_start else None
        to = _point(arguments, verb.to, grid) if verb.to else None
        if verb.move is not None:
            at = at or (0.5, 0.5)
            to = (min(1.0, max(0.0, at[0] + verb.move[0])), min(1.0, max(0.0, at[1] + verb.move[1])))
        return Action(kind=verb.kind, point=at, to=to, text=whole(said, verb.text) + verb.then)

    def _write(self, action: Action, screen: Observation) -> str:
        points = [point for point in (action.point, action.to) if point is not None]
        for verb in self._dialect.verbs:
            count = len(verb.places)
            if verb.kind is action.kind and verb.move is None and count <= len(points):
                cells = [self.grid(screen).cell(point) for point in points[:count]]
                return self._dialect.syntax.write(verb, cells, action.text.removesuffix(verb.then))
        raise ConfigError(
            f"The notation of {type(self).__name__} has no action {action.kind.value!r}"
            + (" without a point." if action.kind is ActionKind.TYPE else "."),
            "Choose another agent, agent.kind.",
        )

    def format(self, action: Action, screen: Observation) -> str:
        """The call of `action`; an INVALID one's own text. Raises ConfigError for a kind without a call."""
        return action.text if action.kind is ActionKind.INVALID else self._write(action, screen)


def chosen(versions: Mapping[str, Any], version: str | float | None) -> Any:
    """That of a version, a number in YAML; by default the first. Raises ValueError for another one."""
    if version is None:
        return next(iter(versions.values()))
    if str(version) not in versions:
        raise ValueError(f"version must be one of {', '.join(versions)}, not {version!r}")
    return versions[str(version)]


def _point(arguments: Mapping[str, Any], key: str, grid: Grid) -> Point:
    """A point of two numbers, or the middle of a box of four; both may stand in a text."""
    keys = key.split()
    value = arguments.get(key) if len(keys) == 1 else [arguments.get(one) for one in keys]
    numbers: Any = re.findall(r"-?\d+(?:\.\d+)?", value[:100]) if isinstance(value, str) else value
    is_list = isinstance(numbers, list | tuple) and bool not in map(type, numbers)
    try:
        found = [float(number) for number in numbers] if is_list else []
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) not in (2, 4) or not all(abs(number) < 1e9 for number in found):
        raise NoAction(f"{key} is {short(value)}, not the two numbers of a point")
    return grid.point((found[0] + found[-2]) / 2, (found[1] + found[-1]) / 2)


K = ActionKind
KEYS = (K.BACK, K.HOME, K.ENTER)
WAYS: Mapping[str, Point] = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def _moves(name: str, at: str, reach: float) -> tuple[Verb, ...]:
    """The verbs of a swipe in a direction: that of the finger, or the contrary with a negative reach."""
    return tuple(
        Verb(
            *(K.SWIPE, name, at),
            fixed={"direction": way},
            move=(reach * x, reach * y),
            shown={"direction": " or ".join(WAYS)} if way == "up" else None,
        )
        for way, (x, y) in WAYS.items()
    )


# ---- UI-TARS: bytedance/UI-TARS, README_v1.md (boxes) and codes/ui_tars/prompt.py (points);
# ---- 2: bytedance/UI-TARS-desktop, multimodal/omni-tars/core/src/environments/prompt_t5.ts, mode "gui" ----

HELPFUL = "You are a helpful assistant."
TARS = """You are a GUI agent. You are given a task and your action history, with screenshots. You need to \
perform the next action to complete the task.

## Output Format
```
Thought: ...
Action: ...
```

## Action Space
{actions}

## Note
- Use English in `Thought` part.
- Write a small plan and finally summarize your next action (with its target element) in one sentence in \
`Thought` part.

## User Instruction
{goal}

## Action History
{progress}
"""


def _tars(coordinates: Coordinates, at: str, start: str, end: str, point: str) -> Dialect:
    swipe, other = ("scroll", "drag") if at == start else ("drag", "scroll")
    verbs = (
        Verb(K.TAP, "click", at),
        Verb(K.LONG_PRESS, "long_press", at, more=("time",)),
        Verb(K.TYPE, "type", text="content"),
        Verb(K.SWIPE, swipe, start, end, more=("direction",)),
        Verb(K.SWIPE, other, start, end, more=("direction",), shown=None),
        *_moves("scroll", at, -0.3),  # "down" shows what is further down
        Verb(K.OPEN_APP, "open_app", text="app_name"),
        Verb(K.HOME, "press_home"),
        Verb(K.BACK, "press_back"),
        Verb(K.WAIT, "wait"),
        Verb(K.COMPLETE, "finished", more=("content",)),
    )
    thought = r"Thought:(.*?)(?:\nAction:|\Z)"
    return Dialect(verbs, Calls("Action: ", "", "'", f"'{point}'"), coordinates, HELPFUL, TARS, thought, 1001)


TARS_2 = """You are a GUI agent. You are given a task and your action history, with screenshots. You need to \
perform the next action to complete the task.

You should first think about the reasoning process in the mind and then provide the user with the answer. \
The reasoning process is enclosed within <thinkt> </thinkt> tags. An answer without a function call ends the \
task.

## Function Definition

- You have access to the following functions:
{actions}

- To call a function, use the following structure without any suffix:

<thinkt> reasoning process </thinkt>
<seed:tool_call>
<function=example_function_name>
<parameter=example_parameter_1>value_1</parameter>
</function>
</seed:tool_call>"""


def _tars_2() -> Dialect:
    verbs = (
        Verb(K.TAP, "click", "point"),
        Verb(K.DOUBLE_TAP, "left_double", "point"),
        Verb(K.SWIPE, "drag", "start_point", "end_point"),
        *_moves("scroll", "point", -0.3),
        Verb(K.TYPE, "type", text="content"),
        Verb(K.ENTER, "hotkey", fixed={"key": "enter"}),
        Verb(K.BACK, "navigate_back"),
        Verb(K.WAIT, "wait", more=("time",)),
        Verb(K.COMPLETE, "", shown=None),
    )
    syntax = Tags("<seed:tool_call>\n", "\n</seed:tool_call>", "<point>{x} {y}</point>")
    question = "{goal}\n\n## Action History\n{progress}\n"
    return Dialect(verbs, syntax, "relative", TARS_2, question, r"<thinkt>(.*?)</thinkt>", 1001)


class UITarsAgent(GuiModelAgent):
    """The agent of UI-TARS 1.5, 1, those of its models that write points, and 2 (for browsers); see
    `GuiModelAgent`."""

    _BOX = ("start_box", "start_box", "end_box", "<|box_start|>({x},{y})<|box_end|>")
    _POINT = ("point", "start_point", "end_point", "<point>{x} {y}</point>")
    dialects: ClassVar = {
        "1.5": _tars("absolute", *_BOX),
        "1": _tars("relative", *_BOX),
        "points": _tars("relative", *_POINT),
        "2": _tars_2(),
    }


# ---- AutoGLM-Phone: zai-org/Open-AutoGLM, phone_agent/config/prompts_en.py and actions/handler.py ----

GLM = """You are a professional Android operation agent assistant that can fulfill the user's high-level \
instructions. Given a screenshot of the Android interface at each step, you first analyze the situation, \
then plan the best course of action using Python-style pseudo-code.

Your output should STRICTLY follow the format:
<think>
[Your thought]
</think>
<answer>
[Your operation code]
</answer>

The operations are, with coordinates from (0,0) at the top left to (999,999) at the bottom right:
{actions}"""


def _do(kind: ActionKind, name: str, at: str = "", to: str = "", text: str = "", more: str = "") -> Verb:
    return Verb(kind, "do", at, to, text, {"action": name}, more=tuple(more.split()))


class AutoGLMAgent(GuiModelAgent):
    """The agent of AutoGLM-Phone; see `GuiModelAgent`."""

    _VERBS = (
        _do(K.OPEN_APP, "Launch", text="app"),
        _do(K.TAP, "Tap", "element", more="message"),
        _do(K.TYPE, "Type", text="text"),
        replace(_do(K.TYPE, "Type_Name", text="text"), shown=None),
        _do(K.SWIPE, "Swipe", "start", "end"),
        _do(K.LONG_PRESS, "Long Press", "element"),
        _do(K.DOUBLE_TAP, "Double Tap", "element"),
        _do(K.BACK, "Back"),
        _do(K.HOME, "Home"),
        _do(K.WAIT, "Wait", more="duration"),
        Verb(K.COMPLETE, "finish", more=("message",)),
    )
    _SYNTAX = Calls("<answer>", "</answer>", '"', "[{x},{y}]")
    _QUESTION = "{goal}\n\n** Previous Operations **\n{progress}\n"
    dialects: ClassVar = {"1": Dialect(_VERBS, _SYNTAX, "relative", GLM, _QUESTION, r"<think>(.*?)</think>")}


# ---- UI-Venus: inclusionAI/UI-Venus, models/navigation/utils.py, Venus_framework, models/mobile ----

VENUS = """**You are a GUI Agent.**
Your task is to analyze a given user task, review current screenshot and previous actions, and determine the \
next action to complete the task.

### User Task
{goal}

### Previous Actions
{progress}

### Available Actions
You may execute one of the following functions:
{actions}

### Instruction
- For requests that are questions, remember to reply to user explicitly before finishing!
"""
VENUS_1_FORMAT = """- The reasoning and action are enclosed in <think></think> and <action></action> tags. \
After providing action, summarize your action in <conclusion></conclusion> tags.
"""
VENUS_2_FORMAT = """- Valid coordinates range from (0, 0) to (999, 999).

### Output Format
<think> your thinking process </think>
<action> the next action </action>
"""


def _venus(
    coordinates: Coordinates, at: str, swipe: str, launch: str, answer: str, thought: str, form: str
) -> Dialect:
    verbs = (
        Verb(K.TAP, "Click", at),
        Verb(K.DOUBLE_TAP, "DoubleClick", at),
        Verb(K.LONG_PRESS, "LongPress", at),
        Verb(K.SWIPE, swipe, "start", "end", more=("direction",)),
        Verb(K.SWIPE, "Drag", "start", "end"),
        Verb(K.TYPE, "Type", text="content"),
        Verb(K.OPEN_APP, launch, text="app"),
        Verb(K.ANSWER, answer, text="content"),
        Verb(K.BACK, "PressBack"),
        Verb(K.HOME, "PressHome"),
        Verb(K.ENTER, "PressEnter"),
        Verb(K.WAIT, "Wait"),
        Verb(K.COMPLETE, "Finished", more=("content",)),
    )
    syntax = Calls("<action>", "</action>", "'", "({x}, {y})")
    said = rf"<{thought}>(.*?)(?:</{thought}>|\Z)"
    return Dialect(verbs, syntax, coordinates, HELPFUL, VENUS + form, said)


class UIVenusAgent(GuiModelAgent):
    """The agent of UI-Venus 2, 1.5 and 1 (Navi); see `GuiModelAgent`."""

    _ONE = ("box", "Scroll", "Launch", "CallUser", "conclusion", VENUS_1_FORMAT)
    dialects: ClassVar = {
        "2": _venus("relative", "point", "Swipe", "LaunchApp", "Answer", "think", VENUS_2_FORMAT),
        "1.5": _venus("relative", *_ONE),
        "1": _venus("absolute", *_ONE),
    }


# ---- MAI-UI: Tongyi-MAI/MAI-UI, src/prompt.py and src/mai_naivigation_agent.py ----

MAI = """You are a GUI agent. You are given a task and your action history, with screenshots. You need to \
perform the next action to complete the task.

## Output Format
For each function call, return the thinking process in <thinking> </thinking> tags, and a json object with \
function name and arguments within <tool_call></tool_call> XML tags:
```
<thinking>
...
</thinking>
<tool_call>
{"name": "mobile_use", "arguments": <args-json-object>}
</tool_call>
```

## Action Space

{actions}

## Note
- Write a small plan and finally summarize your next action (with its target element) in one sentence in \
<thinking></thinking> part."""


class MAIUIAgent(GuiModelAgent):
    """The agent of MAI-UI; see `GuiModelAgent`."""

    _VERBS = (
        Verb(K.TAP, "click", "coordinate"),
        Verb(K.LONG_PRESS, "long_press", "coordinate"),
        Verb(K.DOUBLE_TAP, "double_click", "coordinate"),
        Verb(K.TYPE, "type", text="text"),
        *_moves("swipe", "coordinate", 0.25),
        Verb(K.OPEN_APP, "open", text="text"),
        Verb(K.SWIPE, "drag", "start_coordinate", "end_coordinate"),
        *(Verb(kind, "system_button", fixed={"button": kind.value}) for kind in KEYS),
        Verb(K.WAIT, "wait"),
        Verb(K.COMPLETE, "terminate", fixed={"status": "success"}),
        Verb(K.IMPOSSIBLE, "terminate", fixed={"status": "fail"}),
        Verb(K.ANSWER, "answer", text="text"),
    )
    _SYNTAX = Objects("<tool_call>\n", "\n</tool_call>", {"name": "mobile_use"}, "arguments", "action")
    _QUESTION = "{goal}\n\nWhat you have done so far:\n{progress}\n"
    _THOUGHT = r"<think(?:ing)?>(.*?)</think(?:ing)?>"
    dialects: ClassVar = {"1": Dialect(_VERBS, _SYNTAX, "relative", MAI, _QUESTION, _THOUGHT)}


# ---- Holo: hcompai/hai-cookbook, utils/navigation.py (1, 1.5); hub.hcompany.ai/agent-loop (3, 3.1) ----

HOLO = """Imagine you are a robot {doing}, just like humans. Now you need to complete a task.
In each iteration, you will receive a screenshot and what was done before. Detail your thought before taking \
the action, and in the note the extracted information relevant to solve the task. Coordinates are {places}.

<output_format>
{"note": "information for later, or empty", "thought": "reasoning about next steps", "{inside}": CALL}
</output_format>
where CALL is one of
{actions}"""


def _holo(verbs: tuple[Verb, ...], key: str, name: str, coordinates: Coordinates, **words: str) -> Dialect:
    system = HOLO.replace("{inside}", key)
    for word, value in words.items():
        system = system.replace(f"{{{word}}}", value)
    question = "<task>\n{goal}\n</task>\n<previous_actions>\n{progress}\n</previous_actions>\n"
    thought = r'"thought"\s*:\s*"((?:[^"\\]|\\.)*)"'
    syntax = Objects("", "", {"note": "", "thought": ""}, key, name)
    return Dialect(verbs, syntax, coordinates, system, question, thought, 1001)


class HoloAgent(GuiModelAgent):
    """The agent of Holo 3 and 3.1, for which tools may be chosen, and of Holo 1 and 1.5, for browsers; see
    `GuiModelAgent`."""

    _THREE = (
        Verb(K.TAP, "click", "x y", blank=("element",)),
        Verb(K.DOUBLE_TAP, "double_click", "x y", blank=("element",)),
        Verb(K.LONG_PRESS, "long_press", "x y", blank=("element",)),
        Verb(K.TYPE, "write", text="content"),
        Verb(K.SWIPE, "swipe", "x y", "to_x to_y"),
        *(Verb(kind, "press", fixed={"key": kind.value}) for kind in KEYS),
        Verb(K.OPEN_APP, "open_app", text="app"),
        Verb(K.WAIT, "wait"),
        Verb(K.ANSWER, "tell_user", text="content"),
        Verb(K.COMPLETE, "answer", more=("content",)),
    )
    _ONE = (
        Verb(K.TAP, "click_element", "x y", blank=("element",)),
        Verb(K.TYPE, "write_element_abs", "x y", text="content", then="\n", blank=("element",)),
        *_moves("scroll", "", -0.3),
        Verb(K.BACK, "go_back"),
        Verb(K.WAIT, "wait", more=("seconds",)),
        Verb(K.COMPLETE, "answer", more=("content",)),
    )
    _SCALE, _PIXELS = "integers in [0, 1000]", "numbers of pixels from the left and top edge"
    dialects: ClassVar = {
        "3": _holo(_THREE, "tool_call", "tool_name", "relative", doing="operating a device", places=_SCALE),
        "1": _holo(_ONE, "action", "action", "absolute", doing="browsing the web", places=_PIXELS),
    }


# ---- GUI-Owl: X-PLUG/MobileAgent, android_world_v3 (1) and android_world_v3.5 (1.5), agents/gui_owl.py ----

OWL_FORMAT = """

# Response format

Response format for every step:
1) Action: a short imperative describing what to do in the UI.
2) A single <tool_call>...</tool_call> block containing only the JSON: {"name": <function-name>, \
"arguments": <args-json-object>}."""


class GUIOwlAgent(MobileUseAgent):
    """Stateless agent that calls `mobile_use` as GUI-Owl does.

    Args:
        version: "1.5" (of Qwen3-VL, points on a scale) or "1" (of Qwen2.5-VL, pixels of the resized picture).
        mode, history, summarise: See `ChatAgent`.
        coordinates, resize: See `MobileUseAgent`; by default those of the version.
    """

    def __init__(
        self,
        version: str | float = "1.5",
        mode: Mode = "history",
        coordinates: Coordinates | None = None,
        resize: Mapping[str, int] | None = None,
        history: int = 50,
        summarise: bool = False,
    ) -> None:
        own, reasoning = chosen({"1.5": ("relative", "none"), "1": ("absolute", "conclusion")}, version)
        super().__init__(mode, coordinates or own, resize, reasoning, history, summarise)

    def system(self, screen: Observation) -> str:
        text = super().system(screen)
        return text if self.reasoning != "none" else text.replace("999x999", "1000x1000") + OWL_FORMAT

    def question(self, goal: str, progress: str, number: int) -> str:
        if self.reasoning != "none":
            return super().question(goal, progress, number)
        asks = (
            "Please generate the next move according to the UI screenshot, instruction and previous actions."
        )
        return f"{asks}\n\nInstruction: {goal}\n\nPrevious actions:\n{progress or 'No previous action.'}\n"
