"""Loss terms that objectives share, as pure functions of tensors: ratios, advantages, entropy, critics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.learner.ranks import sum_over_ranks

if TYPE_CHECKING:
    from distrl.configs.algorithms import GrpoConfig, PpoConfig
    from distrl.learner.batching import StepBatch

RatioLevel = Literal["action", "token"]
LOG_RATIO_CLAMP = 20.0
"""The bound to which logarithms of ratios are clamped, against overflow."""


@dataclass(frozen=True)
class Ratios:
    """Importance ratios, without gradients.

    Attributes:
        action: [N] ρ_t = exp Σ_tokens (log π − log μ), the whole action's.
        token: [N, L] the same per token, 1 at padding.
        action_clamped, token_clamped: [N] and [N, L] bool: whether the log-ratio met the clamp.
    """

    action: Tensor
    token: Tensor
    action_clamped: Tensor
    token_clamped: Tensor

    def at(self, level: RatioLevel) -> Tensor:
        """[N] ρ of actions, or [N, L] of tokens."""
        return self.action if level == "action" else self.token

    def clamped_at(self, level: RatioLevel) -> Tensor:
        """[N] or [N, L] bool: whether the ratio is one at the clamp."""
        return self.action_clamped if level == "action" else self.token_clamped


def importance_ratios(logprobs: Tensor, behaviour: Tensor, token_mask: Tensor, clamp: float) -> Ratios:
    """ρ from [N, L] log-probabilities; log-ratios are clamped to ±`clamp` before exp."""
    log_token = torch.where(token_mask, logprobs.detach() - behaviour, 0.0)
    log_action = log_token.sum(dim=1)
    return Ratios(
        action=log_action.clamp(-clamp, clamp).exp(),
        token=log_token.clamp(-clamp, clamp).exp(),
        action_clamped=log_action.abs() > clamp,
        token_clamped=log_token.abs() > clamp,
    )


def surrogate_ratios(
    logprobs: Tensor, reference: Tensor, token_mask: Tensor, clamp: float, level: RatioLevel
) -> Tensor:
    """r = π / π_ref with gradients: [N] of whole actions, or [N, L] per token, 1 at padding.

    Args:
        logprobs: [N, L] log π with gradients.
        reference: [N, L] log-probabilities of the policy that r compares with, without gradients.
        clamp: Log-ratios are clamped to ± this before exp; beyond, r has no gradient.
    """
    log_token = torch.where(token_mask, logprobs - reference, 0.0)
    log_ratio = log_token.sum(dim=1) if level == "action" else log_token
    return log_ratio.clamp(-clamp, clamp).exp()


def per_action(values: Tensor, like: Tensor) -> Tensor:
    """[N] `values` in a shape that broadcasts over `like`: [N], or [N, 1] beside [N, L]."""
    return values if like.dim() == 1 else values[:, None]


def mean(values: Tensor, count: int | None = None) -> Tensor:
    """Σ values / count.

    Args:
        count: How many there are in the whole batch, of which these may be a share; None: these are all.
    """
    return values.sum() / (len(values) if count is None else count)


def mean_over_steps(
    objective: Tensor, token_mask: Tensor, weights: Tensor, count: int | None = None
) -> Tensor:
    """Σ_n w_n x_n / N of an [N] objective; one per token, [N, L], is summed over each action's tokens first.

    The sum, not the mean, so that both ratio levels have the same gradient where π is the behaviour policy.

    Args:
        count: N, see `mean`; the same below.
    """
    if objective.dim() == 2:
        objective = torch.where(token_mask, objective, 0.0).sum(dim=1)
    return mean(objective * weights, count)


class Moments(NamedTuple):
    """Mean and standard deviation √(var + ε), scalars."""

    mean: Tensor
    std: Tensor


def moments(advantages: Tensor, mask: Tensor) -> Moments:
    """Those of the real entries of the batches of all ranks, each of which must call this equally often.

    AcceRL's eq. 5–7 with ε = 1e−16, but the squares are summed about the mean, since Q/N − μ² is the
    difference of two large numbers.

    Args:
        advantages: [B, T].
        mask: [B, T] bool.
    """
    a = torch.where(mask, advantages, 0.0)
    total, count = sum_over_ranks(torch.stack([a.sum(), mask.sum().to(a.dtype)])).unbind()
    count = count.clamp(min=1)
    centre = total / count
    variance = sum_over_ranks(torch.where(mask, a - centre, 0.0).square().sum()) / count
    return Moments(centre, (variance + 1e-16).sqrt())


def normalise(
    advantages: Tensor, mask: Tensor, std_floor: float, centre: bool = True, over: Moments | None = None
) -> Tensor:
    """(A − mean) / max(std, floor) of [B, T] advantages; 0 at padding.

    The floor keeps a batch in which nothing differs (all succeed) from being blown up into noise. A constant
    does not change E_μ[ρ A ∇log π] as long as nothing after it looks at the sign of A; with ratios clipped
    far down (ρ_max near 1) it does, and `centre` off keeps the critic's estimate.

    Args:
        over: Mean and standard deviation; None: those of `advantages` themselves, see `moments`.
    """
    centre_at, std = moments(advantages, mask) if over is None else over
    return torch.where(mask, advantages - centre_at if centre else advantages, 0.0) / std.clamp(min=std_floor)


def weigh_negative(advantages: Tensor, weight: float) -> Tensor:
    """Multiplies advantages below 0 by `weight` (Arnal et al. 2025 lower the baseline to the same end)."""
    return torch.where(advantages < 0, weight * advantages, advantages)


def policy_gradient(
    logprobs: Tensor,
    token_mask: Tensor,
    advantages: Tensor,
    ratios: Ratios,
    weights: Tensor,
    rho_max: float,
    level: RatioLevel = "action",
    clip: float | None = None,
    clip_high: float | None = None,
    count: int | None = None,
) -> Tensor:
    """L = −E_μ[ sg(min(ρ_t, ρ_max)) · A_t · log π(a_t|s_t) ], the mean over N steps (DistRL §5.1).

    At level "token" each token carries its own ratio. `clip` ε (not in the paper; None = off) drops
    actions, or tokens, whose ratio has already left [1 − ε, 1 + ε] in the direction that the advantage
    pushes, as PPO does; with `clip_high` the upper end is 1 + `clip_high` (Yu et al. 2025), which leaves
    actions that are rare under μ more room to grow.

    Args:
        logprobs: [N, L] log π with gradients.
        token_mask: [N, L] bool.
        advantages: [N].
        weights: [N] importance weights of the replay draw.
    """
    rho = ratios.at(level)
    real = torch.where(token_mask, logprobs, 0.0)
    log_pi = real.sum(dim=1) if level == "action" else real
    a, w = per_action(advantages, rho), per_action(weights, rho)
    coefficient = rho.clamp(max=rho_max) * a * w
    if clip is not None:
        coefficient = torch.where(is_beyond(rho, a, clip, clip_high), 0.0, coefficient)
    return -(coefficient * log_pi).sum() / (len(advantages) if count is None else count)


def is_beyond(ratios: Tensor, advantages: Tensor, clip: float, clip_high: float | None = None) -> Tensor:
    """Bool: whether a ratio has left [1 − ε, 1 + ε_high] in the direction that its advantage pushes.

    Args:
        ratios: [N] or [N, L].
        advantages: Broadcastable to `ratios`.
        clip_high: ε_high; None: ε, which is `clip`.
    """
    upper = clip if clip_high is None else clip_high
    return ((advantages > 0) & (ratios > 1.0 + upper)) | ((advantages < 0) & (ratios < 1.0 - clip))


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
            behaviour's weight was capped. See `algorithms.base.PolicyTerm`.
    """

    objective: Tensor
    weighed: dict[str, Tensor]


def surrogate(c: PpoConfig | GrpoConfig, logprobs: Tensor, steps: StepBatch, advantages: Tensor) -> Surrogate:
    """Plain: r = π / μ. Decoupled (Hilton et al. 2022; AReaL, Fu et al. 2025):

        E[ sg(min(π_prox / μ, ρ_max)) · min(r A, clip(r) A) ],   r = π / π_prox

    The proximal policy is that of the weights before the first step on this batch, as in AReaL, where the
    paper leaves it open: its log-probabilities cost one pass more, and no second copy of the weights is kept.
    The behaviour's weight is capped, which AReaL's is not. With a single step per batch the proximal policy
    is the policy itself: then the decoupled surrogate is truncated importance sampling.

    Args:
        logprobs: [N, L] log π with gradients.
        advantages: [N].
    """
    mask, behaviour = steps.token_mask, steps.behaviour_logprobs
    proximal = None
    if c.decoupled:
        proximal = logprobs.detach() if steps.proximal_logprobs is None else steps.proximal_logprobs
    reference = behaviour if proximal is None else proximal
    r = surrogate_ratios(logprobs, reference, mask, LOG_RATIO_CLAMP, c.ratio_level)
    a = per_action(advantages, r)
    high = c.clip if c.clip_high is None else c.clip_high
    objective = clipped_surrogate(r, a, c.clip, high, c.dual_clip)
    ratio = r.detach()
    clipped = is_beyond(ratio, a, c.clip, high)
    if c.dual_clip is not None:
        clipped = clipped | ((a < 0) & (ratio > c.dual_clip))
    weighed = {"clipped_fraction": clipped}
    if proximal is not None:
        weight = surrogate_ratios(proximal, behaviour, mask, LOG_RATIO_CLAMP, c.ratio_level)
        objective = objective * weight.clamp(max=c.rho_max)
        weighed["capped_fraction"] = weight > c.rho_max
    return Surrogate(objective, weighed)


def _action_logprob(logprobs: Tensor, token_mask: Tensor) -> Tensor:
    """log π(a_t|s_t) = Σ_tokens log π, [N]."""
    return torch.where(token_mask, logprobs, 0.0).sum(dim=1)


def action_entropy(entropy: Tensor, token_mask: Tensor) -> Tensor:
    """H_t: the exact token-distribution entropy, averaged over the action's tokens, [N]."""
    return torch.where(token_mask, entropy, 0.0).sum(dim=1) / token_mask.sum(dim=1).clamp(min=1)


def validity(
    logprobs: Tensor,
    token_mask: Tensor,
    invalid: Tensor,
    ratios: Ratios,
    weights: Tensor,
    rho_max: float,
    count: int | None = None,
) -> Tensor:
    """The score-function form of E[P_invalid]: mean_t invalid_t · sg(min(ρ_t, ρ_max)) · log π(a_t|s_t).

    Its gradient is that of the probability of the invalid actions that were tried.
    """
    coefficient = invalid * ratios.action.clamp(max=rho_max) * weights
    return mean(coefficient * _action_logprob(logprobs, token_mask), count)


def critic_bce(logits: Tensor, targets: Tensor, weights: Tensor, count: int | None = None) -> Tensor:
    """−E[ y log V + (1 − y) log(1 − V) ], y clipped to [0, 1] (DistRL eq. 3; soft targets for V(s_t))."""
    losses = F.binary_cross_entropy_with_logits(logits, targets.clamp(0.0, 1.0), reduction="none")
    return mean(weights * losses, count)


def cloning(logprobs: Tensor, token_mask: Tensor, count: int | None = None) -> Tensor:
    """Behaviour cloning: −mean_t Σ_tokens log π(a_t|s_t)."""
    return -mean(_action_logprob(logprobs, token_mask), count)


def weighted_cloning(
    logprobs: Tensor, token_mask: Tensor, weights: Tensor, count: int | None = None
) -> Tensor:
    """−Σ_t w_t log π(a_t|s_t) / N; `weights` are [N]."""
    return -mean(weights * _action_logprob(logprobs, token_mask), count)
