"""Random actions in the policy's place: the baseline that looks at nothing."""

from __future__ import annotations

import random
import string

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.types import Chat, Observation
from distrl.workers.agents.base import Agent, Prompt
from distrl.workers.demonstrator import answer
from distrl.workers.returned import call

KINDS = (
    ActionKind.TAP,
    ActionKind.LONG_PRESS,
    ActionKind.SWIPE,
    ActionKind.TYPE,
    ActionKind.BACK,
    ActionKind.HOME,
    ActionKind.ENTER,
    ActionKind.WAIT,
    ActionKind.COMPLETE,
    ActionKind.IMPOSSIBLE,
)
"""The kinds of action that every agent's notation can write."""
MAX_LETTERS = 8


class RandomActor:
    """Acts at random, whatever the goal and the screen.

    Each action's kind is uniform over `KINDS`, which include the claims that the episode is over; its points
    are uniform over the screen, and typed text is one to `MAX_LETTERS` lower-case letters. The answer says
    the action in the agent's notation, and what is executed is what that says. There are no tokens.

    Args:
        agent: Whose notation the answers are in.
        rng: Where the actions come from.
    """

    def __init__(self, agent: Agent, rng: random.Random) -> None:
        self._agent = agent
        self._rng = rng

    def act(self, prompt: Prompt, screen: Observation) -> tuple[Chat, Action]:
        """A random answer to `prompt`, and the action to execute."""
        text = call(str, self._agent.format, self._draw(), screen)
        return answer(prompt, text), call(Action, self._agent.parse, text, screen)

    def pass_over(self, prompt: Prompt) -> Chat:
        """An empty answer to a question that is not for the action."""
        return answer(prompt, "")

    def _draw(self) -> Action:
        kind = self._rng.choice(KINDS)
        if kind is ActionKind.SWIPE:
            return Action.swipe(self._point(), self._point())
        if kind in (ActionKind.TAP, ActionKind.LONG_PRESS):
            return Action(kind=kind, point=self._point())
        if kind is ActionKind.TYPE:
            letters = self._rng.choices(string.ascii_lowercase, k=self._rng.randint(1, MAX_LETTERS))
            return Action.type_text("".join(letters))
        return Action(kind=kind)

    def _point(self) -> Point:
        return self._rng.random(), self._rng.random()
