"""Agents that talk in chats: instructions, a question with the present screenshot, an answer in words.

There are two ways to describe earlier steps to the model:

    mode        what the model sees at a step                                      token sequences
    history     instructions, goal, a line for each earlier step, the screenshot   one a step
    incremental all questions, screenshots and answers so far, the screenshot      one an episode

and four ways to show it a screen:

    observe     what the model sees of the present screen                         as
    screenshot  the screenshot
    elements    a numbered list of its UI elements, with classes and bounds       T3A
    both        a numbered list of its UI elements, and the screenshot
    marks       this list, and the screenshot with a numbered box around each     M3A

T3A and M3A are agents of AndroidWorld (google-research/android_world, agents/t3a.py and m3a.py). As there, an
element is a line `UI element 7: {…}` whose fields are named as in the accessibility tree, M3A's lines are the
shorter ones, and a number takes the place of a point. Unlike there, a field that says nothing is left out,
long texts and lists are cut, `marks` does not show the plain screenshot as well, and a summary is written
from the screen after the action alone. The wording is this project's.

If a screen's elements cannot be read, the prompt says so. In mode "incremental" earlier lists stay in the
sequence, so a list names only the elements that differ from the list before it.

In mode "history" the model may be asked twice a step: first to summarise what has happened, then to act. Its
summary then replaces the lines, and the next summary continues from it.

A subclass words the prompts and reads the answers.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, get_args

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Chat, ChatMessage, Element, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt
from distrl.workers.agents.elements import named, number_for
from distrl.workers.agents.notation import Grid, NoAction, spoken

Mode = Literal["history", "incremental"]
Observe = Literal["screenshot", "elements", "both", "marks"]
LINE_CHARS = 200  # how much of an earlier answer is repeated in its line
TEXT_CHARS, LIST_CHARS = 200, 20_000  # of a text in a list of elements, and of the list

SUMMARY_SYSTEM = """An assistant operates an Android phone for a user, one action at a time. Keep track of \
its work: after each action say in a few sentences what has been done so far, what came of it, and what is \
left to do. Write only that; do not act."""
SUMMARY = """The user's goal: {goal}

The summary before the last action: {before}

The last action, step {number}: {line}

The screen after it:"""

CANNOT_LIST = "The UI elements of this screen cannot be listed."
_STATES = {"unchecked": ("is_checked", False), "disabled": ("is_enabled", False)}
"""Flags whose field is not is_FLAG: true."""


class ChatAgent(ABC):
    """Stateless agent that describes earlier steps in words.

    Args:
        mode: How earlier steps are described; see above.
        history: How many earlier steps are described at most in mode "history", the latest ones.
        summarise: Whether the model sums up what has happened before each action; mode "history" only.
        observe: What the model sees of the screen; see above.
    """

    line_end = "\n"

    def __init__(self, mode: Mode, history: int, summarise: bool, observe: Observe = "screenshot") -> None:
        for name, value, known in (("mode", mode, Mode), ("observe", observe, Observe)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}")
        if history < 0:
            raise ValueError(f"history must be 0 or more, not {history}")
        if summarise and mode != "history":
            raise ValueError(
                "summarise needs mode history: a continued sequence holds the whole conversation"
            )
        self.mode, self.history, self.summarise, self.observe = mode, history, summarise, observe
        self.needs_elements, self.needs_marks = observe != "screenshot", observe == "marks"

    @abstractmethod
    def system(self, screen: Observation) -> str:
        """The instructions: what actions there are and how they are written for this screen."""

    @abstractmethod
    def question(self, goal: str, progress: str, number: int) -> str:
        """The question of step `number` (from 0); the screen follows it. `progress` has a line a step."""

    @abstractmethod
    def opening(self, goal: str) -> str:
        """The first question in mode "incremental"; the screen follows it."""

    @abstractmethod
    def summary(self, step: TimeStep, action: Action) -> str:
        """An earlier step, whose answer was an action, in one line."""

    def grid(self, screen: Observation) -> Grid:
        """The whole numbers that the model reads and writes for points on `screen`."""
        return Grid(1000, 1000)

    def listed(self, screen: Observation) -> Sequence[Element]:
        """The elements of `screen` that the model can name by their numbers."""
        return (self.needs_elements and screen.elements) or ()

    def target(self, step: TimeStep, action: Action) -> str:
        """What an earlier action touched, whose number says nothing any more: ` on Switch "Wi-Fi"`, or ""."""
        elements = self.listed(step.observation)
        number = number_for(elements, action.point) if action.point and not action.to else None
        return "" if number is None else f" on {named(elements[number])}"

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
            asked = self._asks(_next_question(history), screen, self._lines(history[-1].observation))
            return Prompt((asked,), continues=True)
        if self.summarise and history and not said:
            return self._ask_summary(goal, screen, history)
        if self.mode == "incremental":
            question = self.opening(goal)
        else:
            progress = _summary(said[-1]) if said else ""
            question = self.question(goal, progress or self._told(history), len(history))
        return Prompt((_says("system", self.system(screen)), self._asks(question, screen)))

    def _ask_summary(self, goal: str, screen: Observation, history: Sequence[TimeStep]) -> Prompt:
        before = _summary(history[-1].chats[0]) if len(history[-1].chats) > 1 else ""
        text = SUMMARY.format(
            goal=goal,
            before=before or self._told(history[:-1]).rstrip() or "nothing was done.",
            number=len(history),
            line=self.line(history[-1]),
        )
        return Prompt((_says("system", SUMMARY_SYSTEM), self._asks(text, screen)), is_action=False)

    def _asks(self, question: str, screen: Observation, before: Sequence[str] = ()) -> ChatMessage:
        """A question and what the model sees of `screen`; `before` are the lines that it has seen last."""
        if self.needs_elements:
            question = f"{question.rstrip()}\n{self._list(screen, before)}"
        return _says("user", question, "" if self.observe == "elements" else screen.shown)

    def _list(self, screen: Observation, before: Sequence[str]) -> str:
        if screen.elements is None:
            return CANNOT_LIST
        lines = self._lines(screen)
        new = [line for n, line in enumerate(lines) if n >= len(before) or line != before[n]]
        if lines and len(lines) == len(before) and not new:
            return "The UI elements are as before."
        if 2 * len(new) > len(lines) or not lines:
            return "\n".join(["UI elements:", *(lines or ["none"])])
        return "\n".join([f"UI elements that changed, of {len(screen.elements)} now:", *(new or ["none"])])

    def _lines(self, screen: Observation) -> list[str]:
        """A line for each element, until there are LIST_CHARS characters."""
        lines: list[str] = []
        room, elements = LIST_CHARS, self.listed(screen)
        for number, element in enumerate(elements):
            line = f"UI element {number}: {json.dumps(self._fields(element, screen), ensure_ascii=False)}"
            room -= len(line)
            if room < 0:
                return [*lines, f"{len(elements) - number} more UI elements are not listed."]
            lines.append(line)
        return lines

    def _fields(self, element: Element, screen: Observation) -> dict[str, object]:
        is_text_only, (left, top, right, bottom) = self.observe == "elements", element.bounds
        texts = {"text": element.text, "content_description": element.description}
        if is_text_only:
            texts |= {"class_name": element.class_name, "resource_id": element.resource_id}
        fields: dict[str, object] = {name: text[:TEXT_CHARS] for name, text in texts.items() if text}
        fields |= [_STATES.get(flag, (f"is_{flag}", True)) for flag in element.flags]
        if is_text_only:
            grid = self.grid(screen)
            fields["bounds"] = [*grid.cell((left, top)), *grid.cell((right, bottom))]
        return fields

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
