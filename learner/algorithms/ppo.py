"""PPO (Schulman et al. 2017) with recomputed values, plain or decoupled (AReaL, Fu et al. 2025).

    L = −E[ min(r_t A_t, clip(r_t, 1 − ε, 1 + ε_high) A_t) ] − β E[H_t] + λ_inv E[P_invalid]

A_t is GAE's, normalised over the whole batch; no ratio enters it. In the replay setting μ may be many
versions old, and plain PPO then clips what is merely stale: `decoupled` clips around the weights at the start
of the batch instead, and weighs by the behaviour (see `clipping.surrogate`). With several epochs, values and
advantages are taken anew in each, since the critic learns on the way; what they are centred and divided by
stays as it was before the first step. Values lie in [0, 1] and are fitted by cross-entropy, where the paper
has a squared error.
"""

from __future__ import annotations

from distrl.configs.algorithms import PpoConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import TRACES, ActorCritic, Estimates, named_returns
from distrl.learner.algorithms.clipping import surrogate
from distrl.learner.algorithms.outputs import Outputs
from distrl.learner.algorithms.shared import Pass, Term, pass_of
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.bounds import NO_BOUND


class Ppo(ActorCritic[PpoConfig]):
    """The clipped surrogate of whole actions or of tokens."""

    def __init__(self, config: PpoConfig, recompute: bool = True, bound: MismatchConfig = NO_BOUND) -> None:
        super().__init__(config, named_returns(config.returns, config.gamma, config.lam), recompute, bound)
        self.has_traces = config.returns in TRACES
        self.epochs, self.minibatches = config.epochs, config.minibatches

    @property
    def takes_notes(self) -> bool:
        """Before several steps."""
        return self.epochs * self.minibatches > 1

    def note(self, batch: TrajectoryBatch, outputs: Outputs) -> None:
        """Notes the advantages' moments over all ranks, and the proximal policy's log-probabilities."""
        run = pass_of(self.config, batch, outputs, self.bound)
        estimates = self.estimate(batch, outputs, run.ratios.action)
        batch.advantage_moments = losses.moments(estimates.advantages, batch.counted)
        if self.config.decoupled or self.bound.bound != "none":
            batch.steps.proximal_logprobs = run.logprobs

    def policy_term(self, batch: TrajectoryBatch, run: Pass, estimates: Estimates) -> Term:
        """−E[ min(r A, clip(r) A) ]."""
        c = self.config
        advantages = self.normalised(batch, estimates.advantages)
        result = surrogate(
            c, run.logprobs, batch.steps, advantages, c.log_ratio_clamp, c.ratio_level, c.rho_max, self.bound
        )
        objective = run.only_kept(result.objective)
        loss = -losses.mean_over_steps(objective, batch.steps.token_mask, run.weights, batch.num_steps)
        return Term(loss, c.ratio_level, result.weighed)
