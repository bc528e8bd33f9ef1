"""IMPALA's actor-critic (Espeholt et al. 2018, §4): V-trace targets and advantages.

    v_t = V(s_t) + Σ_{k≥t} γ^{k−t} (Π_{i=t..k−1} c_i) min(ρ̄, ρ_k) δ_k,  c_i = λ min(c̄, ρ_i)        (eq. 1)
    L = −E[ sg(min(ρ̄, ρ_t)) (r_t + γ v_{t+1} − V(s_t)) log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid]

Readings taken: values lie in [0, 1] and are fitted to v_t by cross-entropy, where the paper has a squared
error; advantages are normalised as everywhere here, where the paper's are not.
"""

from __future__ import annotations

from distrl.configs.algorithms import VtraceConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates
from distrl.learner.algorithms.shared import Pass, Term
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.bounds import NO_BOUND
from distrl.learner.returns import vtrace


class Vtrace(ActorCritic[VtraceConfig]):
    """The policy gradient with V-trace's advantage and truncated ratio."""

    has_traces = True

    def __init__(
        self, config: VtraceConfig, recompute: bool = True, bound: MismatchConfig = NO_BOUND
    ) -> None:
        c = config
        super().__init__(
            config,
            lambda rollout, baseline, ratios: vtrace(rollout, ratios, c.gamma, c.lam, c.rho_bar, c.c_bar),
            recompute,
            bound,
        )

    def policy_term(self, batch: TrajectoryBatch, run: Pass, estimates: Estimates) -> Term:
        """−E[ sg(min(ρ̄, ρ)) A log π ]."""
        c = self.config
        advantages = self.normalised(batch, estimates.advantages)
        loss = losses.policy_gradient(
            run.logprobs,
            batch.steps.token_mask,
            advantages,
            run.ratios,
            run.weights,
            c.rho_bar,
            c.ratio_level,
            count=batch.num_steps,
            kept=run.kept,
        )
        held = run.ratios.action > c.c_bar
        return Term(
            loss,
            c.ratio_level,
            {"clipped_fraction": run.ratios.at(c.ratio_level) > c.rho_bar},
            {"off_policy/trace_clipped_fraction": float(held.float().mean())},
        )
