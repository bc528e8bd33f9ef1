"""Agents that talk in chats: instructions, a question with the present screenshot, an answer in words.

There are two ways to tell the model what has happened so far:

    mode        what the model sees at a step                                      token sequences
    history     instructions, goal, a line for each earlier step, the screenshot   one a step
    incremental all questions, screenshots and answers so far, the screenshot      one an episode

A subclass words the prompts and reads the answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, get_args

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt

Mode = Literal["history", "incremental"]


class ChatAgent(ABC):
    """Stateless agent that tells earlier steps in words.

    Args:
        mode: How earlier steps are told; see above.
        history: How many earlier steps are told at most in mode "history", the latest ones.
        line_chars: How much of an earlier answer is repeated in its line.
    """

    def __init__(self, mode: Mode, history: int, line_chars: int) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}")
        if min(history, line_chars) < 0:
            raise ValueError("history and the characters of a line must be 0 or more")
        self.mode, self.history, self.line_chars = mode, history, line_chars

    @abstractmethod
    def system(self, screen: Observation) -> str:
        """The instructions: what actions there are and how they are written for this screen."""

    @abstractmethod
    def question(self, goal: str, told: Sequence[str], number: int) -> str:
        """The question of step `number` (from 0) that tells the earlier steps; the screenshot follows it."""

    @abstractmethod
    def opening(self, goal: str) -> str:
        """The first question in mode "incremental"; the screenshot follows it."""

    @abstractmethod
    def line(self, step: TimeStep) -> str:
        """An earlier step in one line."""

    @abstractmethod
    def parse(self, text: str, screen: Observation) -> Action:
        """As in `Agent`."""

    @abstractmethod
    def format(self, action: Action, screen: Observation) -> str:
        """As in `Agent`."""

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """The instructions and one question, or only the next question where the sequence goes on."""
        if self.mode == "incremental" and history:
            return Prompt((_says("user", _next_question(history), screen.image),), continues=True)
        if self.mode == "incremental":
            question = self.opening(goal)
        else:
            question = self.question(goal, self._told(history), len(history))
        return Prompt((_says("system", self.system(screen)), _says("user", question, screen.image)))

    def answer(self, step: TimeStep) -> str:
        """What was answered in an earlier step."""
        return step.chats[-1].completion.text if step.chats else ""

    def _told(self, history: Sequence[TimeStep]) -> list[str]:
        first = max(0, len(history) - self.history)
        return [f"Step {first + n + 1}: {self.line(step)}" for n, step in enumerate(history[first:])]


def _next_question(history: Sequence[TimeStep]) -> str:
    last = history[-1].action
    problem = f"Your last answer was not an action ({last.reason}).\n"
    question = f"Step {len(history) + 1}. The screen now:"
    return problem + question if last.kind == ActionKind.INVALID.value else question


def _says(role: str, text: str, image: str = "") -> ChatMessage:
    parts = (TextPart(text=text), *((ImagePart(digest=image),) if image else ()))
    return ChatMessage.model_validate({"role": role, "parts": parts})
