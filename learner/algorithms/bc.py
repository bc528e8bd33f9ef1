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
from distrl.learner.algorithms.critic_free import CriticFree
from distrl.learner.algorithms.shared import Pass, Term
from distrl.learner.batching import StepBatch, TrajectoryBatch


def cloning_loss(policy: Policy, batch: StepBatch, count: int | None = None) -> Tensor:
    """−mean log π of the demonstrated actions, at temperature 1.

    Args:
        count: How many steps the whole batch has, if this is a part of it.
    """
    ones = batch.temperature.new_ones(len(batch))
    scores = policy.score(batch.prompts, batch.completions, batch.token_mask, ones)
    return losses.cloning(scores.logprobs, batch.token_mask, count)


class Cloning(CriticFree[BcConfig]):
    """Log-likelihood of all episodes, or of the successful ones.

    Args:
        is_filtered: Whether failures are left out.
    """

    def __init__(self, config: BcConfig, is_filtered: bool) -> None:
        super().__init__(config)
        self._is_filtered = is_filtered

    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] 1, or 0 for what is left out."""
        kept = batch.success > 0 if self._is_filtered else torch.ones_like(batch.terminated)
        return kept.to(batch.success.dtype)

    def policy_term(self, batch: TrajectoryBatch, run: Pass, advantages: Tensor) -> Term:
        """−E[ w log π ]."""
        weights = advantages[batch.row] * run.weights
        return Term(losses.weighted_cloning(run.logprobs, batch.steps.token_mask, weights, batch.num_steps))
