"""GIPO, AcceRL's objective (§3.3, eq. 8–9): a Gaussian trust weight over the log-ratio instead of a clip.

    w(ρ̄; σ) = exp(−½ (log ρ̄ / σ)²),  ρ̄ = sg(ρ)
    L = −E[ w(ρ̄_t; σ) · ρ_t · A_t ] − β E[H_t] + λ_inv E[P_invalid]

A_t is GAE's of recomputed values (eq. 3–4), normalised over all ranks (eq. 5–7). Ratios are per token by
default (§5.3); a token's loss is then summed over its action, not averaged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from distrl.configs.algorithms import GipoConfig
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates
from distrl.learner.algorithms.base import PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch


def trust(ratios: Tensor, sigma: float) -> Tensor:
    """w(ρ̄; σ), without gradients: 1 at ρ = 1, the same for ρ and 1/ρ."""
    return torch.exp(-0.5 * (ratios.detach().log() / sigma).square())


class Gipo(ActorCritic[GipoConfig]):
    options = GipoConfig

    @property
    def is_separable(self) -> bool:
        return self.has_fixed_advantages

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        c, steps = self.config, batch.steps
        ratios = losses.ratio(scored.logprobs, steps.behaviour_logprobs, steps.token_mask, c.ratio_level)
        advantages = losses.per_action(self.normalised(batch, estimates), ratios)
        weight = trust(ratios, c.sigma)
        return PolicyTerm(
            -losses.per_step(weight * ratios * advantages, steps.token_mask),
            c.ratio_level,
            {"trust": weight, "damped_fraction": weight < 0.5},
        )
