"""GRPO (Shao et al. 2024, eq. 3) for episodes of many steps, as in slime: no critic; A within groups.

    A_τ = (R_τ − mean) / (std + ε)  over the episodes of one task that were leased together
    L = −E[ min(r A_τ, clip(r, 1 − ε_low, 1 + ε_high) A_τ) ] − β E[H_t] + λ_inv E[P_invalid]

`per: step` makes every step a sample of its own, `per: trajectory` every episode; a sample counts as the mean
over its tokens (at ratio level "action": over its actions). A trajectory carries its group's statistics, so
that it can be drawn alone, whatever became of the other members and however long they were. (slime reshapes
rewards by position in the batch, which mixes groups as soon as lengths differ.) Groups of one member and
groups without spread give no gradient and are counted. There is no KL term to a reference policy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from distrl.configs.algorithms import GrpoConfig
from distrl.configs.learner import LearnerConfig
from distrl.learner import losses
from distrl.learner.algorithms.base import CriticFree, NetworkOutputs, PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.returns import group_relative, has_spread


def sample_weights(batch: TrajectoryBatch, level: losses.RatioLevel, per: str, weights: Tensor) -> Tensor:
    """How much each action, [N], or token, [N, L], counts: Σ over a sample is its draw's weight / #samples.

    Args:
        level: "action" or "token".
        per: "step" or "trajectory", what a sample is.
        weights: [N] importance weights of the replay draw.
    """
    size = batch.steps.token_mask.to(weights.dtype) if level == "token" else torch.ones_like(weights)
    counts = size.sum(dim=1) if size.dim() == 2 else size
    if per == "trajectory":
        counts = batch.grid(counts).sum(dim=1)[batch.row]
    num_samples = batch.num_trajectories if per == "trajectory" else batch.num_steps
    return size * losses.per_action(weights / counts / num_samples, size)


EPSILON = 1e-6
"""Added to the standard deviation of a group; a group with no larger one gives no gradient."""


class Grpo(CriticFree[GrpoConfig]):
    """The clipped surrogate with group-relative advantages."""

    options = GrpoConfig

    def __init__(self, config: GrpoConfig, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self.epochs, self.minibatches = config.epochs, config.minibatches

    @property
    def has_snapshot(self) -> bool:
        """If there is a proximal policy other than the present one."""
        return self.config.decoupled and self.epochs * self.minibatches > 1

    def before_update(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> None:
        """Stores the proximal policy's log-probabilities."""
        batch.steps.proximal_logprobs = outputs.logprobs

    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] A_τ; R counts outcome and penalties."""
        total = torch.where(batch.mask, batch.outcome + batch.penalty, 0.0).sum(dim=1)
        return group_relative(total, batch.group_mean, batch.group_std, batch.group_count, EPSILON)

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, advantages: Tensor) -> PolicyTerm:
        """−E[ min(r A, clip(r) A) ]."""
        c = self.config
        result = losses.surrogate(c, scored.logprobs, batch.steps, advantages[batch.row])
        counts = sample_weights(batch, c.ratio_level, c.per, scored.weights)
        useless = ~has_spread(batch.group_std, batch.group_count, EPSILON)
        return PolicyTerm(
            -(result.objective * counts).sum(),
            c.ratio_level,
            result.weighed,
            {"batch/without_spread": float(useless.float().mean())},
        )
