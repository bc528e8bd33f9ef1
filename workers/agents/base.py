"""The agent interface: prompt in, action out. Agents are stateless; the episode's history is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from distrl.core.actions import Action
from distrl.core.types import Chat, ChatMessage, Observation, TimeStep


@dataclass(frozen=True)
class Prompt:
    """What the policy is asked: the chat to complete, or what is new of it.

    With `continues` it continues the chat before it in the episode, whose tokens stay as they are. Without
    `is_action` the answer is not the step's action: the agent is asked for another prompt, with this one and
    its answer in `said`.
    """

    messages: tuple[ChatMessage, ...]
    continues: bool = False
    is_action: bool = True


class Agent(Protocol):
    """Turns an observation into a chat for the policy, and the policy's text into an action.

    Three attributes are optional: with `needs_elements` true, observations have the screen's elements, if
    they can be read, and with `needs_marks` also the picture `marked`; `random_action(rng)` draws an action
    where gestures on a screen mean nothing.
    """

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """What to ask next, given the goal, the present screen and the steps so far.

        Args:
            screen: What is seen now; the prompt names its picture by digest.
            said: What has been asked and answered in this step already, none of it the action.
        """

    def parse(self, text: str, screen: Observation) -> Action:
        """The action that `text`, said of `screen`, means. Never raises: everything else is INVALID."""

    def format(self, action: Action, screen: Observation) -> str:
        """The text of `action` on `screen` in this agent's notation (used for demonstrations)."""
