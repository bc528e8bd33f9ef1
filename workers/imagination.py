"""Rewards of imagined episodes: potential-based shaping by what the model promises of a screen.

    r̂_t = γ M(o_{t+1}) − M(o_t);  where the episode ends,  r̂_T = outcome − M(o_T)

Their discounted sum is γ^T outcome − M(o_0), whatever lies in between, so no way to an outcome pays more than
another (Ng et al. 1999). Without γ, as in AcceRL's eq. 13, each step pays (1 − γ) M(o_{t+1}) more, which
rewards lingering where M is high. An end takes back what its screen promised, so that COMPLETE on a wrong
screen is as bad as in reality.
"""

from __future__ import annotations

from typing import cast

from distrl.core.types import Branch
from distrl.core.user_errors import score_of
from distrl.workers.envs.base import Env, ExpertDistance


class Shaping:
    """M of the screen that `env` shows now, and the rewards r̂ of the steps of `branch` from there.

    The environment is the world model. An oracle is the real one, which takes no time.
    """

    def __init__(self, branch: Branch, env: Env) -> None:
        self.horizon, self._branch, self._env = branch.horizon, branch, env
        self._now = self._value()

    def reward(self, outcome: float | None) -> float:
        """r̂ of the step after which the environment is now; `outcome` if it ended the episode."""
        before, discount = self._now, self._branch.discount
        if self._branch.potential == "none":
            return 0.0
        if outcome is not None:
            return outcome - before
        self._now = self._value()
        return discount * self._now - before

    def _value(self) -> float:
        if self._branch.potential == "score":
            return float(score_of(self._env.evaluate))
        if self._branch.potential == "distance":
            distance = cast("ExpertDistance", self._env).distance()
            return 0.0 if distance is None else float(self._branch.discount**distance)
        return 0.0
