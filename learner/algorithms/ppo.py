"""PPO (Schulman et al. 2017) with recomputed values, plain or decoupled (AReaL, Fu et al. 2025).

    L = −E[ min(r_t A_t, clip(r_t, 1 − ε, 1 + ε_high) A_t) ] − β E[H_t] + λ_inv E[P_invalid]

A_t is GAE's, normalised over the whole batch; no ratio enters it. With several epochs, values and advantages
are computed again in each, since the critic learns on the way; their mean and deviation stay as they were
before the first step. Interpretation: docs/algorithms.md.
"""

from __future__ import annotations

from distrl.configs.algorithms import PpoConfig
from distrl.configs.learner import LearnerConfig
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates
from distrl.learner.algorithms.base import NetworkOutputs, PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch


class Ppo(ActorCritic[PpoConfig]):
    options = PpoConfig

    def __init__(self, config: PpoConfig, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self.epochs, self.minibatches = config.epochs, config.minibatches

    @property
    def has_snapshot(self) -> bool:
        return self.epochs * self.minibatches > 1

    def before_update(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> None:
        """Stores the advantages' moments over all ranks, and the proximal policy's log-probabilities."""
        scored = Scored.of(batch.steps, outputs)
        estimates = self.estimate(batch, outputs, scored.ratios.action)
        batch.advantage_moments = losses.moments(estimates.advantages, batch.counted)
        if self.config.decoupled:
            batch.steps.proximal_logprobs = scored.logprobs

    @property
    def is_separable(self) -> bool:
        return self.has_fixed_advantages

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        c, steps = self.config, batch.steps
        advantages = self.normalised(batch, estimates)
        objective, weighed = losses.surrogate(c, scored.logprobs, steps, advantages)
        return PolicyTerm(-losses.per_step(objective, steps.token_mask), c.ratio_level, weighed)
