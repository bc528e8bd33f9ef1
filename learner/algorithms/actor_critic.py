"""Shared by all objectives with a critic: values, returns, the critic's losses. Each adds its policy term.

The reward has two parts. The *outcome* (1 or 0, once, at the end) is what the critic predicts: V(s_t) in
[0, 1] is the expected discounted outcome, so cross-entropy fits it. The *penalties* (repetition, invalid,
shaping) enter the advantage only. Returns are linear in rewards and values, therefore

    A_t = Δ_t(r^outcome, V) + Δ_t(r^penalty, 0)

is exactly the advantage of the total reward with a critic whose penalty part is constantly 0: future
penalties are counted, discounted and cut off-policy like everything else, but without a baseline of their
own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from distrl.configs.algorithms import ActorCriticConfig, CriticConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Critic, Policy, States
from distrl.learner import losses
from distrl.learner.algorithms.base import (
    Algorithm,
    Inputs,
    Loss,
    NetworkOutputs,
    PolicyTerm,
    Scored,
    complete_loss,
    score,
)
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.returns import RETURNS, Returns, Rollout

C = TypeVar("C", bound=CriticConfig)
TRACES = ("retrace", "vtrace")
"""The returns of `RETURNS` whose traces ratios cut."""

TRAJECTORY_LOSS = 0.5  # the weight of V_traj's loss


@dataclass(frozen=True)
class Values:
    """Of N steps in B trajectories; all but `logits` without gradients, and as probabilities."""

    logits: Tensor  # [N] what is fitted to the returns' targets, V(s_t) or Q(s_t, a_t), with gradients
    taken: Tensor  # [N] what TD errors subtract: V(s_t) or Q(s_t, a_t)
    baseline: Tensor  # [N] V(s_t) or E_{a~π} Q(s_t, a)
    bootstrap: Tensor  # [B] the baseline of the state after a cut, 0 where the episode ended by itself


@dataclass(frozen=True)
class Estimates:
    """What the critic and the returns say of a batch."""

    values: Values
    trajectory: Tensor  # [B] logits of V_traj, with gradients
    returns: Returns  # the outcome's
    advantages: Tensor  # [B, T] A_t of outcome and penalties together, not normalised
    success: Tensor  # [B] outcomes; of a branch that its horizon ended the value of its last state


class ActorCritic(Algorithm[C]):
    """L_π = policy term − β·entropy + λ_inv·validity; L_V = BCE(V) + ½ BCE(V_traj).

    A subclass has `policy_term`, and `estimator` if its options have no `returns`.
    """

    has_critic = True

    def __init__(self, config: C, learner: LearnerConfig) -> None:
        super().__init__(config, learner)
        self._recompute, self._peaks = learner.value_recompute, learner.replay.td_error == "max"

    @property
    def returns(self) -> str:
        return str(getattr(self.config, "returns", "retrace"))

    @property
    def has_fixed_advantages(self) -> bool:
        """Whether they come from stored values, by returns that take no account of ratios."""
        return not self._recompute and self.returns not in TRACES

    def estimator(self, rollout: Rollout, baseline: Tensor, ratios: Tensor) -> Returns:
        """The returns of a rollout.

        Args:
            baseline: [B, T] V(s_t), or E_{a~π} Q(s_t, a).
            ratios: [B, T] ρ_t of whole actions.
        """
        return RETURNS[self.returns](rollout, ratios, self.config.gamma, self.config.lam)

    def forward(self, policy: Policy, critic: Critic, inputs: Inputs) -> NetworkOutputs:
        scores = score(policy, inputs.steps) if inputs.with_logprobs else None
        states = policy.states(inputs.steps.prompts) if scores is None else scores.states
        values = self.step_values(critic, states, inputs)
        at = inputs.at_trajectory_value.nonzero().squeeze(1)
        trajectory = values.new_zeros(len(values))
        if len(at):
            read = self.trajectory_values(critic, states, inputs, at)
            trajectory = trajectory.index_put((at,), read)
        return NetworkOutputs(
            logprobs=None if scores is None else scores.logprobs,
            entropy=None if scores is None else scores.entropy,
            values=values,
            trajectory=trajectory,
            expected=self.expected_values(policy, critic, states, inputs) if inputs.with_expected else None,
        )

    def step_values(self, critic: Critic, states: States, inputs: Inputs) -> Tensor:
        """[N] logits of what is fitted to the returns: V(s_t), unless an objective has others."""
        return critic.values(states, inputs.times)

    def expected_values(
        self, policy: Policy, critic: Critic, states: States, inputs: Inputs
    ) -> Tensor | None:
        """[N] expectations over the policy's actions, where an objective has values of actions."""
        return None

    def trajectory_values(self, critic: Critic, states: States, inputs: Inputs, at: Tensor) -> Tensor:
        """[n] logits of V_traj(s_{H−1}, a_{H−1}) (DistRL eq. 3) at the steps `at`, [n] int64."""
        steps = inputs.steps
        return critic.trajectory_values(
            states[at], inputs.times[at], steps.completions[at], steps.token_mask[at]
        )

    @torch.no_grad()
    def final_values(self, policy: Policy, critic: Critic, inputs: Inputs) -> Tensor:
        # One pass, as many as ranks make that have no such states, where weights are sharded.
        states = policy.states(inputs.steps.prompts)
        expected = self.expected_values(policy, critic, states, inputs)
        return critic.values(states, inputs.times).sigmoid() if expected is None else expected

    def needs_final_values(self, batch: TrajectoryBatch, is_fitting: bool = False) -> bool:
        return self._recompute or is_fitting or batch.old_bootstrap is None

    @abstractmethod
    def policy_term(self, batch: TrajectoryBatch, scored: Scored, estimates: Estimates) -> PolicyTerm:
        """The objective's own term."""

    def loss(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> Loss:
        c = self.config
        scored = Scored.of(batch.steps, outputs)
        estimates = self.estimate(batch, outputs, scored.ratios.action)
        term = self.policy_term(batch, scored, estimates)
        failure = 1.0 - estimates.values.baseline if c.entropy_by_failure else 1.0
        errors, advantages = estimates.returns.td_errors.abs(), batch.flat(estimates.advantages)
        surprise = errors.amax(dim=1) if self._peaks else batch.row_mean(batch.flat(errors))
        baseline = estimates.values.baseline
        result = complete_loss(c, batch, scored, term, surprise, advantages, failure, baseline)
        value, trajectory = _critic_terms(batch, estimates)
        result.critic_loss = value + TRAJECTORY_LOSS * trajectory
        right = (estimates.trajectory.detach() > 0) == (estimates.success > 0.5)
        result.metrics |= {
            "loss/value": float(value.detach()),
            "loss/trajectory": float(trajectory.detach()),
            "value/mean": float(estimates.values.baseline.mean()),
            "value/trajectory_accuracy": float(right.float().mean()),
        }
        if self.returns in TRACES:
            cut = (scored.ratios.action < 1.0).float().mean()
            result.metrics["off_policy/trace_cut_fraction"] = float(cut)
        return result

    def critic_loss(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> Tensor:
        ones = torch.ones(len(batch.steps), device=batch.mask.device)
        value, trajectory = _critic_terms(batch, self.estimate(batch, outputs, ones, recompute=True))
        return value + TRAJECTORY_LOSS * trajectory

    def values(self, batch: TrajectoryBatch, outputs: NetworkOutputs, recompute: bool) -> Values:
        """The values that advantages are taken from: V(s_t) by the newest critic.

        Recomputation is AcceRL's (§3.3, eq. 3). Without `recompute` they are those of the critic when each
        episode was ingested.
        """
        assert outputs.values is not None
        if not recompute:
            assert batch.old_values is not None, "values were not kept"
            assert batch.old_bootstrap is not None
            return Values(outputs.values, batch.old_values, batch.old_values, batch.old_bootstrap)
        probability = outputs.values.detach().sigmoid()
        return Values(outputs.values, probability, probability, bootstrap(batch, outputs))

    def estimate(
        self, batch: TrajectoryBatch, outputs: NetworkOutputs, rho: Tensor, recompute: bool | None = None
    ) -> Estimates:
        """Values, returns and advantages.

        Args:
            rho: [N] ρ_t of whole actions.
            recompute: Overrides `learner.value_recompute`.
        """
        values = self.values(batch, outputs, self._recompute if recompute is None else recompute)
        assert outputs.trajectory is not None
        ratios = batch.grid(rho)
        taken, baseline = batch.grid(values.taken), batch.grid(values.baseline)
        zero = torch.zeros_like(taken)
        outcome = Rollout(batch.outcome, taken, values.bootstrap, batch.terminated, batch.mask)
        penalty = Rollout(batch.penalty, zero, zero[:, 0], batch.terminated, batch.mask)
        returns = self.estimator(outcome, baseline, ratios)
        return Estimates(
            values=values,
            trajectory=outputs.trajectory[self.value_index(batch)],
            returns=returns,
            advantages=returns.advantages + self.estimator(penalty, zero, ratios).advantages,
            success=torch.where(batch.is_open, values.bootstrap, batch.success),
        )

    def normalised(self, batch: TrajectoryBatch, estimates: Estimates) -> Tensor:
        """[B, T] → [N]: over the batches of all ranks; those of failed episodes weigh `failure_weight`.

        All of them, not only those below 0: the others are errors of the critic, and if what puts them right
        weighed less, the policy would learn to seek them out.
        """
        c, advantages = self.config, estimates.advantages
        normal = advantages
        assert isinstance(c, ActorCriticConfig)
        if c.advantage_std_floor is not None:
            moments = batch.advantage_moments or losses.moments(advantages, batch.counted)
            if self.has_fixed_advantages:  # ranks sum once, however many parts their batches have
                batch.advantage_moments = moments
            normal = losses.normalise(advantages, batch.mask, c.advantage_std_floor, moments)
        weights = torch.where(estimates.success > 0.5, 1.0, c.failure_weight)
        return batch.flat(weights[:, None] * normal)


def bootstrap(batch: TrajectoryBatch, outputs: NetworkOutputs) -> Tensor:
    """[B] the value of the state after a cut, 0 where the episode ended by itself."""
    found = torch.zeros_like(batch.success)
    if batch.final_prompts is not None:
        assert outputs.final is not None
        found[batch.final_row] = outputs.final.to(found.dtype)
    return found


def _critic_terms(batch: TrajectoryBatch, estimates: Estimates) -> tuple[Tensor, Tensor]:
    targets = batch.flat(estimates.returns.targets)
    return (
        losses.critic_bce(estimates.values.logits, targets, batch.num_steps),
        losses.critic_bce(estimates.trajectory, estimates.success, batch.num_trajectories),
    )
