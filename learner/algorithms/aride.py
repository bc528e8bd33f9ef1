"""A-RIDE, DistRL's objective (Wang et al. 2024, §5): Retrace(λ), BCE critics, entropy, validity.

    L = −E_μ[ sg(min(ρ_t, ρ_max)) A_t log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid(a_t)]        (eq. 2)

Readings taken. Eq. 2 leaves ρ_t unclipped and A_t as it is: clipped and normalised here. Eq. 1 has
Q(s_{k+1}, a_{k+1}), which is biased towards μ; `critic: v` takes Retrace of state values, `critic: q` the
expectation under π of Munos et al. (`retrace_q`), and `q_next: sampled` the letter. H_t is the exact entropy,
not −log π(a_t|s_t), which the paper calls by that name and whose gradient is 0 in expectation. P_invalid is
not differentiable: it enters by its score function (`losses.validity`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from distrl.configs.algorithms import ArideConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.core.policies.base import Critic, Policy, States
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import TRACES, ActorCritic, Estimates, Estimator, named_returns
from distrl.learner.algorithms.outputs import Finals, Outputs, Rows
from distrl.learner.algorithms.shared import Pass, Term
from distrl.learner.algorithms.values import Values, action_values, expected_value
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.bounds import NO_BOUND
from distrl.learner.returns import retrace_q


class Aride(ActorCritic[ArideConfig]):
    """The policy gradient, weighed by ratios and Retrace's advantages.

    Args:
        max_tokens: The longest action that a Q critic draws from the policy.
    """

    def __init__(
        self,
        config: ArideConfig,
        recompute: bool = True,
        max_tokens: int = 32,
        bound: MismatchConfig = NO_BOUND,
    ) -> None:
        super().__init__(config, _estimator(config), recompute, bound)
        self.has_traces = config.returns in TRACES
        self.draws = config.critic == "q"
        self._max_tokens = max_tokens

    def read_values(self, critic: Critic, states: States, rows: Rows) -> Tensor:
        """Of states, or of actions with `critic: q`."""
        if self.config.critic == "v":
            return super().read_values(critic, states, rows)
        return critic.action_values(states, rows.times, rows.steps.completions, rows.steps.token_mask)

    def read_expected(self, policy: Policy, critic: Critic, states: States, rows: Rows) -> Tensor | None:
        """E_{a~π} Q(s_t, a) with `critic: q`."""
        if self.config.critic == "v":
            return None
        c, steps = self.config, rows.steps
        return expected_value(
            policy,
            critic,
            steps.prompts,
            states,
            rows.times,
            steps.temperature,
            c.q_samples,
            self._max_tokens,
        )

    @torch.no_grad()
    def read_final(self, policy: Policy, critic: Critic, finals: Finals) -> Tensor:
        """V of the state, or E_{a~π} Q with `critic: q`."""
        if self.config.critic == "v":
            return super().read_final(policy, critic, finals)
        return expected_value(
            policy,
            critic,
            finals.steps.prompts,
            policy.states(finals.steps.prompts),
            finals.times,
            finals.steps.temperature,
            self.config.q_samples,
            self._max_tokens,
        )

    def values(self, batch: TrajectoryBatch, outputs: Outputs, recompute: bool) -> Values:
        """Of states, or of actions with `critic: q`."""
        if self.config.critic == "v":
            return super().values(batch, outputs, recompute)
        return action_values(batch, outputs)

    def policy_term(self, batch: TrajectoryBatch, run: Pass, estimates: Estimates) -> Term:
        """−E[ sg(min(ρ, ρ_max)) A log π ], with PPO's clip if asked for."""
        c = self.config
        advantages = self.normalised(batch, estimates.advantages)
        loss = losses.policy_gradient(
            run.logprobs,
            batch.steps.token_mask,
            advantages,
            run.ratios,
            run.weights,
            c.rho_max,
            c.ratio_level,
            c.policy_clip,
            c.policy_clip_high,
            batch.num_steps,
            run.kept,
        )
        rho = run.ratios.at(c.ratio_level)
        weighed = {"clipped_fraction": rho > c.rho_max}
        if c.policy_clip is not None:
            a = losses.per_action(advantages, rho)
            weighed["silenced_fraction"] = losses.is_beyond(rho, a, c.policy_clip, c.policy_clip_high)
        return Term(loss, c.ratio_level, weighed)


def _estimator(config: ArideConfig) -> Estimator:
    if config.critic == "v":
        return named_returns(config.returns, config.gamma, config.lam)
    is_sampled = config.q_next == "sampled"
    return lambda rollout, baseline, ratios: retrace_q(
        rollout, baseline, ratios, config.gamma, config.lam, is_sampled
    )
