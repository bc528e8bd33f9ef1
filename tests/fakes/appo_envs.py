"""Small gymnasium environments: one that is learnt in seconds (`appo_envs:Aim-v0`), and broken ones."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np

LENGTH = 8
OFFSET, SCALE = 50.0, 20.0


class Aim(gymnasium.Env[Any, Any]):
    """Each step shows a point; the nearer the action is to it the better. Observations are far from 0 ± 1.

    The return of a perfect policy is 0; that of one that does nothing about -LENGTH / 3 a dimension. Episodes
    are cut off after LENGTH steps, or end by themselves with probability `end`.
    """

    def __init__(self, end: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._end = end
        self._point = np.zeros(2)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, np.float32))
        reward = -float(((action - self._point) ** 2).sum())
        self._steps += 1
        terminated = bool(self.np_random.random() < self._end)
        return self._show(), reward, terminated, self._steps >= LENGTH, {}

    def _show(self) -> Any:
        self._point = self.np_random.uniform(-1.0, 1.0, 2)
        return OFFSET + SCALE * self._point


class Flaky(Aim):
    """Breaks in its step number `breaks_at`, counted over all of this process's environments.

    If it `diverges`, that step has a reward that is no number, as of a physics engine.
    """

    num_steps = 0

    def __init__(self, breaks_at: int = 100, diverges: bool = False) -> None:
        super().__init__()
        self._breaks_at, self._diverges = breaks_at, diverges

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Flaky.num_steps += 1
        observation, reward, *ends = super().step(action)
        if Flaky.num_steps == self._breaks_at:
            if not self._diverges:
                raise RuntimeError(f"the simulator of process {os.getpid()} broke")
            reward = float("nan")
        return observation, reward, *ends


class Still(Aim):
    """Has actions that are no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(2)


for name in ("Aim", "Flaky", "Still"):
    gymnasium.register(id=f"{name}-v0", entry_point=f"appo_envs:{name}")
