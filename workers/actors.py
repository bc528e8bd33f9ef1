"""Actors in place of the policy: the scripted expert (noisy states, clean labels), chance, or a person."""

from __future__ import annotations

import random
import string
import threading
from typing import TYPE_CHECKING

from distrl.core.actions import Action, ActionKind, Point
from distrl.core.errors import ConfigError
from distrl.core.types import Chat, Completion, Observation
from distrl.core.user_errors import call
from distrl.workers.agents.base import Agent, Prompt
from distrl.workers.board import SlotSign
from distrl.workers.envs.base import Env

if TYPE_CHECKING:
    from distrl.workers.episode import Conversation

KINDS = tuple(
    kind for kind in ActionKind if kind.value not in ("double_tap", "open_app", "answer", "motion", "invalid")
)
"""The kinds of action that most agents' notations can write."""
MAX_LETTERS = 8
HAND_POLL_S = 0.5


class Demonstrator:
    """Acts as the expert of an environment, at random with probability `noise`, or as the policy.

    Noise and a policy lead the episode to states that the expert alone would never visit, and the expert then
    shows the way back. The completion is always the *expert's* action in the present state, even where
    another one was executed instead (DAgger, Ross et al. 2011), so that cloning the completions learns from
    the expert only. What was executed is recorded as the step's action. Demonstrations carry no token ids and
    no log-probs.

    Args:
        policy: What acts; None for the expert. Its claim that the episode is over does not end it.
    """

    def __init__(
        self, env: Env, agent: Agent, noise: float, rng: random.Random, policy: Conversation | None = None
    ) -> None:
        self._env, self._agent, self._noise, self._rng, self._policy = env, agent, noise, rng, policy

    def act(self, prompt: Prompt, screen: Observation) -> tuple[Chat, Action]:
        """The expert's answer to `prompt`, and the action to execute.

        The expert's action is parsed from its text (rounded), as a policy's would be.
        """
        text = call(str, self._agent.format, call(Action, self._env.expert_action), screen)
        wanted = call(Action, self._agent.parse, text, screen)
        is_noisy = self._rng.random() < self._noise
        draw = getattr(self._agent, "random_action", random_action)
        action = draw(self._rng) if is_noisy else wanted
        if self._policy is not None and not action.is_terminal:
            own = self._policy.ask(prompt).completion.text
            played = call(Action, self._agent.parse, own, screen)
            action = action if played.is_terminal else played
        return answer(prompt, text).model_copy(update={"executed": action == wanted}), action


def answer(prompt: Prompt, text: str) -> Chat:
    """`prompt` answered with `text`, without tokens."""
    return Chat(messages=prompt.messages, completion=Completion(text=text), continues=prompt.continues)


def random_action(rng: random.Random) -> Action:
    """A random gesture or navigation key; never a claim that the episode is over, never typing."""
    kind = rng.choices(
        [ActionKind.TAP, ActionKind.SWIPE, ActionKind.BACK, ActionKind.HOME], weights=[0.7, 0.15, 0.1, 0.05]
    )[0]
    if kind is ActionKind.TAP:
        return Action.tap(*_point(rng))
    if kind is ActionKind.SWIPE:
        return Action.swipe(_point(rng), _point(rng))
    return Action(kind=kind)


def _point(rng: random.Random) -> tuple[float, float]:
    return round(rng.random(), 2), round(rng.random(), 2)


class RandomActor:
    """Acts at random, whatever the goal and the screen: the baseline that sees nothing.

    Kinds are uniform over those of `KINDS` that the agent's notation has, which include the claims that the
    episode is over, and points over the screen; typed text is one to `MAX_LETTERS` lower-case letters. An
    agent with `random_action` draws its own. Its chats have no tokens.
    """

    def __init__(self, agent: Agent, rng: random.Random) -> None:
        self._agent, self._rng, self._kinds = agent, rng, KINDS

    def act(self, prompt: Prompt, screen: Observation) -> tuple[Chat, Action]:
        """A random answer to `prompt`, and the action to execute."""
        drawn = self._draw()
        try:
            text = call(str, self._agent.format, drawn, screen)
        except ConfigError:  # the notation lacks it
            self._kinds = tuple(kind for kind in self._kinds if kind is not drawn.kind)
            if not self._kinds:
                raise
            return self.act(prompt, screen)
        return answer(prompt, text), call(Action, self._agent.parse, text, screen)

    def _draw(self) -> Action:
        if (draw := getattr(self._agent, "random_action", None)) is not None:
            drawn: Action = draw(self._rng)
            return drawn
        kind = self._rng.choice(self._kinds)
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


class Abandoned(Exception):
    """The episode ends without a record: the person has left the slot, or the worker stops."""


class ByHand:
    """Acts as the person says who plays the slot; its chats have no tokens.

    Args:
        sign: Where the person's actions come from.
        stop: When set, `act` raises `Abandoned`.
    """

    def __init__(self, agent: Agent, sign: SlotSign, stop: threading.Event) -> None:
        self._agent, self._sign, self._stop = agent, sign, stop

    def act(self, prompt: Prompt, screen: Observation) -> tuple[Chat, Action]:
        """The person's next action that the agent's notation has, as answer to `prompt`."""
        while not (self._stop.is_set() or self._sign.is_given_up):
            action = self._sign.wait_hand(HAND_POLL_S)
            if action is None:
                continue
            try:
                text = call(str, self._agent.format, action, screen)
            except ConfigError as error:
                self._sign.hint = error.message
                continue
            taken = call(Action, self._agent.parse, text, screen)
            if taken.kind is not ActionKind.INVALID:
                return answer(prompt, text), taken
            self._sign.hint = f"The agent cannot write this action here: {taken.reason}."
        raise Abandoned
