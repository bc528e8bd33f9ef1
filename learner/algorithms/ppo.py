"""PPO (Schulman et al. 2017) with recomputed values, plain or decoupled (AReaL, Fu et al. 2025).

    L = −E[ min(r_t A_t, clip(r_t, 1 − ε, 1 + ε_high) A_t) ] − β E[H_t] + λ_inv E[P_invalid]

A_t is GAE's, normalised over the minibatch; no ratio enters it. In the replay setting μ may be many versions
old, and plain PPO then clips what is merely stale: `decoupled` clips around the weights at the start of the
batch instead, and weighs by the behaviour (see `clipping.surrogate`). With several epochs, values and
advantages are taken anew in each, since the critic learns on the way.
"""

from __future__ import annotations

from torch import Tensor

from distrl.configs.algorithms import PpoConfig
from distrl.core.policies.base import Policy
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates, named_returns
from distrl.learner.algorithms.clipping import note_proximal, surrogate
from distrl.learner.algorithms.shared import Pass
from distrl.learner.batching import TrajectoryBatch


class Ppo(ActorCritic[PpoConfig]):
    """The clipped surrogate of whole actions or of tokens."""

    def __init__(self, config: PpoConfig, recompute: bool = True) -> None:
        super().__init__(config, named_returns(config.returns, config.gamma, config.lam), recompute)
        self.epochs, self.minibatches = config.epochs, config.minibatches

    def prepare(self, policy: Policy, batch: TrajectoryBatch) -> None:
        """Notes the proximal policy's log-probabilities."""
        note_proximal(self.config, policy, batch.steps)

    def policy_term(
        self, batch: TrajectoryBatch, run: Pass, estimates: Estimates
    ) -> tuple[Tensor, dict[str, float]]:
        """−E[ min(r A, clip(r) A) ]."""
        c = self.config
        advantages = self.normalised(batch, estimates.advantages)
        result = surrogate(
            c, run.scores.logprobs, batch.steps, advantages, c.log_ratio_clamp, c.ratio_level, c.rho_max
        )
        loss = -losses.mean_over_steps(result.objective, batch.steps.token_mask, run.weights)
        return loss, result.metrics
