"""The scripted expert in the policy's place: noisy demonstrations with clean labels."""

from __future__ import annotations

import random

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Chat, Completion, Observation
from distrl.workers.agents.base import Agent, Prompt
from distrl.workers.envs.base import Env
from distrl.workers.returned import call


class Demonstrator:
    """Acts as the expert of an environment, or at random with probability `noise`.

    Noise takes the episode to states that the expert alone would never visit, and the expert shows the way
    back. The completion always says what the *expert* would do in the present state, also when a random
    action was executed in its place (a label as in DAgger), so that cloning the completions learns from the
    expert only. The random action itself is recorded as the step's action. Demonstrations carry no token ids
    and no log-probs.

    Args:
        env: The environment; its `expert_action` is asked.
        agent: Whose notation the completions are in.
        noise: Probability of a random action.
        rng: Where the noise comes from.
    """

    def __init__(self, env: Env, agent: Agent, noise: float, rng: random.Random) -> None:
        self._env = env
        self._agent = agent
        self._noise = noise
        self._rng = rng

    def act(self, prompt: Prompt, screen: Observation) -> tuple[Chat, Action]:
        """The expert's answer to `prompt`, and the action to execute.

        The expert's action is executed as its text says it (rounded), as a policy's would be.

        Raises:
            EnvError: The task has no expert.
        """
        wanted = call(Action, self._env.expert_action)
        text = call(str, self._agent.format, wanted, screen)
        is_noisy = self._rng.random() < self._noise
        action = random_action(self._rng) if is_noisy else call(Action, self._agent.parse, text, screen)
        return answer(prompt, text), action

    def pass_over(self, prompt: Prompt) -> Chat:
        """An empty answer to a question that is not for the action."""
        return answer(prompt, "")


def answer(prompt: Prompt, text: str) -> Chat:
    """`prompt` answered with `text` by somebody without tokens."""
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
