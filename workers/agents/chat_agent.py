"""Agents that talk in chats: instructions, a question with the present screenshot, an answer in words.

What such an agent is told of earlier steps is a line for each. A subclass words the prompts and reads the
answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from distrl.core.actions import Action
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt


class ChatAgent(ABC):
    """Stateless agent that tells earlier steps in words.

    Args:
        history: How many earlier steps are told at most, the latest ones.
        line_chars: How much of an earlier answer is repeated in its line.
    """

    def __init__(self, history: int, line_chars: int) -> None:
        if min(history, line_chars) < 0:
            raise ValueError("history and the characters of a line must be 0 or more")
        self.history, self.line_chars = history, line_chars

    @abstractmethod
    def system(self, screen: Observation) -> str:
        """The instructions: what actions there are and how they are written for this screen."""

    @abstractmethod
    def question(self, goal: str, told: Sequence[str], number: int) -> str:
        """The question of step `number` (from 0) that tells the earlier steps; the screenshot follows it."""

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
        """The instructions and one question."""
        question = self.question(goal, self._told(history), len(history))
        return Prompt((_says("system", self.system(screen)), _says("user", question, screen.image)))

    def answer(self, step: TimeStep) -> str:
        """What was answered in an earlier step."""
        return step.chats[-1].completion.text if step.chats else ""

    def _told(self, history: Sequence[TimeStep]) -> list[str]:
        first = max(0, len(history) - self.history)
        return [f"Step {first + n + 1}: {self.line(step)}" for n, step in enumerate(history[first:])]


def _says(role: str, text: str, image: str = "") -> ChatMessage:
    parts = (TextPart(text=text), *((ImagePart(digest=image),) if image else ()))
    return ChatMessage.model_validate({"role": role, "parts": parts})
