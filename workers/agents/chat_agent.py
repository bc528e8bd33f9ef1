"""Agents that talk in chats: instructions, a question with the present screenshot, an answer in words.

There are two ways to describe earlier steps to the model:

    mode        what the model sees at a step                                      token sequences
    history     instructions, goal, a line for each earlier step, the screenshot   one a step
    incremental all questions, screenshots and answers so far, the screenshot      one an episode

In mode "history" the model may be asked twice a step: first to summarise what has happened, then to act. Its
summary then replaces the lines, and the next summary continues from it.

A subclass words the prompts and reads the answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, get_args

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt
from distrl.workers.agents.notation import NoAction, spoken

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
