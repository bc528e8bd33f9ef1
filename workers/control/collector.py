"""Collecting transitions for local training, and what is counted on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distrl.core.moments import Moments
from distrl.workers.envs.gym import GymGroup

if TYPE_CHECKING:
    from distrl.core.policies.gaussian import GaussianPolicy
    from distrl.core.policies.local_ppo import Transitions

SCALED_LIMIT = 10.0


@dataclass
class Counted:
    """What was seen in a round, besides the transitions.

    Attributes:
        observations, returns: Moments of raw observations, and of the discounted return as it builds up.
        episodes: (return, length) of each episode that ended.
    """

    observations: Moments
    returns: Moments
    episodes: list[tuple[float, int]] = field(default_factory=list)


class Collector:
    """Runs a group of environments on and on, a round at a time; episodes go over the ends of rounds.

    Within a round everything is normalised by the statistics that the round's weights came with. What is new
    counts from the next weights on.

    Args:
        group: The environments.
        gamma: Of the discounted return G ← γ G + r, whose standard deviation rewards are divided by.
        scale_rewards: Whether they are.
        rng: Draws the seeds of the first episodes and the noise of actions.
    """

    def __init__(self, group: GymGroup, gamma: float, scale_rewards: bool, rng: np.random.Generator) -> None:
        self._group, self._gamma, self._scale, self._rng = group, gamma, scale_rewards, rng
        num = len(group)
        self._now = np.stack([group.reset(i, int(rng.integers(2**31))) for i in range(num)])
        self._discounted, self._return, self._length = np.zeros(num), np.zeros(num), np.zeros(num, int)

    def collect(
        self, policy: GaussianPolicy, num_steps: int, is_stopping: Callable[[], bool] = lambda: False
    ) -> tuple[Transitions, Counted] | None:
        """`num_steps` steps of each environment; None if `is_stopping` said so meanwhile.

        Raises:
            EnvError: An environment failed.
        """
        from distrl.core.policies.local_ppo import Transitions

        num, size = len(self._group), self._group.space.observation_size
        raw = np.empty((num_steps, num, size))
        after = np.empty((num_steps, num, size))
        actions = np.empty((num_steps, num, self._group.space.action_size), np.float32)
        rewards, discounted = np.empty((num_steps, num)), np.empty((num_steps, num))
        terminated, done = np.empty((num_steps, num), bool), np.empty((num_steps, num), bool)
        episodes: list[tuple[float, int]] = []
        for t in range(num_steps):
            if is_stopping():
                return None
            raw[t] = self._now
            actions[t] = policy.act(policy.normalise(self._now), self._rng)
            steps = self._group.step(actions[t])
            after[t], rewards[t], terminated[t] = steps.observations, steps.rewards, steps.terminated
            done[t] = steps.terminated | steps.truncated
            self._discounted = self._gamma * self._discounted + steps.rewards
            discounted[t] = self._discounted
            self._now = steps.observations
            self._return += steps.rewards
            self._length += 1
            for index in np.flatnonzero(done[t]):
                episodes.append(self._next_episode(int(index)))
        scale = float(policy.returns.std()[0]) if self._scale else 1.0
        data = Transitions(
            observations=raw,
            actions=actions,
            log_probs=policy.log_probs(policy.normalise(raw), actions),
            rewards=_scaled(rewards, scale, self._scale),
            next_observations=after,
            terminated=terminated,
            done=done,
        )
        counted = Counted(Moments.of(raw.reshape(-1, size)), Moments.of(discounted.reshape(-1, 1)), episodes)
        return data, counted

    def _next_episode(self, index: int) -> tuple[float, int]:
        """Starts the next episode there; return and length of the one that ended."""
        ended = float(self._return[index]), int(self._length[index])
        self._now[index] = self._group.reset(index)
        self._discounted[index] = self._return[index] = self._length[index] = 0
        return ended


def _scaled(rewards: NDArray[np.float64], scale: float, is_scaled: bool) -> NDArray[np.float32]:
    if is_scaled:
        rewards = np.clip(rewards / scale, -SCALED_LIMIT, SCALED_LIMIT)
    return rewards.astype(np.float32)
