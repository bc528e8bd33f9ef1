"""IMPALA's actor-critic (Espeholt et al. 2018, §4): V-trace targets and advantages.

    v_t = V(s_t) + Σ_{k≥t} γ^{k−t} (Π_{i=t..k−1} c_i) min(ρ̄, ρ_k) δ_k,  c_i = λ min(c̄, ρ_i)        (eq. 1)
    L = −E[ sg(min(ρ̄, ρ_t)) (r_t + γ v_{t+1} − V(s_t)) log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid]

Interpretation: docs/algorithms.md.
"""

from __future__ import annotations

from torch import Tensor

from distrl.configs.algorithms import VtraceConfig
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates
from distrl.learner.algorithms.base import PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.returns import Returns, Rollout, vtrace


class Vtrace(ActorCritic[VtraceConfig]):
    options = VtraceConfig
    returns = "vtrace"

    def estimator(self, rollout: Rollout, baseline: Tensor, ratios: Tensor) -> Returns:
        c = self.config
        return vtrace(rollout, ratios, c.gamma, c.lam, c.rho_bar, c.c_bar)

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        c = self.config
        advantages, rho = self.normalised(batch, estimates), scored.ratios.at(c.ratio_level)
        held = scored.ratios.action > c.c_bar
        return PolicyTerm(
            losses.policy_gradient(scored.logprobs, batch.steps.token_mask, advantages, rho, c.rho_bar),
            c.ratio_level,
            {"clipped_fraction": rho > c.rho_bar},
            {"off_policy/trace_clipped_fraction": float(held.float().mean())},
        )
