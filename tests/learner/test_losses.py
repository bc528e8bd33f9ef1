"""Loss terms: their gradients against finite differences of what they claim to be."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.learner import losses
from distrl.learner.algorithms import gipo

MASK = torch.tensor([[True, True], [True, False], [True, True]])


def ratios_of(logprobs, behaviour, clamp=20.0):
    return losses.importance_ratios(logprobs, behaviour, MASK, clamp)


def test_ratios_sum_over_tokens_and_clamp() -> None:
    logp = torch.tensor([[-1.0, -2.0], [-1.0, 99.0], [-50.0, -1.0]])
    behaviour = torch.tensor([[-1.5, -2.5], [-1.0, 0.0], [-1.0, -1.0]])
    ratios = ratios_of(logp, behaviour)
    torch.testing.assert_close(ratios.action, torch.tensor([1.0, 0.0, -20.0]).exp())
    torch.testing.assert_close(ratios.token[0], torch.tensor([0.5, 0.5]).exp())
    assert ratios.token[1, 1] == 1.0
    assert ratios.clamped_at("action").tolist() == [False, False, True]
    assert ratios.clamped_at("token").tolist() == [[False, False], [False, False], [True, False]]


@pytest.mark.parametrize("level", ["action", "token"])
def test_policy_gradient_is_minus_rho_a_grad_log_pi(level) -> None:
    torch.manual_seed(0)
    theta = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    logp = -theta.square()
    behaviour = torch.randn(3, 2, dtype=torch.float64)
    a, w = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([1.0, 0.5, 2.0]).double()
    ratios = ratios_of(logp, behaviour)
    loss = losses.policy_gradient(logp, MASK, a, ratios, w, rho_max=1.5, level=level)
    (grad,) = torch.autograd.grad(loss, theta)
    expected = torch.zeros_like(theta)
    for n in range(3):
        for token in range(2):
            if MASK[n, token]:
                rho = ratios.action[n] if level == "action" else ratios.token[n, token]
                rho = min(float(rho), 1.5)
                expected[n, token] = -w[n] * rho * a[n] * (-2 * theta[n, token].detach()) / 3
    torch.testing.assert_close(grad, expected)


def test_clip_silences_what_already_moved_far_enough() -> None:
    logp = torch.tensor([[0.5, 0.0], [-0.5, 0.0], [0.5, 0.0]], requires_grad=True)
    ratios = ratios_of(logp, torch.zeros(3, 2))
    a = torch.tensor([1.0, -1.0, -1.0])
    loss = losses.policy_gradient(logp, MASK, a, ratios, torch.ones(3), 5.0, clip=0.2)
    (grad,) = torch.autograd.grad(loss, logp)
    assert grad[0].abs().sum() == 0
    assert grad[1].abs().sum() == 0
    assert grad[2].abs().sum() > 0
    loss = losses.policy_gradient(logp, MASK, a, ratios, torch.ones(3), 5.0, clip=0.2, clip_high=1.0)
    (grad,) = torch.autograd.grad(loss, logp)
    assert grad[0].abs().sum() > 0, "ratio e^0.5 is within 1 + 1.0"
    assert grad[1].abs().sum() == 0, "the lower end stays"


def test_on_policy_validity_gradient_is_that_of_the_probability_of_invalid_actions() -> None:
    """E_π[invalid(a) ∇ log π(a)] = ∇ Σ_a invalid(a) π(a), here by enumerating the actions exactly."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    invalid = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad((logits.softmax(0) * invalid).sum(), logits)
    logp = logits.log_softmax(0)[:, None]
    mask = torch.ones(3, 1, dtype=torch.bool)
    ratios = losses.importance_ratios(logp, logp.detach(), mask, 20.0)
    probability = logits.detach().softmax(0)
    loss = 3 * losses.validity(logp, mask, invalid, ratios, probability, 5.0)
    (grad,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(grad, expected)


def test_critic_bce_is_minimal_at_the_target_and_takes_soft_targets() -> None:
    targets = torch.tensor([0.3, 1.7, -2.0], dtype=torch.float64)
    clipped = targets.clamp(0, 1)
    logits = torch.tensor([0.1, 0.2, -0.4], dtype=torch.float64, requires_grad=True)
    loss = losses.critic_bce(logits, targets, torch.ones(3, dtype=torch.float64))
    (grad,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(grad, (logits.detach().sigmoid() - clipped) / 3)


def test_normalise_centres_and_respects_the_floor_and_padding() -> None:
    a = torch.tensor([[1.0, 3.0], [5.0, 99.0]])
    mask = torch.tensor([[True, True], [True, False]])
    out = losses.normalise(a, mask, 0.1)
    std = (8 / 3) ** 0.5
    torch.testing.assert_close(out, torch.tensor([[-2 / std, 0.0], [2 / std, 0.0]]))
    kept = losses.normalise(a, mask, 0.1, centre=False)
    torch.testing.assert_close(kept, torch.tensor([[1 / std, 3 / std], [5 / std, 0.0]]))
    small = losses.normalise(a * 1e-3, mask, 0.1)
    torch.testing.assert_close(small, torch.tensor([[-0.02, 0.0], [0.02, 0.0]]))
    assert not losses.normalise(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.0).isnan().any()


def float64(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("level", ["action", "token"])
def test_surrogates_pass_gradcheck(level) -> None:
    """As functions of log π; what stands behind a stop-gradient (weights, trust) is frozen."""
    torch.manual_seed(2)
    logp, behaviour = float64(3, 2), torch.randn(3, 2, dtype=torch.float64)
    a, w = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([1.0, 0.5, 2.0]).double()

    def ratios(x):
        return losses.surrogate_ratios(x, behaviour, MASK, 20.0, level)

    def clipped(x):
        r = ratios(x)
        return losses.mean_over_steps(
            losses.clipped_surrogate(r, losses.per_action(a, r), 0.2, 0.4, 2.0), MASK, w
        )

    def damped(x):
        r = ratios(x)
        return losses.mean_over_steps(trust * r * losses.per_action(a, r), MASK, w)

    trust = gipo.trust(ratios(logp), 0.5)
    frozen = ratios_of(logp, behaviour)
    assert torch.autograd.gradcheck(clipped, logp)
    assert torch.autograd.gradcheck(damped, logp)
    assert torch.autograd.gradcheck(
        lambda x: losses.policy_gradient(x, MASK, a, frozen, w, 1.2, level, 0.3, 0.5), logp
    )
    (gradient,) = torch.autograd.grad(damped(logp), logp)
    r = ratios(logp)
    objective = gipo.gaussian_surrogate(r, losses.per_action(a, r), 0.5)
    (whole,) = torch.autograd.grad(losses.mean_over_steps(objective, MASK, w), logp)
    torch.testing.assert_close(whole, gradient)


def test_the_other_terms_pass_gradcheck() -> None:
    torch.manual_seed(3)
    x, v = float64(3, 2), float64(3)
    w, invalid = torch.tensor([1.0, 0.5, 2.0]).double(), torch.tensor([1.0, 0.0, 1.0]).double()
    frozen = ratios_of(x, torch.zeros(3, 2, dtype=torch.float64))
    targets = torch.tensor([0.2, 0.9, 1.4]).double()
    for function, argument in (
        (lambda t: losses.action_entropy(t, MASK), x),
        (lambda t: losses.validity(t, MASK, invalid, frozen, w, 1.5), x),
        (lambda t: losses.critic_bce(t, targets, w), v),
        (lambda t: losses.cloning(t, MASK), x),
        (lambda t: losses.weighted_cloning(t, MASK, w), x),
    ):
        assert torch.autograd.gradcheck(function, argument)


def test_the_clip_by_cases() -> None:
    r = torch.tensor([1.5, 0.5, 1.5, 0.5, 4.0])
    a = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    found = losses.clipped_surrogate(r, a, 0.2, 0.28)
    torch.testing.assert_close(found, torch.tensor([1.28, 0.5, -1.5, -0.8, -4.0]))
    dual = losses.clipped_surrogate(r, a, 0.2, 0.28, dual_clip=3.0)
    torch.testing.assert_close(dual, torch.tensor([1.28, 0.5, -1.5, -0.8, -3.0]))


def test_trust_is_one_on_policy_and_symmetric_in_the_log_ratio() -> None:
    w = gipo.trust(torch.tensor([1.0, 2.0, 0.5]), 0.5)
    torch.testing.assert_close(
        w, torch.exp(-0.5 * torch.tensor([0.0, 2.0, 2.0]).mul(0.6931471805599453).square())
    )


def test_a_clamped_ratio_has_no_gradient() -> None:
    logp = torch.tensor([[30.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True]])
    r = losses.surrogate_ratios(logp, torch.zeros(1, 2), mask, 20.0, "action")
    assert float(r.detach()) == pytest.approx(float(torch.tensor(20.0).exp()))
    (gradient,) = torch.autograd.grad(r.sum(), logp)
    assert not gradient.any()
