"""A-RIDE, DistRL's objective (Wang et al. 2024, §5): Retrace(λ), BCE critics, entropy, validity.

The reward has two parts. The *outcome* (1 or 0, once, at the end) is what the critic predicts: V(s_t) in
[0, 1] is the expected discounted outcome, so cross-entropy fits it. The *penalties* (repetition, invalid,
shaping) enter the advantage only. Retrace is linear in rewards and values, therefore

    A_t = Δ_t(r^outcome, V) + Δ_t(r^penalty, 0)

is exactly Retrace(λ) of the total reward with a critic whose penalty part is constantly 0: future
penalties are counted, discounted and cut off-policy like everything else, but without a baseline of their
own. The same holds for the other returns that `aride.returns` names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.configs.schema import ArideConfig
from distrl.core.policies.base import Critic, Policy, States, TokenScores
from distrl.learner import losses
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.returns import RETURNS, Returns, Rollout


@dataclass(frozen=True)
class _Values:
    """Critic logits of the N steps and of the B last actions; V after the cut, [B]."""

    steps: Tensor
    trajectory: Tensor
    bootstrap: Tensor


class Aride:
    """L_π = policy gradient − β·entropy + λ_inv·validity; L_V = BCE(V) + c·BCE(V_traj)."""

    def __init__(self, config: ArideConfig) -> None:
        self.config = config

    def evaluate(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
        """See `Algorithm.evaluate`."""
        c, steps = self.config, batch.steps
        scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
        values = self._values(policy, critic, batch, scores.states)
        ratios = losses.importance_ratios(
            scores.logprobs, steps.behaviour_logprobs, steps.token_mask, c.log_ratio_clamp
        )
        returns, raw = self._advantages(batch, values, ratios.action)
        normal = losses.normalise(raw, batch.mask, c.advantage_std_floor, c.advantage_centre)
        advantages = batch.flat(losses.weigh_negative(normal, c.negative_weight))
        weights = batch.weights[batch.row]
        entropy = losses.action_entropy(scores.entropy, steps.token_mask)
        failure = 1.0 - values.steps.detach().sigmoid()
        terms = {
            "policy": losses.policy_gradient(
                scores.logprobs, steps.token_mask, advantages, ratios, weights, c.rho_max, c.ratio_level,
                c.policy_clip, c.policy_clip_high,
            ),
            "entropy": -(entropy * weights * (failure if c.entropy_by_failure else 1.0)).mean(),
            "validity": losses.validity(
                scores.logprobs, steps.token_mask, batch.invalid, ratios, weights, c.rho_max
            ),
        }  # fmt: skip
        critic_terms = self._critic_terms(batch, values, returns)
        return Evaluation(
            policy_loss=terms["policy"] + c.entropy * terms["entropy"] + c.invalid * terms["validity"],
            critic_loss=critic_terms["value"] + c.trajectory_loss * critic_terms["trajectory"],
            priorities=_priorities(batch, returns, ratios, scores),
            metrics={
                **{f"loss/{name}": float(term.detach()) for name, term in (terms | critic_terms).items()},
                **_ratio_metrics(ratios, steps.token_mask, c.rho_max),
                **_value_metrics(batch, values, raw),
                "policy/entropy": float((entropy.detach() * weights).mean()),
            },
        )

    def critic_loss(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
        """See `Algorithm.critic_loss`."""
        values = self._values(policy, critic, batch, policy.states(batch.steps.prompts))
        returns, _ = self._advantages(batch, values, torch.ones_like(values.steps))
        terms = self._critic_terms(batch, values, returns)
        return terms["value"] + self.config.trajectory_loss * terms["trajectory"]

    def _values(self, policy: Policy, critic: Critic, batch: TrajectoryBatch, states: States) -> _Values:
        steps = batch.steps
        bootstrap = torch.zeros_like(batch.success)
        if batch.final_prompts is not None:
            with torch.no_grad():
                logits = critic.values(policy.states(batch.final_prompts), batch.final_step)
            bootstrap[batch.final_row] = logits.sigmoid().to(bootstrap.dtype)
        return _Values(
            steps=critic.values(states, batch.col),
            trajectory=critic.trajectory_values(
                states[batch.last],
                batch.col[batch.last],
                steps.completions[batch.last],
                steps.token_mask[batch.last],
            ),
            bootstrap=bootstrap,
        )

    def _advantages(self, batch: TrajectoryBatch, values: _Values, rho: Tensor) -> tuple[Returns, Tensor]:
        """The outcome's returns, and [B, T] A_t of outcome and penalties together."""
        c = self.config
        compute = RETURNS[c.returns]
        v = batch.grid(values.steps.detach().sigmoid())
        ratios = batch.grid(rho)
        outcome = Rollout(batch.outcome, v, values.bootstrap, batch.terminated, batch.mask)
        zero = torch.zeros_like(v)
        penalty = Rollout(batch.penalty, zero, zero[:, 0], batch.terminated, batch.mask)
        returns = compute(outcome, ratios, c.gamma, c.lam)
        return returns, returns.advantages + compute(penalty, ratios, c.gamma, c.lam).advantages

    def _critic_terms(self, batch: TrajectoryBatch, values: _Values, returns: Returns) -> dict[str, Tensor]:
        weights = batch.weights
        return {
            "value": losses.critic_bce(values.steps, batch.flat(returns.targets), weights[batch.row]),
            "trajectory": losses.critic_bce(values.trajectory, batch.success, weights),
        }


def _priorities(
    batch: TrajectoryBatch, returns: Returns, ratios: losses.Ratios, scores: TokenScores
) -> Tensor:
    with torch.no_grad():
        entropy = losses.action_entropy(scores.entropy, batch.steps.token_mask)
        return torch.stack(
            [
                batch.row_mean(batch.flat(returns.td_errors.abs())),
                batch.row_mean(ratios.action.clamp(max=1.0)),
                batch.row_mean(entropy),
            ],
            dim=1,
        )


def _ratio_metrics(ratios: losses.Ratios, token_mask: Tensor, rho_max: float) -> dict[str, float]:
    rho = ratios.action
    return {
        "off_policy/ratio_mean": float(rho.mean()),
        "off_policy/ratio_max": float(rho.max()),
        "off_policy/clipped_fraction": float((rho > rho_max).float().mean()),
        "off_policy/trace_cut_fraction": float((rho < 1.0).float().mean()),
        "off_policy/log_ratio_clamped": float(ratios.clamped),
        "off_policy/ess": float(rho.sum().square() / (len(rho) * rho.square().sum()).clamp(min=1e-12)),
        "off_policy/token_log_ratio_abs": float(
            ratios.token.log().abs().sum() / token_mask.sum().clamp(min=1)
        ),
    }


def _value_metrics(batch: TrajectoryBatch, values: _Values, advantages: Tensor) -> dict[str, float]:
    a = batch.flat(advantages)
    return {
        "value/mean": float(values.steps.detach().sigmoid().mean()),
        "value/trajectory_accuracy": float(
            ((values.trajectory.detach() > 0) == (batch.success > 0.5)).float().mean()
        ),
        "advantage/mean": float(a.mean()),
        "advantage/std": float(a.std(unbiased=False)),
        "batch/success": float(batch.success.mean()),
        "batch/steps": float(len(a)),
    }
