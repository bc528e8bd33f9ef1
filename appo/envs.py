"""Gymnasium environments with continuous actions: groups that step together, and what is collected from them.

Nothing here needs torch: `distrl doctor --worker` imports it on machines without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distrl.core.errors import ConfigError, EnvError, MissingDependency
from distrl.core.messages import EpisodeReturn

if TYPE_CHECKING:
    from distrl.appo.policy import GaussianPolicy

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Actor = Callable[[Floats], Floats]
"""Actions [n, a] at raw observations [n, d]."""

SCALED_LIMIT = 10.0


@dataclass(frozen=True)
class Space:
    """Sizes of flat observations and actions, and the bounds of actions, [action_size]."""

    observation_size: int
    action_size: int
    low: Floats
    high: Floats

    @property
    def sizes(self) -> tuple[int, int]:
        """Of observations and of actions."""
        return self.observation_size, self.action_size


def make_env(options: Mapping[str, Any]) -> Any:
    """One environment by `gymnasium.make(**options)`; `id` may be "module:Name-v0"."""
    try:
        import gymnasium
    except ImportError as error:
        raise _missing(options, "gymnasium") from error
    try:
        env = gymnasium.make(**options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(options, str(error).splitlines()[0]) from error
    except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
        raise ConfigError(
            f"env.options: gymnasium cannot make {options.get('id')!r}: {str(error).splitlines()[0]}",
            "Set env.options.id to the name of a registered environment, and correct its other options.",
        ) from error
    for space, what in ((env.observation_space, "observations"), (env.action_space, "actions")):
        if not isinstance(space, gymnasium.spaces.Box):
            env.close()
            raise ConfigError(
                f"env.options.id {options.get('id')!r} has {what} of the kind {type(space).__name__}, but "
                "appo learns continuous control only.",
                "Choose an environment whose observations and actions are boxes.",
            )
    return env


def _missing(options: Mapping[str, Any], what: str) -> MissingDependency:
    return MissingDependency(
        f"The environment {options.get('id')!r} needs a package: {what.rstrip('.')}.",
        'Install the extra: pip install "distrl[gym]".',
    )


def space_of(options: Mapping[str, Any]) -> Space:
    """The spaces of an environment, which is made for this and closed. Raises as `make_env`."""
    env = make_env(options)
    try:
        return _space(env)
    finally:
        env.close()


def _space(env: Any) -> Space:
    low, high = (np.asarray(b, np.float32).reshape(-1) for b in (env.action_space.low, env.action_space.high))
    return Space(int(np.prod(env.observation_space.shape)), len(low), low, high)


class GymGroup:
    """`num` environments of one kind, stepped one after another by one thread. Raises as `make_env`."""

    def __init__(self, options: Mapping[str, Any], num: int) -> None:
        self._envs = [make_env(options) for _ in range(num)]
        self.space = _space(self._envs[0])
        self._shape = self._envs[0].action_space.shape

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self, index: int, seed: int | None = None) -> Floats:
        """Starts an episode in environment `index`; its first observation, [d]. Raises EnvError."""
        try:
            observation, _ = self._envs[index].reset(seed=seed)
        except Exception as error:  # third-party code
            raise _failed(error) from error
        return np.asarray(observation, np.float64).reshape(-1)

    def step(
        self, actions: Floats, indices: Sequence[int] | None = None
    ) -> tuple[Floats, Floats, Bools, Bools]:
        """One step of each environment, or of those at `indices`, in that order.

        Args:
            actions: [n, a]; clipped to the box here, for the environment only.

        Returns:
            Observations [n, d] after the step, also where an episode ended; rewards, terminated and
            truncated, [n]. Truncated is a time limit, after which the state still has a value.
        """
        chosen = range(len(self._envs)) if indices is None else indices
        clipped = np.clip(actions, self.space.low, self.space.high)
        num = len(chosen)
        observations = np.empty((num, self.space.observation_size))
        rewards = np.empty(num)
        terminated, truncated = np.zeros(num, bool), np.zeros(num, bool)
        try:
            for row, index in enumerate(chosen):
                action = clipped[row].reshape(self._shape)
                observation, rewards[row], terminated[row], truncated[row], _ = self._envs[index].step(action)
                observations[row] = np.asarray(observation).reshape(-1)
        except Exception as error:  # third-party code
            raise _failed(error) from error
        if not np.isfinite(observations).all() or not np.isfinite(rewards).all():
            raise EnvError("The environment failed: an observation or a reward is not a finite number.")
        return observations, rewards, terminated, truncated

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _failed(error: Exception) -> EnvError:
    return EnvError(f"The environment failed: {type(error).__name__}: {error}.")


def run_episodes(
    group: GymGroup,
    actor: Actor,
    seeds: Sequence[int],
    is_stopping: Callable[[], bool] = lambda: False,
    ended: Callable[[int], None] = lambda num: None,
) -> list[EpisodeReturn] | None:
    """One episode for each seed, as many at a time as there are environments.

    The episode of a seed does not depend on the others, if the environment follows its seed.

    Args:
        is_stopping: Polled at each step; ends the episodes early, and the result is None.
        ended: Called with the number of finished episodes whenever it changes.
    """
    waiting = deque(enumerate(seeds))
    found: dict[int, EpisodeReturn] = {}
    running: dict[int, int] = {}  # environment → position of its seed
    now: dict[int, Floats] = {}
    totals, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), int)

    def begin(index: int) -> None:
        if waiting:
            running[index], seed = waiting.popleft()
            now[index] = group.reset(index, int(seed))

    for index in range(len(group)):
        begin(index)
    while running:
        if is_stopping():
            return None
        indices = list(running)
        observations, rewards, terminated, truncated = group.step(
            actor(np.stack([now[index] for index in indices])), indices
        )
        for row, index in enumerate(indices):
            position = running[index]
            totals[position] += rewards[row]
            lengths[position] += 1
            now[index] = observations[row]
            if terminated[row] or truncated[row]:
                found[position] = EpisodeReturn(total=float(totals[position]), length=int(lengths[position]))
                del running[index]
                begin(index)
                ended(len(found))
    return [found[position] for position in range(len(seeds))]


@dataclass
class Moments:
    """Count, mean and M2 = Σ (x − mean)² of vectors of d numbers.

    A worker sends those of its new observations only, and the learner merges them into the run's, so each
    number is counted once however the work is split.
    """

    count: float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> Moments:
        return cls(0.0, np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, x: Floats) -> Moments:
        """Of the rows of `x`, [n, d]."""
        rows = np.asarray(x, np.float64)
        if not len(rows):
            return cls.empty(rows.shape[1])
        mean = rows.mean(axis=0)
        return cls(float(len(rows)), mean, ((rows - mean) ** 2).sum(axis=0))

    def merge(self, other: Moments) -> None:
        """Adds `other` (Chan, Golub & LeVeque 1979, eq. 2.1).

        n = n_a + n_b,  δ = mean_b − mean_a:  mean = mean_a + δ n_b / n,  M2 = M2_a + M2_b + δ² n_a n_b / n
        """
        if other.count == 0.0:
            return
        count = self.count + other.count
        delta = other.mean - self.mean
        self.mean = self.mean + delta * (other.count / count)
        self.m2 = self.m2 + other.m2 + delta * delta * (self.count * other.count / count)
        self.count = count

    def std(self, floor: float = 1e-4) -> NDArray[np.float64]:
        """√(M2 / n), at least `floor`; 1 while nothing was counted."""
        if self.count == 0.0:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.m2 / self.count), floor)


@dataclass(frozen=True)
class Round:
    """T steps of n environments, and the statistics of a round; episodes may end at any row."""

    observations: Floats  # [T, n, d], raw
    actions: NDArray[np.float32]  # [T, n, a], before clipping
    log_probs: NDArray[np.float32]  # [T, n], log π_old by the weights and statistics that drew the actions
    rewards: NDArray[np.float32]  # [T, n], scaled
    next_observations: Floats  # [T, n, d], raw, after the step, also where the episode ended there
    terminated: Bools  # [T, n], the episode ended by itself: nothing follows
    done: Bools  # [T, n], it ended, by itself or cut off by a time limit (which bootstraps)
    seen: Moments  # of the raw observations
    returns: Moments  # of the discounted return as it builds up
    episodes: Sequence[EpisodeReturn]  # those that ended


class Collector:
    """Runs a group of environments without end, a round at a time; episodes may span rounds.

    Within a round everything is normalised by the statistics that came with the round's weights. New
    statistics count from the next weights on. `gamma` is that of the discounted return G ← γ G + r, by whose
    standard deviation rewards are divided.
    """

    def __init__(self, group: GymGroup, gamma: float, rng: np.random.Generator) -> None:
        self._group, self._gamma, self._rng = group, gamma, rng
        num = len(group)
        self._now = np.stack([group.reset(i, int(rng.integers(2**31))) for i in range(num)])
        self._discounted, self._return, self._length = np.zeros(num), np.zeros(num), np.zeros(num, int)

    def collect(
        self, policy: GaussianPolicy, num_steps: int, is_stopping: Callable[[], bool] = lambda: False
    ) -> Round | None:
        """`num_steps` steps of each environment; None if `is_stopping` became true. Raises EnvError."""
        num, size = len(self._group), self._group.space.observation_size
        raw, after = np.empty((num_steps, num, size)), np.empty((num_steps, num, size))
        actions = np.empty((num_steps, num, self._group.space.action_size), np.float32)
        rewards, discounted = np.empty((num_steps, num)), np.empty((num_steps, num))
        terminated, done = np.empty((num_steps, num), bool), np.empty((num_steps, num), bool)
        episodes: list[EpisodeReturn] = []
        for t in range(num_steps):
            if is_stopping():
                return None
            raw[t] = self._now
            actions[t] = policy.act(policy.normalise(self._now), self._rng)
            self._now, rewards[t], terminated[t], truncated = self._group.step(actions[t])
            after[t], done[t] = self._now, terminated[t] | truncated
            self._discounted = self._gamma * self._discounted + rewards[t]
            discounted[t] = self._discounted
            self._return += rewards[t]
            self._length += 1
            episodes += [self._next_episode(int(index)) for index in np.flatnonzero(done[t])]
        rewards = np.clip(rewards / float(policy.returns.std()[0]), -SCALED_LIMIT, SCALED_LIMIT)
        return Round(
            observations=raw,
            actions=actions,
            log_probs=policy.log_probs(policy.normalise(raw), actions),
            rewards=rewards.astype(np.float32),
            next_observations=after,
            terminated=terminated,
            done=done,
            seen=Moments.of(raw.reshape(-1, size)),
            returns=Moments.of(discounted.reshape(-1, 1)),
            episodes=episodes,
        )

    def _next_episode(self, index: int) -> EpisodeReturn:
        """Starts the next episode there; return and length of the one that ended."""
        ended = EpisodeReturn(total=float(self._return[index]), length=int(self._length[index]))
        self._now[index] = self._group.reset(index)
        self._discounted[index] = self._return[index] = self._length[index] = 0
        return ended
