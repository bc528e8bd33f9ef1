"""A-RIDE as a whole: its gradients by finite differences, its advantage by hand, who gets which gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import slow_returns
import torch
from whole_batch import ask, critic_loss, evaluate

from distrl.configs.algorithms import ArideConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.errors import PolicyError
from distrl.core.types import Sampling
from distrl.learner import losses
from distrl.learner.algorithms.aride import Q_SAMPLES, Aride
from distrl.learner.algorithms.bc import cloning_loss
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode


def objective(config: ArideConfig, **learner: Any) -> Aride:
    return Aride(config, LearnerConfig(**learner))


@pytest.fixture
def batch(toy, policy, load_images):
    trajectories = [
        toy.trajectory(
            "won",
            [
                toy.step(1, (1,), (-1.5,), image=1, repetition=-0.1),
                toy.step(1, (2, 3), (-2.0, -1.0), image=2, outcome=1.0),
            ],
        ),
        toy.trajectory("lost", [toy.step(2, (4,), (-2.5,), image=3, kind="invalid", invalid=-0.2)]),
        toy.trajectory("cut", [toy.step(3, (5,), (-1.9,), image=4)] * 3, truncated=True),
    ]
    episodes = [compile_episode(t, policy) for t in trajectories]
    return Batcher(policy, ImageCache(policy.image, load_images)).trajectories(episodes)


def warm(policy, critic):
    torch.manual_seed(3)
    torch.nn.init.normal_(policy.head.weight, std=0.3)
    return policy.double(), critic.double()


def test_advantage_is_retrace_of_outcome_with_v_plus_retrace_of_penalties_without(
    policy, critic, batch
) -> None:
    policy, critic = warm(policy, critic)
    algorithm = objective(ArideConfig(gamma=0.9, lam=0.8))
    with torch.no_grad():
        steps = batch.steps
        scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
        rho = losses.importance_ratios(scores.logprobs, steps.behaviour_logprobs, steps.token_mask).action
        estimates = algorithm.estimate(batch, ask(algorithm, policy, critic, batch), rho)
        returns, raw, v = estimates.returns, estimates.advantages, estimates.values.baseline
        v_final = critic.values(policy.states(batch.final_prompts), torch.tensor([2])).sigmoid()
    c = 0.8 * rho.clamp(max=1.0)
    delta_1 = 1.0 - v[1]
    delta_0 = 0.9 * v[1] - v[0]
    expected = delta_0 + 0.9 * c[1] * delta_1 - 0.1
    assert float(raw[0, 0]) == pytest.approx(float(expected), abs=1e-5)
    assert float(raw[1, 0]) == pytest.approx(float(-v[2] - 0.2), abs=1e-5)
    assert float(raw[2, 2]) == pytest.approx(float(0.9 * v_final - v[5]), abs=1e-5)
    assert float(returns.targets[1, 0]) == pytest.approx(float(v[2] - rho[2].clamp(max=1.0) * v[2]), abs=1e-5)
    result = evaluate(algorithm, policy, critic, batch)
    assert float(result.priorities[0, 0]) == pytest.approx(
        float((delta_0.abs() + delta_1.abs()) / 2), abs=1e-5
    )
    assert float(result.priorities[0, 1]) == pytest.approx(float(rho[:2].clamp(max=1.0).mean()), abs=1e-5)
    assert float(result.priorities[0, 2]) == pytest.approx(
        float(scores.entropy[0, 0] / 2 + scores.entropy[1, 0] / 2), abs=1e-5
    )


def test_the_critic_alone_learns_the_same_loss_when_the_policy_is_the_behaviour(
    policy, critic, batch
) -> None:
    steps = batch.steps
    scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    steps.behaviour_logprobs = torch.where(steps.token_mask, scores.logprobs.detach(), 0.0)
    algorithm = objective(ArideConfig())
    together = evaluate(algorithm, policy, critic, batch).critic_loss
    torch.testing.assert_close(critic_loss(algorithm, policy, critic, batch), together)


def test_cloning_raises_the_probability_of_what_was_shown(policy, batch) -> None:
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.5)
    before = float(cloning_loss(policy, batch.steps).detach())
    for _ in range(20):
        optimiser.zero_grad()
        cloning_loss(policy, batch.steps).backward()
        optimiser.step()
    assert float(cloning_loss(policy, batch.steps).detach()) < before / 2


@pytest.fixture
def q_critic():
    from linear_policy import LinearQCritic

    torch.manual_seed(1)
    return LinearQCritic()


def expected_values(policy, critic, batch, prompts, states, steps):
    """E_π Q by the same draws that the algorithm makes."""
    total = torch.zeros(len(steps), dtype=torch.float64)
    for _ in range(Q_SAMPLES):
        generated = policy.generate(prompts, [Sampling()] * len(steps))
        tokens = torch.tensor([one.token_ids for one in generated])
        total += critic.action_values(
            states, steps, tokens, torch.ones_like(tokens, dtype=torch.bool)
        ).sigmoid()
    return total / Q_SAMPLES


def test_an_action_value_critic_takes_munos_retrace(policy, q_critic, batch) -> None:
    policy, critic = warm(policy, q_critic)
    config = ArideConfig(critic="q", gamma=0.9, lam=0.8)
    steps = batch.steps
    with torch.no_grad():
        scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
        rho = losses.importance_ratios(scores.logprobs, steps.behaviour_logprobs, steps.token_mask).action
        torch.manual_seed(8)
        algorithm = objective(config)
        estimates = algorithm.estimate(batch, ask(algorithm, policy, critic, batch), rho)
        torch.manual_seed(8)
        e = expected_values(policy, critic, batch, steps.prompts, scores.states, batch.col)
        final = policy.states(batch.final_prompts)
        after = expected_values(policy, critic, batch, batch.final_prompts, final, batch.final_step)
        q = critic.action_values(scores.states, batch.col, steps.completions, steps.token_mask).sigmoid()
    torch.testing.assert_close(estimates.values.taken, q)
    torch.testing.assert_close(estimates.values.baseline, e)
    for row, at, tail in ((0, [0, 1], 0.0), (1, [2], 0.0), (2, [3, 4, 5], float(after))):
        rewards = batch.outcome[row, : len(at)].tolist()
        penalties = batch.penalty[row, : len(at)].tolist()
        ratios, zeros = rho[at].tolist(), [0.0] * len(at)
        a, target = slow_returns.retrace_q(rewards, q[at].tolist(), e[at].tolist(), tail, ratios, 0.9, 0.8)
        p, _ = slow_returns.retrace_q(penalties, zeros, zeros, 0.0, ratios, 0.9, 0.8)
        expected = [x + y for x, y in zip(a, p, strict=True)]
        assert estimates.advantages[row, : len(at)].tolist() == pytest.approx(expected, abs=1e-6)
        assert estimates.returns.targets[row, : len(at)].tolist() == pytest.approx(target, abs=1e-6)


def test_expectations_are_over_actions_as_long_and_as_hot_as_those_of_the_run(
    policy, q_critic, batch
) -> None:
    asked, generate = [], policy.generate
    batch.steps.temperature[:] = 0.5
    policy.generate = lambda prompts, sampling: asked.append(sampling) or generate(prompts, sampling)
    ask(objective(ArideConfig(critic="q"), max_new_tokens=7), policy, q_critic, batch)
    assert [len(sampling) for sampling in asked] == [6] * 4 + [1] * 4, (
        "of the steps, and of the state after the cut"
    )
    assert {(one.temperature, one.max_new_tokens) for sampling in asked for one in sampling} == {(0.5, 7)}


def numeric(function, tensor, eps=1e-6):
    """d function() / d tensor by central differences, entry by entry."""
    out = torch.zeros_like(tensor)
    with torch.no_grad():
        for index in np.ndindex(*tensor.shape):
            tensor[index] += eps
            up = function()
            tensor[index] -= 2 * eps
            out[index] = (up - function()) / (2 * eps)
            tensor[index] += eps
    return out


@pytest.mark.parametrize(
    "options",
    [
        {"critic": "q"},
        {"critic": "q", "ratio_level": "token"},
        {"policy_clip": 0.05, "policy_clip_high": 0.2},
        {"policy_clip": 0.05, "ratio_level": "token"},
    ],
)
def test_gradients_of_action_values_and_of_the_clip_are_those_of_a_slow_loss(
    policy, critic, q_critic, batch, options
) -> None:
    """What stands behind a stop-gradient is frozen: ratios, advantages, targets, the clip's decision."""
    policy, critic = warm(policy, q_critic if "critic" in options else critic)
    algorithm = objective(ArideConfig(entropy=0.2, invalid=0.3, rho_max=1.1, **options))
    config, steps = algorithm.config, batch.steps
    torch.manual_seed(8)
    result = evaluate(algorithm, policy, critic, batch)

    def scores():
        return policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)

    with torch.no_grad():
        before = scores()
        frozen = losses.importance_ratios(before.logprobs, steps.behaviour_logprobs, steps.token_mask)
        torch.manual_seed(8)
        estimates = algorithm.estimate(batch, ask(algorithm, policy, critic, batch), frozen.action)
    a = batch.flat(losses.normalise(estimates.advantages, batch.mask, config.advantage_std_floor)).tolist()
    targets = batch.flat(estimates.returns.targets).clamp(0.0, 1.0)
    lengths = steps.token_mask.sum(1).tolist()
    silenced = []

    def weight(rho: float, advantage: float) -> float:
        low = 1.0 - (config.policy_clip or 1.0)
        high = 1.0 + (config.policy_clip_high or config.policy_clip or float("inf"))
        beyond = rho > high if advantage > 0 else rho < low
        silenced.append(beyond)
        return 0.0 if beyond else min(rho, 1.1) * advantage

    def policy_loss() -> float:
        with torch.no_grad():
            now = scores()
        total = 0.0
        for n, length in enumerate(lengths):
            logp, rho = now.logprobs[n, :length].tolist(), float(frozen.action[n])
            if config.ratio_level == "action":
                total -= weight(rho, a[n]) * sum(logp)
            else:
                total -= sum(weight(float(frozen.token[n, j]), a[n]) * logp[j] for j in range(length))
            total -= 0.2 * float(now.entropy[n, :length].mean())
            total += 0.3 * float(batch.invalid[n]) * min(rho, 1.1) * sum(logp)
        return total / len(lengths)

    def critic_loss() -> float:
        last = batch.last
        with torch.no_grad():
            of = (before.states, batch.col)
            logits = critic.action_values(*of, steps.completions, steps.token_mask)
            ends = critic.trajectory_values(
                before.states[last], batch.col[last], steps.completions[last], steps.token_mask[last]
            )
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return float(bce(logits, targets) + 0.5 * bce(ends, batch.success.double()))

    assert float(result.policy_loss.detach()) == pytest.approx(policy_loss(), abs=1e-6)
    assert any(silenced) == (config.policy_clip is not None)
    (gradient,) = torch.autograd.grad(result.policy_loss, [policy.head.weight])
    torch.testing.assert_close(gradient, numeric(policy_loss, policy.head.weight), atol=1e-6, rtol=1e-4)
    if config.critic == "q":
        fitted = [tensor for name, tensor in critic.named_parameters() if not name.startswith("value")]
        assert float(result.critic_loss.detach()) == pytest.approx(critic_loss(), abs=1e-6)
        for tensor, found in zip(fitted, torch.autograd.grad(result.critic_loss, fitted), strict=True):
            torch.testing.assert_close(found, numeric(critic_loss, tensor), atol=1e-6, rtol=1e-4)


def test_a_critic_without_action_values_says_so(policy, critic, batch) -> None:
    with pytest.raises(PolicyError, match=r"learner\.algorithm\.critic"):
        evaluate(objective(ArideConfig(critic="q")), policy, critic, batch)
