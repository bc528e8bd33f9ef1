"""A-RIDE with a critic of actions, the critic's warm-up, and cloning."""

from __future__ import annotations

from typing import Any

import pytest
import slow_returns
import torch
from whole_batch import ask, critic_loss, evaluate

from distrl.configs.algorithms import ArideConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.errors import PolicyError
from distrl.core.types import Sampling
from distrl.learner import losses
from distrl.learner.algorithms.aride import Q_SAMPLES, Aride


def objective(config: ArideConfig, **learner: Any) -> Aride:
    return Aride(config, LearnerConfig(**learner))


def warm(policy, critic):
    torch.manual_seed(3)
    torch.nn.init.normal_(policy.head.weight, std=0.3)
    return policy.double(), critic.double()


def test_the_critic_alone_learns_the_same_loss_when_the_policy_is_the_behaviour(
    policy, critic, batch
) -> None:
    steps = batch.steps
    scores = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)
    steps.behaviour_logprobs = torch.where(steps.token_mask, scores.logprobs.detach(), 0.0)
    algorithm = objective(ArideConfig())
    together = evaluate(algorithm, policy, critic, batch).critic_loss
    torch.testing.assert_close(critic_loss(algorithm, policy, critic, batch), together)


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
    for row, at, tail in ((0, [0, 1], 0.0), (1, [2], 0.0), (2, [3, 4, 5], float(after)), (3, [6], 0.0)):
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
    assert [len(sampling) for sampling in asked] == [7] * 4 + [1] * 4, (
        "of the steps, and of the state after the cut"
    )
    assert {(one.temperature, one.max_new_tokens) for sampling in asked for one in sampling} == {(0.5, 7)}


def test_the_critic_is_fitted_to_the_returns_of_actions(policy, q_critic, batch) -> None:
    policy, critic = warm(policy, q_critic)
    algorithm, steps = objective(ArideConfig(critic="q")), batch.steps
    torch.manual_seed(8)
    outputs = ask(algorithm, policy, critic, batch)
    result = algorithm.loss(batch, outputs)
    with torch.no_grad():
        states = policy.states(steps.prompts)
        rho = losses.importance_ratios(outputs.logprobs, steps.behaviour_logprobs, steps.token_mask).action
        targets = batch.flat(algorithm.estimate(batch, outputs, rho).returns.targets).clamp(0.0, 1.0)
    bce, last = torch.nn.functional.binary_cross_entropy_with_logits, batch.last
    q = critic.action_values(states, batch.col, steps.completions, steps.token_mask)
    ends = critic.trajectory_values(
        states[last], batch.col[last], steps.completions[last], steps.token_mask[last]
    )
    loss = bce(q, targets) + 0.5 * bce(ends, batch.success.double())
    torch.testing.assert_close(result.critic_loss, loss)
    fitted = [tensor for name, tensor in critic.named_parameters() if not name.startswith("value")]
    for mine, other in zip(
        *(torch.autograd.grad(x, fitted) for x in (result.critic_loss, loss)), strict=True
    ):
        torch.testing.assert_close(mine, other)


def test_a_critic_without_action_values_says_so(policy, critic, batch) -> None:
    with pytest.raises(PolicyError, match=r"learner\.algorithm\.critic"):
        evaluate(objective(ArideConfig(critic="q")), policy, critic, batch)
