"""PPO on a worker's own transitions, and the pseudo-gradient η that it sends (APPO).

    L(θ, ω) = −E[min(r A, clip(r, 1 − ε, 1 + ε) A)] − β H(π_θ) + c E[(V_target − V_ω)²],   r = π_θ / π_old
    η_θ = (θ_l − θ_init) / α_l,   η_ω = (ω_init − ω_l) / α_l                    (APPO paper, eq. 12)

The paper's pseudocode differs from its own text, and from what can work, in three places; the standard forms
are taken here. V_target = r + γ V(s') has γ, which line 8 lacks. The critic's loss is the square of the
difference: line 12 lacks it, and descending on the difference itself would send V to infinity. Â belongs into
the minimum: eq. 5 has it outside, which makes the bound optimistic where Â < 0. Sums over transitions are
means over minibatches, so that α_l does not depend on their number. Not in the paper, but usual for PPO: Â is
centred and divided by its standard deviation in each minibatch, and gradients have a longest length.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.appo.envs import Bools, Round
from distrl.appo.policy import GaussianPolicy
from distrl.configs.appo import AppoConfig

Floats = NDArray[np.float32]
Eta = dict[str, Tensor]
"""η by the name of the parameter."""

METRICS = (
    *("loss/policy", "loss/value", "off_policy/kl", "off_policy/silenced_fraction"),
    *("value/explained_variance", "off_policy/epochs", "train/log_std", "off_policy/behaviour_lag"),
)
"""Of a round, as `LocalPpo.train` returns them; the last one is the worker's."""

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-5


def advantages(
    rewards: Floats,
    values: Floats,
    next_values: Floats,
    terminated: Bools,
    done: Bools,
    gamma: float,
    lam: float,
) -> Floats:
    """GAE(λ) of steps [T, n] that go over the ends of episodes (Schulman et al. 2016, eq. 16).

        δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t),   A_t = δ_t + γ λ (1 − done_t) A_{t+1}

    λ = 0 is the one-step error of the APPO paper. The last row has no A_{t+1}.

    Args:
        next_values: [T, n] V of the observation after each step, not of the next episode's first one.
    """
    delta = rewards + gamma * np.where(terminated, 0.0, next_values) - values
    advantage, after = np.empty_like(rewards), np.zeros(rewards.shape[1])
    for t in range(len(delta) - 1, -1, -1):
        after = delta[t] + gamma * lam * np.where(done[t], 0.0, after)
        advantage[t] = after
    return advantage


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """min(r A, clip(r, 1 − ε, 1 + ε) A), [B], to be maximised (Schulman et al. 2017, eq. 7)."""
    ratio = torch.exp(log_ratio)
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


class LocalPpo:
    """Trains a worker's copy of the policy.

    The optimiser's moments stay with the worker from round to round; only the weights are the master's. (They
    describe the scale of gradients, which is much the same for all workers, and would take hundreds of steps
    to build up again.)
    """

    def __init__(self, policy: GaussianPolicy, options: AppoConfig) -> None:
        self.policy, self._options = policy, options
        self._m = torch.zeros_like(policy.flat.vector)
        self._v = torch.zeros_like(policy.flat.vector)
        self._steps = 0

    def train(self, data: Round, lr: float, rng: np.random.Generator) -> tuple[Eta, dict[str, float]]:
        """E epochs on `data` with the local rate `lr`; fewer where the policy has gone `target_kl` far.

        The clip silences single transitions, but does not bound how far the policy moves: the smaller its
        standard deviation, the farther one and the same step. Without a bound good policies were lost.
        π_old may be older than the policy is now: then what other workers changed since counts as well.

        Returns:
            η by parameter name, with the signs of the paper (θ += α η_θ, ω −= α η_ω); and means over all
            minibatches, each measured before its step: losses, KL, the share that the clip silences.
        """
        start = self.policy.flat.vector.clone()
        x, actions, old, advantage, target = self._prepare(data)
        size = min(self._options.minibatch_size, len(x))
        sums = torch.zeros(4)
        num, limit = 0, 1.5 * (self._options.target_kl or float("inf"))
        for rows in _minibatches(len(x), size, self._options.epochs, rng):
            found = self._step(x[rows], actions[rows], old[rows], advantage[rows], target[rows], lr)
            sums += found
            num += 1
            if float(found[2]) > limit:
                break
        log_std = float(self.policy.log_std.detach().mean())
        numbers = [*(sums / num).tolist(), _explained(target, advantage), num * size / len(x), log_std]
        return self._eta(start, lr), dict(zip(METRICS, numbers, strict=False))

    @torch.no_grad()
    def _prepare(self, data: Round) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Rows [T n, …]: x, actions, log π_old, A and V_target; x and V by the weights before training."""
        options, policy = self._options, self.policy
        length, width = data.rewards.shape
        x = torch.from_numpy(policy.normalise(data.observations)).flatten(0, 1)
        actions = torch.from_numpy(data.actions).flatten(0, 1)
        values = policy.value(x).numpy().reshape(length, width)
        next_values = np.empty_like(values)
        next_values[:-1] = values[1:]
        elsewhere = data.done.copy()  # where the next row is another episode's, or there is none
        elsewhere[-1] = True
        next_x = policy.normalise(data.next_observations[elsewhere])
        next_values[elsewhere] = policy.value(torch.from_numpy(next_x)).numpy()
        found = advantages(
            data.rewards, values, next_values, data.terminated, data.done, options.gamma, options.lam
        )
        target = torch.from_numpy(found + values).flatten()
        old = torch.from_numpy(data.log_probs).flatten()
        return x, actions, old, torch.from_numpy(found).flatten(), target

    def _step(
        self, x: Tensor, actions: Tensor, old: Tensor, advantage: Tensor, target: Tensor, lr: float
    ) -> Tensor:
        """One optimiser step on a minibatch; returns policy loss, value loss, KL and the silenced share."""
        options, policy, flat = self._options, self.policy, self.policy.flat
        flat.grad.zero_()
        if len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log_ratio = policy.log_prob(x, actions) - old
        policy_loss = -surrogate(log_ratio, advantage, options.clip).mean()
        value_loss = ((target - policy.value(x)) ** 2).mean()
        loss = policy_loss - options.entropy * policy.entropy() + options.value_weight * value_loss
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.linalg.vector_norm(flat.grad)
        flat.grad.mul_(torch.clamp(options.grad_clip / (norm + 1e-6), max=1.0))
        self._apply(lr)
        with torch.no_grad():
            ratio = log_ratio.detach().exp()
            kl = (ratio - 1.0 - log_ratio.detach()).mean()
            beyond = torch.where(advantage > 0, ratio > 1.0 + options.clip, ratio < 1.0 - options.clip)
            silenced = beyond.float().mean()
            return torch.stack([policy_loss.detach(), value_loss.detach(), kl, silenced])

    def _apply(self, lr: float) -> None:
        flat = self.policy.flat
        self._steps += 1
        self._m.lerp_(flat.grad, 1.0 - _BETA_1)
        self._v.mul_(_BETA_2).addcmul_(flat.grad, flat.grad, value=1.0 - _BETA_2)
        scale = lr / (1.0 - _BETA_1**self._steps)
        root = (self._v / (1.0 - _BETA_2**self._steps)).sqrt_().add_(_EPSILON)
        flat.vector.addcdiv_(self._m, root, value=-scale)

    def _eta(self, start: Tensor, lr: float) -> Eta:
        eta = (self.policy.flat.vector - start) / lr
        eta[self.policy.num_actor :].neg_()
        return self.policy.flat.views(eta)


def apply_eta(policy: GaussianPolicy, eta: Eta, rate: float) -> None:
    """The master's step: θ ← θ + α_g η_θ, ω ← ω − α_g η_ω (APPO paper, eq. 13), in place."""
    own = dict(policy.named_parameters())
    with torch.no_grad():
        for name, step in eta.items():
            own[name].add_(step, alpha=-rate if name.startswith("critic.") else rate)


def _minibatches(length: int, size: int, epochs: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """The rows of each minibatch of all epochs, each epoch in another order."""
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(length))
        yield from torch.split(order[: length - length % size], size)


def _explained(target: Tensor, advantage: Tensor) -> float:
    """1 − Var(target − V) / Var(target): how much of the returns the critic knew before."""
    variance = float(target.var(correction=0))
    return 1.0 - float(advantage.var(correction=0)) / variance if variance > 0.0 else 0.0
