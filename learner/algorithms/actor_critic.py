"""What the objectives with a critic share: values, returns, the critic's losses; each adds its policy term.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from distrl.configs.algorithms import ActorCriticConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.core.policies.base import Critic, Policy, States
from distrl.learner import losses
from distrl.learner.algorithms import shared
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.outputs import Finals, Outputs, Rows
from distrl.learner.algorithms.shared import Pass, Term
from distrl.learner.algorithms.values import Values, state_values
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.bounds import NO_BOUND
from distrl.learner.returns import RETURNS, Returns, Rollout

C = TypeVar("C", bound=ActorCriticConfig)
Estimator = Callable[[Rollout, Tensor, Tensor], Returns]
"""From a rollout, [B, T] baselines and [B, T] ratios of whole actions to returns."""


TRACES = ("retrace", "vtrace")
"""The returns of `RETURNS` whose traces ratios cut."""


def named_returns(name: str, gamma: float, lam: float) -> Estimator:
    """The estimator of `RETURNS` that `name` names, which reads state values from the rollout."""
    compute = RETURNS[name]
    return lambda rollout, baseline, ratios: compute(rollout, ratios, gamma, lam)


@dataclass(frozen=True)
class Estimates:
    """What the critic and the returns say of a batch.

    Attributes:
        values: Of the N steps.
        trajectory: [B] logits of V_traj, with gradients.
        returns: The outcome's.
        advantages: [B, T] A_t of outcome and penalties together, not normalised.
    """

    values: Values
    trajectory: Tensor
    returns: Returns
    advantages: Tensor


class ActorCritic(Algorithm, Generic[C]):
    """L_π = policy term − β·entropy + λ_inv·validity; L_V = BCE(V) + c·BCE(V_traj).

    Args:
        config: The objective's section.
        estimator: Its returns.
        recompute: Whether advantages are taken from values by the newest critic, or from those that were
            kept when each episode came in.
        bound: What bounds single ratios.
    """

    has_critic = True
    has_traces = False
    """Whether ratios cut the traces of its returns."""

    def __init__(
        self, config: C, estimator: Estimator, recompute: bool = True, bound: MismatchConfig = NO_BOUND
    ) -> None:
        self.config, self._estimator, self._recompute = config, estimator, recompute
        self.bound = bound

    def read(
        self, policy: Policy, critic: Critic, rows: Rows, is_scored: bool = True, is_drawn: bool = True
    ) -> Outputs:
        """See `Algorithm.read`: log-probabilities, entropies and values."""
        scores = shared.score(policy, rows.steps) if is_scored else None
        states = policy.states(rows.steps.prompts) if scores is None else scores.states
        values = self.read_values(critic, states, rows)
        at = rows.asked.nonzero().squeeze(1)
        trajectory = values.new_zeros(len(values))
        if len(at):
            trajectory = trajectory.index_put((at,), self.read_trajectory(critic, states, rows, at))
        return Outputs(
            logprobs=None if scores is None else scores.logprobs,
            entropy=None if scores is None else scores.entropy,
            values=values,
            trajectory=trajectory,
            expected=self.read_expected(policy, critic, states, rows) if is_drawn else None,
        )

    def read_values(self, critic: Critic, states: States, rows: Rows) -> Tensor:
        """[N] logits of what is fitted to the returns: V(s_t), unless an objective has others."""
        return critic.values(states, rows.times)

    def read_expected(self, policy: Policy, critic: Critic, states: States, rows: Rows) -> Tensor | None:
        """[N] expectations over the policy's actions, where an objective has values of actions."""
        return None

    def read_trajectory(self, critic: Critic, states: States, rows: Rows, at: Tensor) -> Tensor:
        """[n] logits of V_traj(s_{H−1}, a_{H−1}) (DistRL eq. 3) at the steps `at`, [n] int64."""
        steps = rows.steps
        return critic.trajectory_values(
            states[at], rows.times[at], steps.completions[at], steps.token_mask[at]
        )

    @torch.no_grad()
    def read_final(self, policy: Policy, critic: Critic, finals: Finals) -> Tensor:
        """See `Algorithm.read_final`: by the newest critic."""
        return critic.values(policy.states(finals.steps.prompts), finals.times).sigmoid()

    def reads_final(self, batch: TrajectoryBatch, is_fitting: bool = False) -> bool:
        """See `Algorithm.reads_final`: unless values are those of old."""
        return self._recompute or is_fitting or batch.old_bootstrap is None

    @abstractmethod
    def policy_term(self, batch: TrajectoryBatch, run: Pass, estimates: Estimates) -> Term:
        """The objective's own term."""

    def judge(self, batch: TrajectoryBatch, outputs: Outputs) -> Evaluation:
        """See `Algorithm.judge`."""
        c = self.config
        run = shared.pass_of(c, batch, outputs, self.bound)
        estimates = self.estimate(batch, outputs, run.ratios.action)
        term = self.policy_term(batch, run, estimates)
        failure = 1.0 - estimates.values.baseline if c.entropy_by_failure else 1.0
        terms = shared.policy_terms(c, batch, run, term.loss, failure)
        critic_terms = _critic_terms(batch, estimates)
        steps = shared.step_stats(batch, run, term)
        return Evaluation(
            policy_loss=shared.policy_loss(c, terms),
            critic_loss=critic_terms["value"] + c.trajectory_loss * critic_terms["trajectory"],
            priorities=shared.priorities(batch, estimates.returns.td_errors.abs(), run),
            metrics={
                **{f"loss/{name}": float(loss.detach()) for name, loss in (terms | critic_terms).items()},
                **shared.policy_metrics(batch, run, steps),
                **(_trace_metrics(run.ratios.action) if self.has_traces else {}),
                **_value_metrics(batch, estimates),
                **term.metrics,
            },
            steps=steps,
        )

    def judge_critic(self, batch: TrajectoryBatch, outputs: Outputs) -> Tensor:
        """See `Algorithm.judge_critic`. Values are those of the critic that is fitted."""
        ones = torch.ones(len(batch.steps), device=batch.mask.device)
        terms = _critic_terms(batch, self.estimate(batch, outputs, ones, recompute=True))
        return terms["value"] + self.config.trajectory_loss * terms["trajectory"]

    def values(self, batch: TrajectoryBatch, outputs: Outputs, recompute: bool) -> Values:
        """The values that advantages are taken from; of states, unless an objective has others."""
        return state_values(batch, outputs, recompute)

    def estimate(
        self, batch: TrajectoryBatch, outputs: Outputs, rho: Tensor, recompute: bool | None = None
    ) -> Estimates:
        """Values, returns and advantages.

        Args:
            rho: [N] ρ_t of whole actions.
            recompute: Instead of the objective's own setting.
        """
        values = self.values(batch, outputs, self._recompute if recompute is None else recompute)
        assert outputs.trajectory is not None
        ratios = batch.grid(rho)
        taken, baseline = batch.grid(values.taken), batch.grid(values.baseline)
        zero = torch.zeros_like(taken)
        outcome = Rollout(batch.outcome, taken, values.bootstrap, batch.terminated, batch.mask)
        penalty = Rollout(batch.penalty, zero, zero[:, 0], batch.terminated, batch.mask)
        returns = self._estimator(outcome, baseline, ratios)
        return Estimates(
            values=values,
            trajectory=outputs.trajectory[self.asked(batch)],
            returns=returns,
            advantages=returns.advantages + self._estimator(penalty, zero, ratios).advantages,
        )

    def normalised(self, batch: TrajectoryBatch, advantages: Tensor) -> Tensor:
        """[B, T] → [N]: over the batches of all ranks; those below 0 weigh `negative_weight`."""
        c = self.config
        moments = batch.advantage_moments or losses.moments(advantages, batch.counted)
        normal = losses.normalise(advantages, batch.mask, c.advantage_std_floor, c.advantage_centre, moments)
        return batch.flat(losses.weigh_negative(normal, c.negative_weight))


def _critic_terms(batch: TrajectoryBatch, estimates: Estimates) -> dict[str, Tensor]:
    weights, targets = batch.weights, batch.flat(estimates.returns.targets)
    return {
        "value": losses.critic_bce(estimates.values.logits, targets, weights[batch.row], batch.num_steps),
        "trajectory": losses.critic_bce(estimates.trajectory, batch.success, weights, batch.num_trajectories),
    }


def _trace_metrics(rho: Tensor) -> dict[str, float]:
    return {"off_policy/trace_cut_fraction": float((rho < 1.0).float().mean())}


def _value_metrics(batch: TrajectoryBatch, estimates: Estimates) -> dict[str, float]:
    a = batch.flat(estimates.advantages)
    right = (estimates.trajectory.detach() > 0) == (batch.success > 0.5)
    return {
        "value/mean": float(estimates.values.baseline.mean()),
        "value/trajectory_accuracy": float(right.float().mean()),
        "advantage/mean": float(a.mean()),
        "advantage/std": float(a.std(unbiased=False)),
    }
