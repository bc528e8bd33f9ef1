"""Gymnasium environments with continuous actions, some of them stepped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.core.errors import ConfigError, EnvError, MissingDependency

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ControlSpace:
    """Sizes of flat observations and actions, and the bounds of actions, [action_size]."""

    observation_size: int
    action_size: int
    low: Floats
    high: Floats

    @property
    def sizes(self) -> tuple[int, int]:
        """Of observations and of actions."""
        return self.observation_size, self.action_size


@dataclass(frozen=True)
class Steps:
    """What one step of each environment brought.

    Attributes:
        observations: [n, d] after the step, also where an episode ended.
        rewards: [n].
        terminated, truncated: [n]; truncated is a time limit, after which the state still has a value.
    """

    observations: Floats
    rewards: Floats
    terminated: Bools
    truncated: Bools


def make_env(options: Mapping[str, Any]) -> Any:
    """One environment by `gymnasium.make(**options)`; `id` may be "module:Name-v0".

    Raises:
        MissingDependency: gymnasium, or what this environment needs, is not installed.
        ConfigError: There is no such environment, it refuses an option, or its spaces are not boxes.
    """
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
            f"env.options: {options.get('id')!r} cannot be made: {str(error).splitlines()[0]}",
            "Correct env.options; `id` is a name that gymnasium knows.",
        ) from error
    for space, what in ((env.observation_space, "observations"), (env.action_space, "actions")):
        if not isinstance(space, gymnasium.spaces.Box):
            env.close()
            raise ConfigError(
                f"env.options.id {options.get('id')!r} has {what} of the kind {type(space).__name__}, and "
                "appo learns continuous control only.",
                "Choose an environment whose observations and actions are boxes.",
            )
    return env


def _missing(options: Mapping[str, Any], what: str) -> MissingDependency:
    return MissingDependency(
        f"The environment {options.get('id')!r} needs a package: {what.rstrip('.')}.",
        'Install the extra: pip install "distrl[gym]".',
    )


def control_space(options: Mapping[str, Any]) -> ControlSpace:
    """The spaces of an environment. Raises as `make_env`."""
    env = make_env(options)
    try:
        return _space(env)
    finally:
        env.close()


def _space(env: Any) -> ControlSpace:
    low, high = (np.asarray(b, np.float32).reshape(-1) for b in (env.action_space.low, env.action_space.high))
    return ControlSpace(int(np.prod(env.observation_space.shape)), len(low), low, high)


class GymGroup:
    """n environments of one kind, stepped one after another by one thread.

    Args:
        options: Keyword arguments of `gymnasium.make`.
        num: n.

    Raises:
        MissingDependency: As `make_env`.
        ConfigError: As `make_env`.
    """

    def __init__(self, options: Mapping[str, Any], num: int) -> None:
        self._envs = [make_env(options) for _ in range(num)]
        self.space = _space(self._envs[0])
        self._shape = self._envs[0].action_space.shape

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self, index: int, seed: int | None = None) -> Floats:
        """Starts an episode in environment `index`; its first observation, [d].

        Raises:
            EnvError: The environment failed.
        """
        try:
            observation, _ = self._envs[index].reset(seed=seed)
        except Exception as error:  # somebody else's code
            raise _failed(error) from error
        return np.asarray(observation, np.float64).reshape(-1)

    def step(self, actions: Floats, indices: Sequence[int] | None = None) -> Steps:
        """One step of each environment, or of those at `indices`, in that order.

        Args:
            actions: [n, a]; clipped to the box here, for the environment only.

        Raises:
            EnvError: An environment failed.
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
        except Exception as error:  # somebody else's code
            raise _failed(error) from error
        return Steps(observations, rewards, terminated, truncated)

    def close(self) -> None:
        """Closes all of them."""
        for env in self._envs:
            env.close()


def _failed(error: Exception) -> EnvError:
    return EnvError(f"The environment failed: {type(error).__name__}: {error}.")
