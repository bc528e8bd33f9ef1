"""DigiRL (Bai et al. 2024, §4): imitation of the better steps of the better trajectories.

    keep the trajectories with the largest R − V_traj, a share `top_fraction` of the buffer
    A_t = λ^{H−1−t} G_t + (1 − λ^{H−1−t}) (r_t + V(s_{t+1}) − V(s_t))
    L = −E[ 1{τ kept} 1{A_t > threshold} log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid]

V_traj is the instruction-level value: what is to be expected before anything is done. It reads the first
state and no action, and is fitted to the outcome by cross-entropy, as V is to the return G_t.

The scores of the buffer are those of its latest draws, as many as it holds trajectories; they begin again
after a restart. Further readings taken: docs/algorithms.md. There is no importance ratio: what is imitated
was done, by any policy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from distrl.configs.algorithms import DigirlConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Critic, States
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates
from distrl.learner.algorithms.base import Inputs, NetworkOutputs, PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.ranks import sum_over_ranks


def scores_of_all(scores: Tensor, batch: TrajectoryBatch) -> Tensor:
    """[all trajectories of the batch, over all ranks] from [B] those of a share."""
    if batch.whole is None:
        return scores
    everyones = scores.new_zeros(batch.whole.num_trajectories)
    if not batch.is_idle:
        everyones[batch.whole.places.to(scores.device)] = scores
    return sum_over_ranks(everyones)


def least_of_top(scores: Sequence[float], fraction: float) -> float:
    """The least of the ⌈fraction · n⌉ largest scores."""
    count = max(1, math.ceil(fraction * len(scores) - 1e-9))
    return sorted(scores, reverse=True)[count - 1]


def doubly_robust(
    mc_returns: Tensor, td_errors: Tensor, values: Tensor, mask: Tensor, lam: float, baseline: bool
) -> Tensor:
    """A_t = λ^{H−1−t} (G_t − b_t) + (1 − λ^{H−1−t}) δ_t, [B, T]; b_t = V(s_t) with `baseline`, else 0."""
    left = mask.sum(dim=1, keepdim=True) - 1 - torch.arange(mask.shape[1], device=mask.device)
    weight = torch.full_like(mc_returns, lam) ** left.clamp(min=0)
    mc = mc_returns - values if baseline else mc_returns
    return torch.where(mask, weight * mc + (1.0 - weight) * td_errors, 0.0)


class Digirl(ActorCritic[DigirlConfig]):
    options = DigirlConfig
    returns = "mc"

    def __init__(self, config: DigirlConfig, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self._scores: deque[float] = deque(maxlen=learner.replay.capacity)  # of the latest draws

    def value_index(self, batch: TrajectoryBatch) -> Tensor:
        return batch.first

    def trajectory_values(self, critic: Critic, states: States, inputs: Inputs, at: Tensor) -> Tensor:
        tokens, mask = inputs.steps.completions[at], inputs.steps.token_mask[at]
        return critic.trajectory_values(
            states[at], inputs.times[at], torch.zeros_like(tokens), torch.zeros_like(mask)
        )

    def estimate(
        self, batch: TrajectoryBatch, outputs: NetworkOutputs, rho: Tensor, recompute: bool | None = None
    ) -> Estimates:
        c, found = self.config, super().estimate(batch, outputs, rho, recompute)
        v = batch.grid(found.values.baseline)
        delta = found.returns.td_errors + batch.penalty
        advantages = doubly_robust(found.advantages + v, delta, v, batch.mask, c.lam, c.baseline)
        return replace(found, advantages=advantages)

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        c = self.config
        total = estimates.success + batch.penalty.sum(dim=1)
        scores = total - estimates.trajectory.detach().sigmoid()
        self._scores.extend(scores_of_all(scores, batch).tolist())
        kept = scores >= least_of_top(self._scores, c.top_fraction)
        chosen = batch.flat((estimates.advantages > c.step_threshold) & kept[:, None]).to(scored.log_pi.dtype)
        return PolicyTerm(-chosen * scored.log_pi, metrics={"batch/kept_fraction": float(chosen.mean())})
