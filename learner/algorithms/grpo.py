"""GRPO (Shao et al. 2024, eq. 3) for episodes of many steps, as in slime: no critic; A within groups.

    A_τ = (R_τ − mean) / (std + ε)  over the episodes of one task that were leased together
    L = −E[ min(r A_τ, clip(r, 1 − ε_low, 1 + ε_high) A_τ) − β_KL D_t ] − β E[H_t] + λ_inv E[P_invalid]
    D_t = π_ref/π − log(π_ref/π) − 1  of each token, π_ref the base model without the adapter

`per: step` makes every step a sample of its own, `per: trajectory` every episode; a sample counts as the mean
over its tokens (at ratio levels "action" and "sequence": over its actions). With `per: token` all tokens of a
batch count alike (DAPO, Yu et al. 2025, eq. 8). At ratio level "sequence" r is the geometric mean over the
tokens of a step, with `per: trajectory` of an episode (GSPO, Zheng et al. 2025, eq. 7).

A trajectory carries its group's statistics, so that it can be drawn alone. Groups of one member and groups
without spread give no gradient and are counted.
Interpretation: docs/algorithms.md.
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
    if per == "token":
        size = (mask if level == "token" else mask.sum(dim=1)).to(dtype)
        return size * batch.num_steps / batch.num_tokens
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
    def is_separable(self) -> bool:
        """Whether no ratio is that of a whole episode."""
        return not (self.config.ratio_level == "sequence" and self.config.per == "trajectory")

    @property
    def has_reference(self) -> bool:
        return self.config.kl > 0.0

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
        mask, sequence = steps.token_mask, batch.row if c.per == "trajectory" else None
        objective, weighed = losses.surrogate(c, scored.logprobs, steps, advantages[batch.row], sequence)
        terms = -losses.per_step(objective * sample_weights(batch, c.ratio_level, c.per), mask)
        useless = ~has_spread(batch.group_std, batch.group_count, STD_EPSILON)
        metrics = {"batch/without_spread": float(useless.float().mean())}
        if self.has_reference:
            assert steps.reference_logprobs is not None, "`TrainStep.before_update` scores them"
            kl = losses.kl_to_reference(scored.logprobs, steps.reference_logprobs)
            terms = terms + c.kl * losses.per_step(kl * sample_weights(batch, "token", c.per), mask)
            metrics["policy/kl_to_base"] = float(losses.action_mean(kl.detach(), mask).mean())
        return PolicyTerm(terms, c.ratio_level, weighed, metrics)
