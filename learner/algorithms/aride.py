"""A-RIDE, DistRL's objective (Wang et al. 2024, §5): Retrace(λ), BCE critics, entropy, validity.

    L = −E_μ[ sg(min(ρ_t, ρ_max)) A_t log π(a_t|s_t) ] − β E[H_t] + λ_inv E[P_invalid(a_t)]        (eq. 2)

Interpretation: docs/algorithms.md. P_invalid is not differentiable: it enters by its score function
(`complete_loss`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from distrl.configs.algorithms import ArideConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Critic, Generated, Policy, States
from distrl.core.types import Sampling
from distrl.learner import losses
from distrl.learner.algorithms.actor_critic import ActorCritic, Estimates, Values, bootstrap
from distrl.learner.algorithms.base import Inputs, NetworkOutputs, PolicyTerm, Scored
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.returns import Returns, Rollout, retrace_q

Q_SAMPLES = 4  # actions per expectation under π


class Aride(ActorCritic[ArideConfig]):
    options = ArideConfig

    def __init__(self, config: ArideConfig, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self.draws = self._has_q = config.critic == "q"
        self._max_tokens = learner.max_new_tokens

    @property
    def is_separable(self) -> bool:
        return self.has_fixed_advantages

    def estimator(self, rollout: Rollout, baseline: Tensor, ratios: Tensor) -> Returns:
        c = self.config
        if c.correction == "none":
            ratios = torch.ones_like(ratios)
        if not self._has_q:
            return super().estimator(rollout, baseline, ratios)
        return retrace_q(rollout, baseline, ratios, c.gamma, c.lam)

    def step_values(self, critic: Critic, states: States, inputs: Inputs) -> Tensor:
        if not self._has_q:
            return super().step_values(critic, states, inputs)
        return critic.action_values(states, inputs.times, inputs.steps.completions, inputs.steps.token_mask)

    @torch.no_grad()
    def expected_values(
        self, policy: Policy, critic: Critic, states: States, inputs: Inputs
    ) -> Tensor | None:
        if not self._has_q:
            return None
        temperatures = inputs.steps.temperature.tolist()
        sampling = [Sampling(temperature=t or 1.0, max_new_tokens=self._max_tokens) for t in temperatures]
        draws = []
        for _ in range(Q_SAMPLES):
            generated = policy.generate(inputs.steps.prompts, sampling)
            completions, mask = _padded(generated, inputs.times.device)
            draws.append(critic.action_values(states, inputs.times, completions, mask).sigmoid())
        return torch.stack(draws).mean(dim=0)

    def values(self, batch: TrajectoryBatch, outputs: NetworkOutputs, recompute: bool) -> Values:
        if not self._has_q:
            return super().values(batch, outputs, recompute)
        assert outputs.values is not None
        assert outputs.expected is not None
        taken = outputs.values.detach().sigmoid()
        return Values(outputs.values, taken, outputs.expected, bootstrap(batch, outputs))

    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        c = self.config
        advantages = self.normalised(batch, estimates)
        rho, mask, clip = scored.ratios.at(c.ratio_level), batch.steps.token_mask, c.policy_clip
        if c.correction == "none":
            rho = torch.ones_like(rho)
        weighed = {"clipped_fraction": rho > c.rho_max}
        if clip is not None:
            a = losses.per_action(advantages, rho)
            weighed["silenced_fraction"] = losses.is_beyond(rho, a, clip, c.policy_clip_high)
        terms = losses.policy_gradient(
            scored.logprobs, mask, advantages, rho, c.rho_max, clip, c.policy_clip_high
        )
        return PolicyTerm(terms, c.ratio_level, weighed)


def _padded(generated: list[Generated], device: torch.device) -> tuple[Tensor, Tensor]:
    """[N, L] tokens and which of them are real."""
    length = max(len(one.token_ids) for one in generated)
    tokens = [[*one.token_ids, *[0] * (length - len(one.token_ids))] for one in generated]
    counts = torch.tensor([len(one.token_ids) for one in generated], device=device)
    return torch.tensor(tokens, device=device), torch.arange(length, device=device) < counts[:, None]
