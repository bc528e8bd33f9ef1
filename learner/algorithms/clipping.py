"""PPO's clipped surrogate, dual clip and decoupling, as PPO and GRPO use them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.configs.algorithms import ClipConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.learner import losses
from distrl.learner.batching import StepBatch
from distrl.learner.bounds import NO_BOUND


def clipped_surrogate(
    ratios: Tensor, advantages: Tensor, clip: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """min(r A, clip(r, 1 − ε, 1 + ε_high) A), to be maximised (Schulman et al. 2017, eq. 7).

    With `dual_clip` c, at A < 0 no less than c A (Ye et al. 2020, eq. 5): a bad action that has become much
    more probable pushes with bounded force, that is, no longer.

    Args:
        ratios: r with gradients, of any shape.
        advantages: Broadcastable to `ratios`.
    """
    objective = torch.minimum(ratios * advantages, ratios.clamp(1.0 - clip, 1.0 + clip_high) * advantages)
    if dual_clip is None:
        return objective
    return torch.where(advantages < 0, torch.maximum(objective, dual_clip * advantages), objective)


@dataclass(frozen=True)
class Surrogate:
    """The surrogate of N steps.

    Attributes:
        objective: [N], or [N, L] at ratio level "token"; to be maximised.
        weighed: Whether each ratio was clipped, and with it the gradient gone; if decoupled, also whether the
            behaviour's weight was capped. See `shared.Term`.
    """

    objective: Tensor
    weighed: dict[str, Tensor]


def surrogate(
    config: ClipConfig,
    logprobs: Tensor,
    steps: StepBatch,
    advantages: Tensor,
    clamp: float,
    level: losses.RatioLevel,
    rho_max: float,
    bound: MismatchConfig = NO_BOUND,
) -> Surrogate:
    """Plain: r = π / μ. Decoupled (Hilton et al. 2022; AReaL, Fu et al. 2025):

        E[ sg(min(π_prox / μ, ρ_max)) · min(r A, clip(r) A) ],   r = π / π_prox

    The proximal policy is that of the weights before the first step on this batch, as in AReaL, where the
    paper leaves it open: its log-probabilities cost one pass more, and no second copy of the weights is kept.
    The behaviour's weight is capped, which AReaL's is not. With a bound that truncates it is the same, with
    the bound's own cap; and with a single step per batch the proximal policy is then the policy itself.

    Args:
        logprobs: [N, L] log π with gradients.
        advantages: [N].
        clamp: Of log-ratios.
    """
    mask, behaviour = steps.token_mask, steps.behaviour_logprobs
    is_truncating = bound.bound == "truncate"
    proximal = steps.proximal_logprobs if config.decoupled or is_truncating else None
    if is_truncating:
        rho_max = bound.max_ratio
        proximal = logprobs.detach() if proximal is None else proximal
    reference = behaviour if proximal is None else proximal
    r = losses.surrogate_ratios(logprobs, reference, mask, clamp, level)
    a = losses.per_action(advantages, r)
    high = config.clip if config.clip_high is None else config.clip_high
    objective = clipped_surrogate(r, a, config.clip, high, config.dual_clip)
    ratio = r.detach()
    clipped = losses.is_beyond(ratio, a, config.clip, high)
    if config.dual_clip is not None:
        clipped = clipped | ((a < 0) & (ratio > config.dual_clip))
    weighed = {"clipped_fraction": clipped}
    if proximal is not None:
        of_actions = is_truncating and bound.level == "action"
        weight = losses.surrogate_ratios(proximal, behaviour, mask, clamp, "action" if of_actions else level)
        weight = weight if weight.dim() == r.dim() else losses.per_action(weight, r).expand_as(r)
        objective = objective * weight.clamp(max=rho_max)
        weighed["capped_fraction"] = weight > rho_max
    return Surrogate(objective, weighed)
