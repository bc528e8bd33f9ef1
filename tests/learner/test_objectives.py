"""Every objective against its slow loop: the loss, its gradient by finite differences, the critic's alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import slow_objectives
import torch
from slow_objectives import Frozen
from whole_batch import ask, evaluate, prepare

from distrl.configs.learner import LearnerConfig
from distrl.learner import losses
from distrl.learner.algorithms import ALGORITHMS, build_algorithm

CASES = [
    ("aride", {"entropy": 0.2, "invalid": 0.3, "rho_max": 1.1}),
    ("aride", {"ratio_level": "token", "returns": "gae", "entropy_by_failure": True}),
    ("aride", {"returns": "mc", "failure_weight": 0.3}),
    ("aride", {"policy_clip": 0.05, "policy_clip_high": 0.2}),
    ("aride", {"policy_clip": 0.05, "ratio_level": "token"}),
    ("aride", {"correction": "none", "returns": "vtrace", "ratio_level": "token"}),
    ("aride", {"advantage_std_floor": None, "rho_max": 1e6, "failure_weight": 0.5}),
    ("ppo", {}),
    ("ppo", {"ratio_level": "token", "clip": 0.1, "clip_high": 0.3}),
    ("ppo", {"clip": 0.05, "dual_clip": 1.2, "lam": 0.5, "entropy": 0.2, "invalid": 0.4}),
    ("ppo", {"decoupled": True, "epochs": 2, "rho_max": 1.1}),
    ("ppo", {"decoupled": True, "minibatches": 2, "ratio_level": "token", "returns": "vtrace"}),
    ("gipo", {}),
    ("gipo", {"ratio_level": "action", "sigma": 0.2, "entropy_by_failure": True}),
    ("grpo", {}),
    ("grpo", {"per": "trajectory", "entropy": 0.1}),
    ("grpo", {"ratio_level": "action"}),
    ("grpo", {"ratio_level": "action", "per": "trajectory", "dual_clip": 1.1}),
    ("grpo", {"decoupled": True, "epochs": 3}),
    ("grpo", {"ratio_level": "sequence", "clip": 0.02, "clip_high": 0.05}),
    ("grpo", {"ratio_level": "sequence", "per": "trajectory", "clip": 0.02}),
    ("grpo", {"ratio_level": "sequence", "per": "trajectory", "decoupled": True, "epochs": 2}),
    ("grpo", {"per": "token"}),
    ("grpo", {"per": "token", "ratio_level": "sequence", "kl": 0.3}),
    ("grpo", {"kl": 0.4}),
    ("grpo", {"per": "trajectory", "ratio_level": "action", "kl": 0.2}),
    ("vtrace", {"rho_bar": 0.9, "c_bar": 1.2}),
    ("vtrace", {"lam": 0.8, "ratio_level": "token"}),
    ("digirl", {"top_fraction": 0.5}),
    ("digirl", {"top_fraction": 0.75, "lam": 0.9, "baseline": True, "step_threshold": -0.2, "gamma": 0.9}),
    ("bc", {}),
    ("bc", {"entropy": 0.3, "invalid": 0.2}),
    ("filtered-bc", {"entropy": 0.1}),
]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


def build(name: str, options: dict[str, object]):
    config = LearnerConfig.model_validate({"algorithm": {"kind": name, **options}})
    return build_algorithm(config)


@pytest.fixture
def batch(batch, policy, critic):
    torch.manual_seed(3)
    torch.nn.init.normal_(policy.head.weight, std=0.5)
    policy.double()
    critic.double()
    batch.group_mean = torch.tensor([0.4, 0.4, 0.4, 1.0])
    batch.group_std = torch.tensor([0.5, 0.5, 0.3, 0.0])
    batch.group_count = torch.tensor([2, 2, 5, 3])
    return batch


def score(policy, batch):
    s = batch.steps
    return policy.score(s.prompts, s.completions, s.token_mask, s.temperature)


def rows_of(values, mask) -> list[list[float]]:
    return [
        [float(x) for x, real in zip(row, keep, strict=True) if real]
        for row, keep in zip(values, mask, strict=True)
    ]


def freeze(name, policy, critic, batch) -> Frozen:
    mask, steps = batch.steps.token_mask, batch.steps
    with torch.no_grad():
        scores = score(policy, batch)
        value = critic.values(scores.states, batch.col).sigmoid()
        after = torch.zeros(4, dtype=torch.float64)
        final = policy.states(batch.final_prompts)
        after[batch.final_row] = critic.values(final, batch.final_step).sigmoid()
        p_traj = trajectory_probabilities(name, critic, batch, scores.states)
    proximal = steps.proximal_logprobs if steps.proximal_logprobs is not None else scores.logprobs
    reference = steps.reference_logprobs
    return Frozen(
        pi=rows_of(scores.logprobs, mask),
        mu=rows_of(steps.behaviour_logprobs, mask),
        proximal=rows_of(proximal, mask),
        row=batch.row.tolist(),
        outcome=batch.flat(batch.outcome).tolist(),
        penalty=batch.flat(batch.penalty).tolist(),
        invalid=batch.invalid.tolist(),
        value=value.tolist(),
        after=after.tolist(),
        success=batch.success.tolist(),
        v_traj=p_traj.tolist(),
        reference=None if reference is None else rows_of(reference, mask),
        group=list(
            zip(batch.group_mean.tolist(), batch.group_std.tolist(), batch.group_count.tolist(), strict=True)
        ),
    )


def trajectory_probabilities(name, critic, batch, states):
    steps = batch.steps
    if name == "digirl":
        at = torch.tensor([0, 2, 3, 6])
        tokens, mask = torch.zeros_like(steps.completions[at]), torch.zeros_like(steps.token_mask[at])
    else:
        at = batch.last
        tokens, mask = steps.completions[at], steps.token_mask[at]
    return critic.trajectory_values(states[at], batch.col[at], tokens, mask).sigmoid()


def derivative(function, tensor, eps=1e-6):
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


def move_away(policy) -> None:
    """So that the policy is neither the behaviour nor the proximal policy."""
    with torch.no_grad():
        policy.head.weight.add_(0.3 * torch.sin(torch.arange(64.0).view(8, 8)))


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_losses_and_gradients_are_those_of_the_slow_loop(name, options, policy, critic, batch) -> None:
    algorithm = build(name, options)
    over = None
    if name == "ppo" and algorithm.epochs * algorithm.minibatches > 1:  # normalised as before the first step
        before = freeze(name, policy, critic, batch)
        over = slow_objectives.moments(
            slow_objectives.advantages(before, algorithm.config, algorithm.config.returns)[0]
        )
    prepare(algorithm, policy, critic, batch)
    move_away(policy)
    result = evaluate(algorithm, policy, critic, batch)
    frozen, mask = replace(freeze(name, policy, critic, batch), moments=over), batch.steps.token_mask

    def slow() -> float:
        with torch.no_grad():
            scores = score(policy, batch)
        return slow_objectives.LOSSES[name](
            frozen, algorithm.config, rows_of(scores.logprobs, mask), rows_of(scores.entropy, mask)
        )

    assert float(result.policy_loss.detach()) == pytest.approx(slow(), abs=1e-6)
    weight = policy.head.weight
    (gradient,) = torch.autograd.grad(result.policy_loss, [weight])
    assert float(gradient.abs().sum()) > 1e-3
    torch.testing.assert_close(gradient, derivative(slow, weight), atol=2e-7, rtol=1e-4)


WITH_CRITIC = [(name, options) for name, options in CASES if name not in ("grpo", "bc", "filtered-bc")]


@pytest.mark.parametrize(("name", "options"), WITH_CRITIC)
def test_the_critics_loss_and_gradients_are_those_of_the_slow_loop(
    name, options, policy, critic, batch
) -> None:
    algorithm = build(name, options)
    prepare(algorithm, policy, critic, batch)
    move_away(policy)
    result = evaluate(algorithm, policy, critic, batch)
    frozen = freeze(name, policy, critic, batch)
    returns = {"vtrace": "vtrace", "digirl": "mc"}.get(name) or algorithm.config.returns
    if getattr(algorithm.config, "correction", "") == "none":
        frozen = replace(frozen, mu=frozen.pi)
    _, targets = slow_objectives.advantages(frozen, algorithm.config, returns)

    def slow() -> float:
        with torch.no_grad():
            states = score(policy, batch).states
            p = critic.values(states, batch.col).sigmoid().tolist()
            p_traj = trajectory_probabilities(name, critic, batch, states).tolist()
        return slow_objectives.critic(frozen, algorithm.config, targets, p, p_traj)

    assert float(result.critic_loss.detach()) == pytest.approx(slow(), abs=1e-6)
    parameters = list(critic.parameters())
    gradients = torch.autograd.grad(result.critic_loss, [*parameters, policy.head.weight], allow_unused=True)
    assert gradients[-1] is None, "the critic's loss reaches the policy"
    for gradient, parameter in zip(gradients, parameters, strict=False):
        torch.testing.assert_close(gradient, derivative(slow, parameter), atol=2e-7, rtol=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_the_policy_gets_the_policy_losss_gradient(name, policy, critic, batch) -> None:
    algorithm = build(name, {})
    result = evaluate(algorithm, policy, critic, batch)
    assert (result.critic_loss is not None) == algorithm.has_critic
    gradients = torch.autograd.grad(
        result.policy_loss, [policy.head.weight, *critic.parameters()], allow_unused=True
    )
    assert gradients[0].abs().sum() > 0
    assert all(gradient is None for gradient in gradients[1:])
    assert not result.priorities.requires_grad
    rho = losses.importance_ratios(
        score(policy, batch).logprobs, batch.steps.behaviour_logprobs, batch.steps.token_mask
    )
    torch.testing.assert_close(result.priorities[:, 1], batch.row_mean(rho.action.clamp(max=1.0)))
    assert bool(result.priorities.isfinite().all())
    if algorithm.has_critic:
        errors = algorithm.estimate(
            batch, ask(algorithm, policy, critic, batch), rho.action
        ).returns.td_errors.abs()
        torch.testing.assert_close(result.priorities[:, 0], errors.sum(1) / batch.mask.sum(1))
        config = LearnerConfig.model_validate({"algorithm": {"kind": name}, "replay": {"td_error": "max"}})
        peaks = evaluate(build_algorithm(config), policy, critic, batch).priorities[:, 0]
        torch.testing.assert_close(peaks, errors.amax(1))
    assert all(np.isfinite(value) for value in result.metrics.values())


def test_groups_that_tell_nothing_apart_give_no_gradient_and_are_counted(policy, critic, batch) -> None:
    batch.group_std = torch.tensor([0.0, 0.0, 0.0, 0.0])
    result = evaluate(build("grpo", {"entropy": 0.0, "invalid": 0.0}), policy, critic, batch)
    (gradient,) = torch.autograd.grad(result.policy_loss, [policy.head.weight])
    assert not gradient.any()
    assert result.metrics["batch/without_spread"] == 1.0
    batch.group_std, batch.group_count = torch.full((4,), 0.5), torch.tensor([1, 2, 3, 4])
    result = evaluate(build("grpo", {}), policy, critic, batch)
    assert result.metrics["batch/without_spread"] == 0.25


def test_values_as_they_were_are_used_when_recomputation_is_off(policy, critic, batch) -> None:
    config = LearnerConfig.model_validate({"algorithm": "ppo", "value_recompute": False})
    kept, fresh = build_algorithm(config), build("ppo", {})
    now = fresh.estimate(batch, ask(fresh, policy, critic, batch), torch.ones(7, dtype=torch.float64))
    batch.old_values, batch.old_bootstrap = now.values.baseline, now.values.bootstrap
    before = evaluate(fresh, policy, critic, batch)
    torch.testing.assert_close(evaluate(kept, policy, critic, batch).policy_loss, before.policy_loss)
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.add_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
    after = evaluate(kept, policy, critic, batch)
    torch.testing.assert_close(after.policy_loss, before.policy_loss)
    assert float((after.critic_loss - before.critic_loss).abs().detach()) > 1e-3, (
        "the newest critic is what is fitted"
    )
    moved = evaluate(fresh, policy, critic, batch)
    assert float((moved.policy_loss - before.policy_loss).abs().detach()) > 1e-4


MASK = torch.tensor([[True, True], [True, False], [True, True]])


def test_the_advantages_that_digirl_shows_are_those_that_it_compares(policy, critic, batch) -> None:
    algorithm = build("digirl", {"top_fraction": 1.0})
    prepare(algorithm, policy, critic, batch)
    result = evaluate(algorithm, policy, critic, batch)
    shown = result.steps.columns["advantage"] > algorithm.config.step_threshold
    assert float(shown.double().mean()) == pytest.approx(result.metrics["batch/kept_fraction"])


def test_ratios_sum_over_tokens_and_clamp() -> None:
    logp = torch.tensor([[-1.0, -2.0], [-1.0, 99.0], [-50.0, -1.0]], requires_grad=True)
    behaviour = torch.tensor([[-1.5, -2.5], [-1.0, 0.0], [-1.0, -1.0]])
    ratios = losses.importance_ratios(logp, behaviour, MASK)
    torch.testing.assert_close(ratios.action, torch.tensor([1.0, 0.0, -20.0]).exp())
    torch.testing.assert_close(ratios.token[0], torch.tensor([0.5, 0.5]).exp())
    assert ratios.token[1, 1] == 1.0
    (gradient,) = torch.autograd.grad(losses.ratio(logp, behaviour, MASK, "action").sum(), logp)
    assert gradient[0].all()
    assert not gradient[2].any(), "a clamped ratio has no gradient"


def test_normalise_centres_and_respects_the_floor_and_padding() -> None:
    a = torch.tensor([[1.0, 3.0], [5.0, 99.0]])
    mask = torch.tensor([[True, True], [True, False]])
    std = (8 / 3) ** 0.5
    expected = torch.tensor([[-2 / std, 0.0], [2 / std, 0.0]])

    def normal(a, mask, floor):
        return losses.normalise(a, mask, floor, losses.moments(a, mask))

    torch.testing.assert_close(normal(a, mask, 0.1), expected)
    small = normal(a * 1e-3, mask, 0.1)
    torch.testing.assert_close(small, torch.tensor([[-0.02, 0.0], [0.02, 0.0]]))
    assert not normal(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.0).isnan().any()
