"""What objectives share on the policy's side: one pass, the entropy and validity terms, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.core.policies.base import Policy, TokenScores
from distrl.learner import losses, off_policy
from distrl.learner.algorithms.outputs import Outputs
from distrl.learner.batching import StepBatch, TrajectoryBatch
from distrl.learner.bounds import kept
from distrl.learner.off_policy import StepStats


@dataclass(frozen=True)
class Pass:
    """What the policy says of the N steps of a batch.

    Attributes:
        logprobs: [N, L] of tokens, with gradients.
        ratios: π / μ, without gradients.
        entropy: [N] H_t, with gradients.
        weights: [N] importance weights of the replay draw.
        kept: Bool, which actions, [N], or tokens, [N, L], the policy learns from; None: all. See `bounds`.
    """

    logprobs: Tensor
    ratios: losses.Ratios
    entropy: Tensor
    weights: Tensor
    kept: Tensor | None = None

    def only_kept(self, objective: Tensor) -> Tensor:
        """The objective of each action or token, 0 for what the policy does not learn from."""
        return objective if self.kept is None else torch.where(self.kept, objective, 0.0)


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


def score(policy: Policy, steps: StepBatch) -> TokenScores:
    """One forward pass over `steps`."""
    return policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)


def pass_of(config: ObjectiveConfig, batch: TrajectoryBatch, outputs: Outputs, bound: MismatchConfig) -> Pass:
    """Ratios, entropies and weights of a batch, of what the policy says of its steps."""
    steps, logprobs, entropy = batch.steps, outputs.logprobs, outputs.entropy
    assert logprobs is not None
    assert entropy is not None
    return Pass(
        logprobs=logprobs,
        ratios=losses.importance_ratios(
            logprobs, steps.behaviour_logprobs, steps.token_mask, config.log_ratio_clamp
        ),
        entropy=losses.action_entropy(entropy, steps.token_mask),
        weights=batch.weights[batch.row],
        kept=kept(
            bound,
            batch,
            logprobs if steps.proximal_logprobs is None else steps.proximal_logprobs,
            config.ratio_level,
        ),
    )


def policy_terms(
    config: ObjectiveConfig,
    batch: TrajectoryBatch,
    run: Pass,
    policy_term: Tensor,
    entropy_weights: Tensor | float = 1.0,
) -> dict[str, Tensor]:
    """The objective's own term, with the entropy and validity terms that every objective may add."""
    tokens = batch.steps.token_mask
    if run.kept is not None:
        tokens = tokens & losses.per_action(run.kept, tokens) if run.kept.dim() == 1 else tokens & run.kept
    return {
        "policy": policy_term,
        "entropy": -losses.mean(run.entropy * run.weights * entropy_weights, batch.num_steps),
        "validity": losses.validity(
            run.logprobs,
            tokens,
            batch.invalid,
            run.ratios,
            run.weights,
            config.rho_max,
            batch.num_steps,
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
    masked = {} if run.kept is None else {"masked_fraction": ~run.kept}
    return StepStats.of(batch.row, run.ratios, batch.steps.token_mask, term.level, {**term.weighed, **masked})


def policy_metrics(batch: TrajectoryBatch, run: Pass, stats: StepStats) -> dict[str, float]:
    """How far off-policy the batch is, how certain the policy, how successful the episodes."""
    return {
        **off_policy.metrics(stats),
        "policy/entropy": float((run.entropy.detach() * run.weights).mean()),
        "batch/success": float(batch.success.mean()),
        "batch/steps": float(len(stats)),
    }
