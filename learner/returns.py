"""Returns and advantages: one recursion, and Retrace(λ), V-trace, GAE and Monte-Carlo as calls of it.

GRPO's advantage, which needs no recursion, is here too.

Shapes are [B, T], trajectories × steps, left-aligned and padded; `mask` is True where a step is real.
Everything is a pure function of tensors, without gradients of its own: pass detached values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """What every return needs."""

    rewards: Tensor  # [B, T] r_t
    values: Tensor  # [B, T] V(s_t); for `retrace_q`, Q(s_t, a_t)
    bootstrap: Tensor  # [B] V of the observation after the last real step; used where `terminated` is False
    terminated: Tensor  # [B] bool, True if the episode ended by itself, False if it was cut off (truncated)
    mask: Tensor  # [B, T] bool, True at real steps, which come first in each row

    def __post_init__(self) -> None:
        shape = self.mask.shape
        assert len(shape) == 2, f"mask must be [B, T], got {tuple(shape)}"
        assert self.rewards.shape == shape == self.values.shape, "rewards, values and mask differ in shape"
        assert self.bootstrap.shape == shape[:1] == self.terminated.shape, "bootstrap and terminated are [B]"


@dataclass(frozen=True)
class Returns:
    """Advantages A_t of the actor, targets of the critic, TD errors δ_t; all [B, T], 0 at padding."""

    advantages: Tensor
    targets: Tensor
    td_errors: Tensor


def td_errors(rollout: Rollout, gamma: float, next_values: Tensor | None = None) -> Tensor:
    """δ_t = r_t + γ (1 − terminated_t) u_{t+1} − V(s_t), [B, T]; a cut last step uses `bootstrap`.

    Args:
        next_values: [B, T] u; None: V itself.
    """
    mask = rollout.mask
    v_t = torch.where(mask, rollout.values, 0.0)
    u_t = v_t if next_values is None else torch.where(mask, next_values, 0.0)
    after_last = torch.where(rollout.terminated, 0.0, rollout.bootstrap)[:, None]
    next_is_real = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1)
    u_tp1 = torch.where(next_is_real, _shift(u_t), after_last)
    return torch.where(mask, rollout.rewards + gamma * u_tp1 - v_t, 0.0)


def discounted_sum(x: Tensor, decay: Tensor, mask: Tensor) -> Tensor:
    """The general recursion y_t = x_t + d_t y_{t+1}, with y = 0 after the last real step."""
    y = torch.zeros_like(x)
    y_tp1 = x.new_zeros(len(x))
    for t in range(x.shape[1] - 1, -1, -1):
        y_tp1 = torch.where(mask[:, t], x[:, t] + decay[:, t] * y_tp1, 0.0)
        y[:, t] = y_tp1
    return y


def _shift(x: Tensor) -> Tensor:
    """x_{t+1} at position t; 0 at the end."""
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)


def retrace(rollout: Rollout, ratios: Tensor, gamma: float, lam: float) -> Returns:
    """Retrace(λ) with a state-value critic (Munos et al. 2016; DistRL eq. 1).

        c_i = λ min(1, ρ_i)
        Δ_t = Σ_{k≥t} γ^{k−t} (Π_{i=t+1..k} c_i) δ_k  =  δ_t + γ c_{t+1} Δ_{t+1}
        A_t = Q^ret_t − V(s_t) = Δ_t
        critic target = V(s_t) + min(1, ρ_t) Δ_t

    The target equals V-trace's for every λ when both of its thresholds are 1, so this form has V-trace's
    fixed point (the value of a policy between μ and π), not the guarantee that Munos et al. prove for
    action values.

    Args:
        ratios: [B, T] ρ_t = π(a_t|s_t) / μ(a_t|s_t) of whole actions.
    """
    delta = td_errors(rollout, gamma)
    rho_bar = ratios.clamp(max=1.0)
    c = torch.where(rollout.mask, lam * rho_bar, 0.0)
    advantages = discounted_sum(delta, gamma * _shift(c), rollout.mask)
    targets = torch.where(rollout.mask, rollout.values + rho_bar * advantages, 0.0)
    return Returns(advantages, targets, delta)


def retrace_q(rollout: Rollout, expected: Tensor, ratios: Tensor, gamma: float, lam: float) -> Returns:
    """Retrace(λ) with an action-value critic (Munos et al. 2016, eq. 3–4).

        δ_t = r_t + γ E_{a~π} Q(s_{t+1}, a) − Q(s_t, a_t)
        Q^ret_t = Q(s_t, a_t) + Δ_t,  Δ_t = δ_t + γ c_{t+1} Δ_{t+1},  c_i = λ min(1, ρ_i)
        A_t = Q^ret_t − E_{a~π} Q(s_t, a)
        critic target = Q^ret_t

    DistRL's eq. 1 has Q(s_{t+1}, a_{t+1}), the action that was taken, in place of the expectation. That is
    unbiased only while π = μ: with c = 0 its fixed point is the value of μ, whatever π is.

    Args:
        rollout: `values` are Q(s_t, a_t); `bootstrap` is E_{a~π} Q of the state after a cut.
        expected: [B, T] E_{a~π} Q(s_t, a).
        ratios: [B, T] ρ_t of whole actions.
    """
    delta = td_errors(rollout, gamma, expected)
    c = torch.where(rollout.mask, lam * ratios.clamp(max=1.0), 0.0)
    correction = discounted_sum(delta, gamma * _shift(c), rollout.mask)
    targets = torch.where(rollout.mask, rollout.values + correction, 0.0)
    return Returns(torch.where(rollout.mask, targets - expected, 0.0), targets, delta)


def group_relative(rewards: Tensor, mean: Tensor, std: Tensor, count: Tensor, epsilon: float) -> Tensor:
    """GRPO's advantage of whole trajectories, A = (R − mean) / (std + ε) (Shao et al. 2024, §4.1.2).

    The statistics are those of the members that exist, of whatever lengths. A group of fewer than two, or one
    whose members all earned the same, says nothing: 0 (see `has_spread`).

    Args:
        rewards: [B] R = Σ_t r_t, undiscounted.
        mean, std: [B] of the rewards in each trajectory's group.
        count: [B] int64, how many members the group has.
        epsilon: ε.
    """
    advantages = (rewards - mean) / (std + epsilon)
    return torch.where(has_spread(std, count, epsilon), advantages, 0.0)


def has_spread(std: Tensor, count: Tensor, epsilon: float) -> Tensor:
    """[B] bool: whether a trajectory's group has members whose rewards differ by more than rounding, ε."""
    return (count >= 2) & (std > epsilon)


def vtrace(
    rollout: Rollout, ratios: Tensor, gamma: float, lam: float = 1.0, rho_bar: float = 1.0, c_bar: float = 1.0
) -> Returns:
    """V-trace (Espeholt et al. 2018, eq. 1 and §4.2).

        v_t − V(s_t) = E_t = min(ρ̄, ρ_t) δ_t + γ c_t E_{t+1},   c_t = λ min(c̄, ρ_t)
        A_t = r_t + γ v_{t+1} − V(s_t) = δ_t + γ E_{t+1}

    The ratio that the paper's policy gradient puts before A_t is the policy term's own, so that it is counted
    once. Unlike Retrace's, the advantage's bootstrap v_{t+1} has no λ.
    """
    delta = td_errors(rollout, gamma)
    rho = ratios.clamp(max=rho_bar)
    c = lam * ratios.clamp(max=c_bar)
    error = discounted_sum(rho * delta, gamma * c, rollout.mask)
    targets = torch.where(rollout.mask, rollout.values + error, 0.0)
    advantages = torch.where(rollout.mask, delta + gamma * _shift(error), 0.0)
    return Returns(advantages, targets, delta)


def gae(rollout: Rollout, gamma: float, lam: float) -> Returns:
    """GAE: A_t = δ_t + γ λ A_{t+1}; target V(s_t) + A_t (Schulman et al. 2016)."""
    delta = td_errors(rollout, gamma)
    advantages = discounted_sum(delta, torch.full_like(delta, gamma * lam), rollout.mask)
    targets = torch.where(rollout.mask, rollout.values + advantages, 0.0)
    return Returns(advantages, targets, delta)


RETURNS: Mapping[str, Callable[[Rollout, Tensor, float, float], Returns]] = {
    "retrace": retrace,
    "vtrace": vtrace,
    "gae": lambda rollout, ratios, gamma, lam: gae(rollout, gamma, lam),
    # The discounted return itself: G_t = r_t + γ G_{t+1}, which ends with γ times `bootstrap` after a cut.
    "mc": lambda rollout, ratios, gamma, lam: gae(rollout, gamma, 1.0),
}
"""By name, as functions of (rollout, ratios, γ, λ); the last two take no account of ratios."""
