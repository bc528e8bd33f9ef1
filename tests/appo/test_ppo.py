"""Local PPO: advantages and losses against slow loops, gradients, and η that the master can use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")

from distrl.appo.envs import Moments, Round
from distrl.appo.policy import GaussianPolicy, PolicySpec
from distrl.appo.ppo import LocalPpo, advantages, apply_eta, surrogate


@dataclass(frozen=True)
class Options:
    epochs: int = 3
    minibatch_size: int = 8
    gamma: float = 0.9
    lam: float = 0.8
    clip: float = 0.2
    target_kl: float | None = None
    value_weight: float = 0.5
    entropy: float = 0.01
    grad_clip: float = 0.5


def new_policy() -> GaussianPolicy:
    return GaussianPolicy(PolicySpec("Some-v0", 3, 2, (8,), "tanh", 0.0), seed=3)


def transitions(
    length: int = 6, width: int = 4, seed: int = 0, policy: GaussianPolicy | None = None
) -> Round:
    """Random steps whose actions `policy`, a new one by default, has the log-probabilities of."""
    rng = np.random.default_rng(seed)

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    done = rng.random((length, width)) < 0.3
    x, actions = floats(length, width, 3), floats(length, width, 2)
    return Round(
        observations=x,
        actions=actions,
        log_probs=(policy or new_policy()).log_probs(x, actions),
        rewards=floats(length, width),
        next_observations=floats(length, width, 3),
        terminated=done & (rng.random((length, width)) < 0.5),
        done=done,
        seen=Moments.empty(3),
        returns=Moments.empty(1),
        episodes=(),
    )


def slow_advantages(data: Round, values: np.ndarray, next_values: np.ndarray, lam: float) -> np.ndarray:
    """Σ_k (γλ)^k δ_{t+k} up to the end of the episode or of the data, term by term."""
    gamma, (length, width) = 0.9, data.rewards.shape
    result = np.zeros((length, width))
    for i in range(width):
        for t in range(length):
            weight, k = 1.0, t
            while True:
                follows = 0.0 if data.terminated[k, i] else next_values[k, i]
                result[t, i] += weight * (data.rewards[k, i] + gamma * follows - values[k, i])
                if data.done[k, i] or k == length - 1:
                    break
                weight, k = weight * gamma * lam, k + 1
    return result


@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_advantages_stop_at_the_ends_of_episodes(lam: float) -> None:
    data = transitions(12)
    rng = np.random.default_rng(1)
    values, after = (rng.normal(size=(12, 4)).astype(np.float32) for _ in range(2))
    found = advantages(data.rewards, values, after, data.terminated, data.done, 0.9, lam)
    np.testing.assert_allclose(found, slow_advantages(data, values, after, lam), rtol=1e-4, atol=1e-5)


def test_the_surrogate_s_gradient_is_right_on_both_sides_of_the_clip() -> None:
    log_ratio = torch.tensor([-0.5, -0.1, 0.1, 0.5, 0.5], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: surrogate(x, advantage, 0.2), (log_ratio,))
    surrogate(log_ratio, advantage, 0.2).sum().backward()
    assert log_ratio.grad[3] == 0.0  # good, and already much more probable
    assert log_ratio.grad[4] != 0.0  # bad, and more probable: never silenced


def slow_loss(policy: GaussianPolicy, data: Round, options: Options) -> torch.Tensor:
    """One minibatch of everything at π = π_old, transition by transition."""
    with torch.no_grad():
        values = policy.value(torch.from_numpy(data.observations)).numpy()
        after = policy.value(torch.from_numpy(data.next_observations)).numpy()
        for t in range(len(values) - 1):
            after[t] = np.where(data.done[t], after[t], values[t + 1])
    advantage = slow_advantages(data, values, after, options.lam)
    normalised = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    loss = torch.zeros(())
    num = advantage.size
    for t, i in np.ndindex(advantage.shape):
        x, action = torch.from_numpy(data.observations[t, i]), torch.from_numpy(data.actions[t, i])
        normal = torch.distributions.Normal(policy.actor(x), policy.log_std.exp())
        log_prob = normal.log_prob(action).sum()
        ratio = torch.exp(log_prob - log_prob.detach())
        a = float(normalised[t, i])
        clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
        target = float(advantage[t, i] + values[t, i])
        loss = loss - torch.minimum(ratio * a, clipped * a) / num
        loss = loss + options.value_weight * (target - policy.critic(x)[0]) ** 2 / num
    entropy = sum(float(s) + 0.5 * math.log(2 * math.pi * math.e) for s in policy.log_std.detach())
    assert abs(float(policy.entropy()) - entropy) < 1e-5
    return loss - options.entropy * policy.log_std.sum()


@pytest.mark.parametrize("lam", [0.8, 0.0])
def test_the_gradient_is_that_of_the_slow_loss(lam: float) -> None:
    options = Options(epochs=1, minibatch_size=24, lam=lam, grad_clip=1e9)
    data, policy, other = transitions(), new_policy(), new_policy()
    LocalPpo(policy, options).train(data, 0.01, np.random.default_rng(0))
    slow_loss(other, data, options).backward()
    torch.testing.assert_close(policy.flat.grad, other.flat.grad, rtol=2e-3, atol=2e-4)


def test_eta_takes_the_master_to_where_the_worker_is() -> None:
    worker, master = new_policy(), new_policy()
    eta, _ = LocalPpo(worker, Options()).train(transitions(), 0.01, np.random.default_rng(0))
    assert float((worker.flat.vector - master.flat.vector).abs().max()) > 1e-3
    apply_eta(master, eta, 0.01)
    torch.testing.assert_close(master.flat.vector, worker.flat.vector, rtol=1e-6, atol=1e-7)


def test_actor_and_critic_are_clipped_together() -> None:
    data = replace(transitions(), rewards=np.full((6, 4), 1e4, np.float32))
    policy = new_policy()
    ppo = LocalPpo(policy, Options(epochs=1, minibatch_size=24, grad_clip=0.1, entropy=0.0))
    ppo.train(data, 1e-3, np.random.default_rng(0))
    assert float(policy.flat.grad.norm()) == pytest.approx(0.1, rel=1e-3)


def test_adam_keeps_its_moments_from_round_to_round() -> None:
    """torch's own optimiser on the same gradients, over two rounds, gives the same weights."""
    options = Options(epochs=1, minibatch_size=24, grad_clip=1e9)
    worker, other = new_policy(), new_policy()
    ppo, adam = LocalPpo(worker, options), torch.optim.Adam(other.parameters(), 0.01, eps=1e-5)
    for seed in (0, 1):
        data = transitions(seed=seed, policy=worker)
        ppo.train(data, 0.01, np.random.default_rng(0))
        other.flat.grad.zero_()
        slow_loss(other, data, options).backward()
        adam.step()
    torch.testing.assert_close(worker.flat.vector, other.flat.vector, rtol=1e-3, atol=1e-3)


def test_a_round_ends_where_the_policy_has_moved_too_far() -> None:
    def epochs(target_kl: float | None) -> float:
        options = Options(epochs=50, target_kl=target_kl)
        return LocalPpo(new_policy(), options).train(transitions(), 0.05, np.random.default_rng(0))[1][
            "off_policy/epochs"
        ]

    assert epochs(None) == 50
    assert epochs(0.02) < 50


def test_what_others_changed_since_the_actions_were_drawn_counts() -> None:
    """π_old is far from the weights that training begins with: the bound ends it after a minibatch."""
    old, newest = new_policy(), new_policy()
    with torch.no_grad():
        newest.log_std.sub_(1.0)
    options = Options(epochs=4, minibatch_size=24, target_kl=0.02)
    rng = np.random.default_rng(0)
    assert LocalPpo(newest, options).train(transitions(policy=old), 1e-6, rng)[1]["off_policy/epochs"] == 1
    assert LocalPpo(old, options).train(transitions(policy=old), 1e-6, rng)[1]["off_policy/epochs"] == 4
