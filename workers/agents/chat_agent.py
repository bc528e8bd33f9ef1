"""Agents that talk in chats: instructions, a question with the present screenshot, an answer in words.

There are two ways to describe earlier steps to the model:

    mode        what the model sees at a step                                      token sequences
    history     instructions, goal, a line for each earlier step, the screenshot   one a step
    incremental all questions, screenshots and answers so far, the screenshot      one an episode

In mode "history" the model may be asked twice a step: first to summarise what has happened, then to act. Its
summary then replaces the lines, and the next summary continues from it.

A subclass words the prompts and reads the answers. Below it is what the agents' notations share.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt

Mode = Literal["history", "incremental"]
LINE_CHARS = 200  # how much of an earlier answer is repeated in its line

SUMMARY_SYSTEM = """An assistant operates an Android phone for a user, one action at a time. Keep track of \
its work: after each action say in a few sentences what has been done so far, what came of it, and what is \
left to do. Write only that; do not act."""
SUMMARY = """The user's goal: {goal}

The summary before the last action: {before}

The last action, step {number}: {line}

The screen after it:"""


class ChatAgent(ABC):
    """Stateless agent that describes earlier steps in words.

    Args:
        mode: How earlier steps are described; see above.
        history: How many earlier steps are described at most in mode "history", the latest ones.
        summarise: Whether the model sums up what has happened before each action; mode "history" only.
    """

    line_end = "\n"

    def __init__(self, mode: Mode, history: int, summarise: bool) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}")
        if history < 0:
            raise ValueError(f"history must be 0 or more, not {history}")
        if summarise and mode != "history":
            raise ValueError(
                "summarise needs mode history: a continued sequence holds the whole conversation"
            )
        self.mode, self.history, self.summarise = mode, history, summarise

    @abstractmethod
    def system(self, screen: Observation) -> str:
        """The instructions: what actions there are and how they are written for this screen."""

    @abstractmethod
    def question(self, goal: str, progress: str, number: int) -> str:
        """The question of step `number` (from 0); the screenshot follows it. `progress` has a line a step."""

    @abstractmethod
    def opening(self, goal: str) -> str:
        """The first question in mode "incremental"; the screenshot follows it."""

    @abstractmethod
    def summary(self, step: TimeStep, action: Action) -> str:
        """An earlier step, whose answer was an action, in one line."""

    def line(self, step: TimeStep) -> str:
        action = Action(**step.action.model_dump())
        if action.kind is ActionKind.INVALID:
            return f"not an action ({action.reason})"
        return self.summary(step, action)

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """The instructions and one question, or only the next question where the sequence continues.

        With `summarise`, the question of every step but the first comes after one for a summary.
        """
        if self.mode == "incremental" and history:
            return Prompt((_says("user", _next_question(history), screen.image),), continues=True)
        if self.summarise and history and not said:
            return self._ask_summary(goal, screen, history)
        if self.mode == "incremental":
            question = self.opening(goal)
        else:
            progress = _summary(said[-1]) if said else ""
            question = self.question(goal, progress or self._told(history), len(history))
        return Prompt((_says("system", self.system(screen)), _says("user", question, screen.image)))

    def _ask_summary(self, goal: str, screen: Observation, history: Sequence[TimeStep]) -> Prompt:
        before = _summary(history[-1].chats[0]) if len(history[-1].chats) > 1 else ""
        text = SUMMARY.format(
            goal=goal,
            before=before or self._told(history[:-1]).rstrip() or "nothing was done.",
            number=len(history),
            line=self.line(history[-1]),
        )
        return Prompt((_says("system", SUMMARY_SYSTEM), _says("user", text, screen.image)), is_action=False)

    def answer(self, step: TimeStep) -> str:
        return step.chats[-1].completion.text if step.chats else ""

    def _told(self, history: Sequence[TimeStep]) -> str:
        first = max(0, len(history) - self.history)
        lines = [f"Step {first + n + 1}: {self.line(step)}" for n, step in enumerate(history[first:])]
        return "".join(f"{line}{self.line_end}" for line in lines)


def _next_question(history: Sequence[TimeStep]) -> str:
    last = history[-1].action
    problem = f"Your last answer was not an action ({last.reason}).\n"
    question = f"Step {len(history) + 1}. The screen now:"
    return problem + question if last.kind == ActionKind.INVALID.value else question


def _summary(chat: Chat) -> str:
    """What was answered to a question for a summary, without the thinking."""
    try:
        return spoken(chat.completion.text).strip()
    except NoAction:
        return ""


def _says(role: str, text: str, image: str = "") -> ChatMessage:
    parts = (TextPart(text=text), *((ImagePart(digest=image),) if image else ()))
    return ChatMessage.model_validate({"role": role, "parts": parts})


KEPT_CHARS = 2_000
"""How much of an answer that is not an action is kept with the step; the chat keeps all of it."""

_THOUGHT_STARTS = re.compile(r"<think(?:ing)?>")
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")


class NoAction(ValueError):
    """Why some text is not an action. Agents turn it into an INVALID action."""


def read_action(
    read: Callable[[str], Action], text: str, max_chars: int = 20_000, kept_chars: int = KEPT_CHARS
) -> Action:
    """The action that `read` finds, else an INVALID one with the reason and `kept_chars` of the text.

    `read` raises NoAction for everything that is not an action; texts beyond `max_chars` are refused unread.
    """
    try:
        if len(text) > max_chars:
            raise NoAction(f"the text has {len(text)} characters, more than {max_chars}")
        return read(text)
    except NoAction as problem:
        return Action.invalid(encodable(text[:kept_chars]), encodable(str(problem)))


_Value = TypeVar("_Value")


def one_of(values: Mapping[str, _Value], name: object, what: str) -> _Value:
    """The value of a name. Raises NoAction if `what`, the field's name, has another one."""
    if not isinstance(name, str) or name not in values:
        raise NoAction(f"{what} is {short(name)}, not one of {', '.join(values)}")
    return values[name]


def whole(text: str, what: str) -> str:
    """`text`. Raises NoAction if it holds half a surrogate pair, which no encoding can carry."""
    if encodable(text) != text:
        raise NoAction(f"{what} holds half a surrogate pair")
    return text


def short(value: object) -> str:
    return repr(value)[:40]


@dataclass(frozen=True)
class Grid:
    """The whole numbers that points are written in: 0 to `columns` − 1 across, 0 to `rows` − 1 down."""

    columns: int
    rows: int

    def cell(self, point: Point) -> tuple[int, int]:
        x, y = int(point[0] * self.columns), int(point[1] * self.rows)
        return min(self.columns - 1, x), min(self.rows - 1, y)

    def point(self, x: float, y: float) -> Point:
        """The centre of a cell. Raises NoAction if it is not on the grid."""
        column, row = int(x), int(y)
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            raise NoAction(f"({x:g}, {y:g}) is not within 0 to {self.columns - 1} and 0 to {self.rows - 1}")
        return (column + 0.5) / self.columns, (row + 0.5) / self.rows


def encodable(text: str) -> str:
    """`text` without half surrogate pairs, which no encoding can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def spoken(text: str) -> str:
    """What stands behind the thinking, of which only the end may be here. Raises NoAction without an end."""
    ends = [match.end() for match in _THOUGHT_ENDS.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    if _THOUGHT_STARTS.search(rest):
        raise NoAction("the thinking does not end")
    return rest
