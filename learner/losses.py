"""Loss terms that objectives share, as pure functions of tensors: ratios, advantages, clips, critics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.learner.ranks import sum_over_ranks

if TYPE_CHECKING:
    from distrl.configs.algorithms import GrpoConfig, PpoConfig
    from distrl.learner.batching import StepBatch

RatioLevel = Literal["action", "token", "sequence"]

LOG_RATIO_CLAMP = 20.0
"""Log-ratios are clamped to ± this before exp; beyond, a ratio has no gradient."""


class Ratios(NamedTuple):
    """Importance ratios ρ = π / μ, without gradients: [N] of whole actions, and [N, L] per token."""

    action: Tensor
    token: Tensor

    def at(self, level: RatioLevel) -> Tensor:
        """[N] ρ of actions, or [N, L] of tokens."""
        return self.token if level == "token" else self.action


def importance_ratios(logprobs: Tensor, behaviour: Tensor, token_mask: Tensor) -> Ratios:
    given = (logprobs.detach(), behaviour, token_mask)
    return Ratios(ratio(*given, "action"), ratio(*given, "token"))


def ratio(
    logprobs: Tensor,
    reference: Tensor,
    token_mask: Tensor,
    level: RatioLevel,
    sequence: Tensor | None = None,
) -> Tensor:
    """r = π / π_ref with gradients: [N] of whole actions, or [N, L] per token, 1 at padding.

    At level "sequence" it is the geometric mean over the tokens of each action's sequence, [N] (GSPO, Zheng
    et al. 2025, eq. 7).

    Args:
        sequence: [N] int64 in [0, N), the sequence of each action; None: each is one.
    """
    log_token = torch.where(token_mask, logprobs - reference, 0.0)
    log_ratio = log_token if level == "token" else log_token.sum(dim=1)
    if level == "sequence":
        counts = token_mask.sum(dim=1).to(log_ratio.dtype)
        if sequence is not None:
            log_ratio = torch.zeros_like(log_ratio).index_add(0, sequence, log_ratio)[sequence]
            counts = torch.zeros_like(counts).index_add(0, sequence, counts)[sequence]
        log_ratio = log_ratio / counts.clamp(min=1)
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()


def per_action(values: Tensor, like: Tensor) -> Tensor:
    """[N] `values` in a shape that broadcasts over `like`: [N], or [N, 1] beside [N, L]."""
    return values if like.dim() == 1 else values[:, None]


def per_step(values: Tensor, token_mask: Tensor) -> Tensor:
    """[N] values as they are; [N, L] values of tokens summed over each action's.

    The sum, not the mean, so that both ratio levels have the same gradient where π is the behaviour policy.
    """
    return torch.where(token_mask, values, 0.0).sum(dim=1) if values.dim() == 2 else values


class Moments(NamedTuple):
    """Mean and standard deviation √(var + ε), scalars."""

    mean: Tensor
    std: Tensor


def moments(advantages: Tensor, mask: Tensor) -> Moments:
    """Those of the real entries of the batches of all ranks, each of which must call this equally often.

    AcceRL's eq. 5–7 with ε = 1e−16, but the squares are summed about the mean, since Q/N − μ² is the
    difference of two large numbers.
    """
    a = torch.where(mask, advantages, 0.0)
    total, count = sum_over_ranks(torch.stack([a.sum(), mask.sum().to(a.dtype)])).unbind()
    count = count.clamp(min=1)
    centre = total / count
    variance = sum_over_ranks(torch.where(mask, a - centre, 0.0).square().sum()) / count
    return Moments(centre, (variance + 1e-16).sqrt())


def normalise(advantages: Tensor, mask: Tensor, std_floor: float, over: Moments) -> Tensor:
    """(A − mean) / max(std, floor) of [B, T] advantages; 0 at padding.

    The floor keeps a batch in which nothing differs (all succeed) from being blown up into noise.
    """
    return torch.where(mask, advantages - over.mean, 0.0) / over.std.clamp(min=std_floor)


def policy_gradient(
    logprobs: Tensor,
    token_mask: Tensor,
    advantages: Tensor,
    rho: Tensor,
    rho_max: float,
    clip: float | None = None,
    clip_high: float | None = None,
) -> Tensor:
    """[N] the losses −sg(min(ρ_t, ρ_max)) · A_t · log π(a_t|s_t) (DistRL §5.1).

    `clip` ε (not in the paper; None = off) drops actions, or tokens, whose ratio has already left
    [1 − ε, 1 + ε] in the direction that the advantage pushes, as PPO does; with `clip_high` the upper end is
    1 + `clip_high` (Yu et al. 2025), which leaves actions that are rare under μ more room to grow.

    Args:
        logprobs: [N, L] log π with gradients.
        advantages: [N].
        rho: [N] ρ of whole actions; or [N, L], so that each token carries its own.
    """
    log_pi = logprobs if rho.dim() == 2 else per_step(logprobs, token_mask)
    a = per_action(advantages, rho)
    coefficient = rho.clamp(max=rho_max) * a
    if clip is not None:
        coefficient = torch.where(is_beyond(rho, a, clip, clip_high), 0.0, coefficient)
    return -per_step(coefficient * log_pi, token_mask)


def is_beyond(ratios: Tensor, advantages: Tensor, clip: float, clip_high: float | None = None) -> Tensor:
    """Bool: whether a ratio has left [1 − ε, 1 + ε_high] in the direction that its advantage pushes."""
    upper = clip if clip_high is None else clip_high
    return ((advantages > 0) & (ratios > 1.0 + upper)) | ((advantages < 0) & (ratios < 1.0 - clip))


def clipped_surrogate(
    ratios: Tensor, advantages: Tensor, clip: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """min(r A, clip(r, 1 − ε, 1 + ε_high) A), to be maximised (Schulman et al. 2017, eq. 7).

    With `dual_clip` c, at A < 0 no less than c A (Ye et al. 2020, eq. 5): a bad action that has become much
    more probable pushes with bounded force, that is, no longer.
    """
    objective = torch.minimum(ratios * advantages, ratios.clamp(1.0 - clip, 1.0 + clip_high) * advantages)
    if dual_clip is None:
        return objective
    return torch.where(advantages < 0, torch.maximum(objective, dual_clip * advantages), objective)


def surrogate(
    c: PpoConfig | GrpoConfig,
    logprobs: Tensor,
    steps: StepBatch,
    advantages: Tensor,
    sequence: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Plain: r = π / μ. Decoupled (Hilton et al. 2022; AReaL, Fu et al. 2025):

        E[ sg(min(π_prox / μ, ρ_max)) · min(r A, clip(r) A) ],   r = π / π_prox

    The proximal policy is that of the weights before the first step on this batch, as in AReaL, where the
    paper leaves it open: its log-probabilities cost one pass more, and no second copy of the weights is kept.
    The behaviour's weight is capped, which AReaL's is not. With a single step per batch the proximal policy
    is the policy itself: then the decoupled surrogate is truncated importance sampling.

    Args:
        sequence: As in `ratio`.

    Returns:
        [N], or [N, L] at ratio level "token", to be maximised; and by metric name whether each ratio was
        clipped, and with it the gradient gone, and, if decoupled, whether the behaviour's weight was capped.
    """
    mask, behaviour = steps.token_mask, steps.behaviour_logprobs
    proximal = None
    if c.decoupled:
        proximal = logprobs.detach() if steps.proximal_logprobs is None else steps.proximal_logprobs
    r = ratio(logprobs, behaviour if proximal is None else proximal, mask, c.ratio_level, sequence)
    a = per_action(advantages, r)
    high = c.clip if c.clip_high is None else c.clip_high
    objective = clipped_surrogate(r, a, c.clip, high, c.dual_clip)
    clipped = is_beyond(r.detach(), a, c.clip, high)
    if c.dual_clip is not None:
        clipped = clipped | ((a < 0) & (r.detach() > c.dual_clip))
    weighed = {"clipped_fraction": clipped}
    if proximal is not None:
        weight = ratio(proximal, behaviour, mask, c.ratio_level, sequence)
        objective = objective * weight.clamp(max=c.rho_max)
        weighed["capped_fraction"] = weight > c.rho_max
    return objective, weighed


def kl_to_reference(logprobs: Tensor, reference: Tensor) -> Tensor:
    """[N, L] the estimate π_ref/π − log(π_ref/π) − 1 ≥ 0 of KL(π ‖ π_ref) at sampled tokens, with gradients.

    It is that of Schulman (2020), "Approximating KL divergence", which GRPO uses (Shao et al. 2024, eq. 4).
    """
    log_ratio = (reference - logprobs).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    return log_ratio.exp() - log_ratio - 1.0


def action_mean(values: Tensor, token_mask: Tensor) -> Tensor:
    """[N, L] values of tokens, such as entropies, averaged over each action's, [N]."""
    return torch.where(token_mask, values, 0.0).sum(dim=1) / token_mask.sum(dim=1).clamp(min=1)


def critic_bce(logits: Tensor, targets: Tensor, count: int) -> Tensor:
    """−Σ [ y log V + (1 − y) log(1 − V) ] / count, y clipped to [0, 1] (DistRL eq. 3; soft for V(s_t))."""
    return F.binary_cross_entropy_with_logits(logits, targets.clamp(0.0, 1.0), reduction="sum") / count
