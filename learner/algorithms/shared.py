"""What objectives share on the policy's side: one pass, the entropy and validity terms, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.core.policies.base import Policy, TokenScores
from distrl.learner import losses, off_policy
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.off_policy import StepStats


@dataclass(frozen=True)
class Pass:
    """What the policy says of the N steps of a batch.

    Attributes:
        scores: Log-probabilities and entropies of tokens, with gradients; hidden states without.
        ratios: π / μ, without gradients.
        entropy: [N] H_t, with gradients.
        weights: [N] importance weights of the replay draw.
    """

    scores: TokenScores
    ratios: losses.Ratios
    entropy: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Term:
    """An objective's own term.

    Attributes:
        loss: A scalar to be minimised.
        level: What it weighs by a ratio each: actions, or tokens.
        weighed: What it made of each ratio, by metric name below `off_policy/`: numbers or truth values, [N]
            or [N, L] as `level` says. Empty if it takes no ratio.
        metrics: Further numbers by metric name.
    """

    loss: Tensor
    level: losses.RatioLevel = "action"
    weighed: Mapping[str, Tensor] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def run_policy(config: ObjectiveConfig, policy: Policy, batch: TrajectoryBatch) -> Pass:
    """One forward pass over all steps."""
    steps = batch.steps
    scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    return Pass(
        scores=scores,
        ratios=losses.importance_ratios(
            scores.logprobs, steps.behaviour_logprobs, steps.token_mask, config.log_ratio_clamp
        ),
        entropy=losses.action_entropy(scores.entropy, steps.token_mask),
        weights=batch.weights[batch.row],
    )


def policy_terms(
    config: ObjectiveConfig,
    batch: TrajectoryBatch,
    run: Pass,
    policy_term: Tensor,
    entropy_weights: Tensor | float = 1.0,
) -> dict[str, Tensor]:
    """The objective's own term, with the entropy and validity terms that every objective may add."""
    return {
        "policy": policy_term,
        "entropy": -(run.entropy * run.weights * entropy_weights).mean(),
        "validity": losses.validity(
            run.scores.logprobs,
            batch.steps.token_mask,
            batch.invalid,
            run.ratios,
            run.weights,
            config.rho_max,
        ),
    }


def policy_loss(config: ObjectiveConfig, terms: dict[str, Tensor]) -> Tensor:
    """L = policy term − β E[H] + λ_inv E[P_invalid]."""
    return terms["policy"] + config.entropy * terms["entropy"] + config.invalid * terms["validity"]


def priorities(batch: TrajectoryBatch, surprise: Tensor, run: Pass) -> Tensor:
    """[B, 3] DPER's raw components.

    Args:
        surprise: [B, T] what stands for |δ|.
    """
    with torch.no_grad():
        return torch.stack(
            [
                batch.row_mean(batch.flat(surprise)),
                batch.row_mean(run.ratios.action.clamp(max=1.0)),
                batch.row_mean(run.entropy),
            ],
            dim=1,
        )


def step_stats(batch: TrajectoryBatch, run: Pass, term: Term) -> StepStats:
    """How far off-policy each step is, and what `term` made of it."""
    return StepStats.of(batch.row, run.ratios, batch.steps.token_mask, term.level, term.weighed)


def policy_metrics(batch: TrajectoryBatch, run: Pass, stats: StepStats) -> dict[str, float]:
    """How far off-policy the batch is, how certain the policy, how successful the episodes."""
    return {
        **off_policy.metrics(stats),
        "policy/entropy": float((run.entropy.detach() * run.weights).mean()),
        "batch/success": float(batch.success.mean()),
        "batch/steps": float(len(stats)),
    }
