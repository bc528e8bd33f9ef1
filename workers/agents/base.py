"""The agent interface: prompt in, action out. Agents are stateless; the episode's history is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from distrl.core.actions import Action
from distrl.core.types import ChatMessage, TimeStep


class Agent(Protocol):
    """Turns an observation into a chat for the policy, and the policy's text into an action."""

    def prompt(self, goal: str, image_digest: str, history: Sequence[TimeStep]) -> tuple[ChatMessage, ...]:
        """The messages to complete, given the goal, the present screenshot and the steps so far."""
        ...

    def parse(self, text: str) -> Action:
        """The action that `text` means. Never raises: what cannot be understood is an INVALID action."""
        ...

    def format(self, action: Action) -> str:
        """The text of `action` in this agent's notation (used for demonstrations)."""
        ...
