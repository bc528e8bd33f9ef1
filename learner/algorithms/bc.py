"""Behaviour cloning: the warm start from demonstrations; and, as objectives, of the agent's own episodes.

    L = −E[ w_τ log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid]
    w_τ = 1 (`bc`) or 1{outcome > 0} (`filtered-bc`)

`filtered-bc` is the baseline of Pan et al. 2024 and of DigiRL, online: episodes come from the policy that
learns. The mean is over all steps of the batch, so that fewer successes make smaller steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from distrl.configs.algorithms import BcConfig
from distrl.core.policies.base import Policy
from distrl.learner import losses
from distrl.learner.algorithms.base import CriticFree, PolicyTerm, Scored
from distrl.learner.batching import StepBatch, TrajectoryBatch


def cloning_loss(policy: Policy, batch: StepBatch, count: int) -> Tensor:
    """−Σ log π / count of the demonstrated actions, at temperature 1."""
    ones = batch.temperature.new_ones(len(batch))
    scores = policy.score(batch.prompts, batch.completions, batch.token_mask, ones)
    return -losses.per_step(scores.logprobs, batch.token_mask).sum() / count


class Cloning(CriticFree[BcConfig]):
    options = BcConfig
    is_separable = True

    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        return torch.ones_like(batch.success)

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, advantages: Tensor) -> PolicyTerm:
        return PolicyTerm(-advantages[batch.row] * scored.log_pi)


class FilteredCloning(Cloning):
    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        return (batch.success > 0).to(batch.success.dtype)
