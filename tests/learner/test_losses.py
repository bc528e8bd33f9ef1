"""Loss terms: their gradients against finite differences of what they claim to be."""

from __future__ import annotations

import torch

from distrl.learner import losses

MASK = torch.tensor([[True, True], [True, False], [True, True]])


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
    torch.testing.assert_close(losses.normalise(a, mask, 0.1), expected)
    small = losses.normalise(a * 1e-3, mask, 0.1)
    torch.testing.assert_close(small, torch.tensor([[-0.02, 0.0], [0.02, 0.0]]))
    assert not losses.normalise(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.0).isnan().any()
