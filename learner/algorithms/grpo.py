"""GRPO (Shao et al. 2024, eq. 3) for episodes of many steps, as in slime: no critic; A within groups.

    A_τ = (R_τ − mean) / (std + ε)  over the episodes of one task that were leased together
    L = −E[ min(r A_τ, clip(r, 1 − ε_low, 1 + ε_high) A_τ) ] − β E[H_t] + λ_inv E[P_invalid]

`per: step` makes every step a sample of its own, `per: trajectory` every episode; a sample counts as the mean
over its tokens (at ratio level "action": over its actions). A trajectory carries its group's statistics, so
that it can be drawn alone. Groups of one member and groups without spread give no gradient and are counted.
Readings taken: docs/algorithms.md.
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

STD_EPSILON = 1e-6


def sample_weights(batch: TrajectoryBatch, level: losses.RatioLevel, per: str) -> Tensor:
    """How much each action, [N], or token, [N, L], weighs: in the mean over steps all samples count alike."""
    mask, dtype = batch.steps.token_mask, batch.outcome.dtype
    size = mask.to(dtype) if level == "token" else torch.ones_like(batch.row, dtype=dtype)
    counts = losses.per_step(size, mask)
    if per == "trajectory":
        counts = batch.grid(counts).sum(dim=1)[batch.row] * batch.num_trajectories / batch.num_steps
    return size / losses.per_action(counts, size)


class Grpo(CriticFree[GrpoConfig]):
    options = GrpoConfig

    def __init__(self, config: GrpoConfig, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self.epochs, self.minibatches = config.epochs, config.minibatches

    @property
    def has_snapshot(self) -> bool:
        return self.config.decoupled and self.epochs * self.minibatches > 1

    def before_update(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> None:
        batch.steps.proximal_logprobs = outputs.logprobs

    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] A_τ; R counts outcome and penalties."""
        total = torch.where(batch.mask, batch.outcome + batch.penalty, 0.0).sum(dim=1)
        return group_relative(total, batch.group_mean, batch.group_std, batch.group_count, STD_EPSILON)

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, advantages: Tensor) -> PolicyTerm:
        c, steps = self.config, batch.steps
        objective, weighed = losses.surrogate(c, scored.logprobs, steps, advantages[batch.row])
        weights = sample_weights(batch, c.ratio_level, c.per)
        useless = ~has_spread(batch.group_std, batch.group_count, STD_EPSILON)
        return PolicyTerm(
            -losses.per_step(objective * weights, steps.token_mask),
            c.ratio_level,
            weighed,
            {"batch/without_spread": float(useless.float().mean())},
        )
