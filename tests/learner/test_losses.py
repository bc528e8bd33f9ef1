"""Loss terms: their gradients against finite differences of what they claim to be."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.learner import losses
from distrl.learner.algorithms import gipo

MASK = torch.tensor([[True, True], [True, False], [True, True]])


@pytest.mark.parametrize("level", ["action", "token"])
def test_policy_gradient_is_minus_rho_a_grad_log_pi(level) -> None:
    torch.manual_seed(0)
    theta = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    logp = -theta.square()
    behaviour = torch.randn(3, 2, dtype=torch.float64)
    a = torch.tensor([1.0, -2.0, 0.5]).double()
    ratios = losses.importance_ratios(logp, behaviour, MASK)
    (grad,) = torch.autograd.grad(
        losses.policy_gradient(logp, MASK, a, ratios.at(level), rho_max=1.5).sum(), theta
    )
    expected = torch.zeros_like(theta)
    for n in range(3):
        for token in range(2):
            if MASK[n, token]:
                rho = ratios.action[n] if level == "action" else ratios.token[n, token]
                expected[n, token] = -min(float(rho), 1.5) * a[n] * (-2 * theta[n, token].detach())
    torch.testing.assert_close(grad, expected)


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


def test_clip_silences_what_already_moved_far_enough() -> None:
    logp = torch.tensor([[0.5, 0.0], [-0.5, 0.0], [0.5, 0.0]], requires_grad=True)
    rho = losses.importance_ratios(logp, torch.zeros(3, 2), MASK).action
    a = torch.tensor([1.0, -1.0, -1.0])
    for clip_high, silenced in ((None, [True, True, False]), (1.0, [False, True, False])):
        loss = losses.policy_gradient(logp, MASK, a, rho, 5.0, 0.2, clip_high).sum()
        (grad,) = torch.autograd.grad(loss, logp)
        assert (grad.abs().sum(1) == 0).tolist() == silenced


def test_critic_bce_is_minimal_at_the_target_and_takes_soft_targets() -> None:
    targets = torch.tensor([0.3, 1.7, -2.0], dtype=torch.float64)
    logits = torch.tensor([0.1, 0.2, -0.4], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(losses.critic_bce(logits, targets, 3), logits)
    torch.testing.assert_close(grad, (logits.detach().sigmoid() - targets.clamp(0, 1)) / 3)


def test_normalise_centres_and_respects_the_floor_and_padding() -> None:
    a = torch.tensor([[1.0, 3.0], [5.0, 99.0]])
    mask = torch.tensor([[True, True], [True, False]])
    std = (8 / 3) ** 0.5
    expected = torch.tensor([[-2 / std, 0.0], [2 / std, 0.0]])
    torch.testing.assert_close(losses.normalise(a, mask, 0.1), expected)
    small = losses.normalise(a * 1e-3, mask, 0.1)
    torch.testing.assert_close(small, torch.tensor([[-0.02, 0.0], [0.02, 0.0]]))
    assert not losses.normalise(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.0).isnan().any()


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
