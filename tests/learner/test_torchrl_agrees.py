"""Returns and objectives against torchrl's, which others wrote: the same numbers, the same gradients."""

from __future__ import annotations

import pytest
import torch

from distrl.learner import returns
from distrl.learner.returns import Rollout

pytestmark = pytest.mark.needs("torchrl")
LENGTHS, TERMINATED = (6, 1, 4), (True, False, False)


@pytest.fixture
def rollout() -> Rollout:
    torch.manual_seed(7)
    shape = (len(LENGTHS), max(LENGTHS))
    return Rollout(
        rewards=torch.randn(shape, dtype=torch.float64),
        values=torch.randn(shape, dtype=torch.float64),
        bootstrap=torch.randn(shape[0], dtype=torch.float64),
        terminated=torch.tensor(TERMINATED),
        mask=torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None],
    )


@pytest.fixture
def ratios(rollout: Rollout) -> torch.Tensor:
    return torch.randn(rollout.mask.shape, dtype=torch.float64).exp()


def rows(rollout: Rollout):
    """Per trajectory: its place, its length, and what torchrl's functions have in common."""
    for row, length in enumerate(LENGTHS):
        value = rollout.values[row, :length, None]
        done = torch.zeros(length, 1, dtype=torch.bool)
        done[-1] = True
        terminated = done & rollout.terminated[row]
        after = rollout.bootstrap[row].view(1, 1) * ~terminated[-1:]
        yield (
            row,
            length,
            {
                "next_state_value": torch.cat([value[1:], after]),
                "reward": rollout.rewards[row, :length, None],
                "done": done,
                "terminated": terminated,
            },
        )


def test_gae(rollout: Rollout) -> None:
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    # Its recursion runs in float32.
    found = returns.gae(rollout, 0.9, 0.8)
    for row, length, common in rows(rollout):
        value = rollout.values[row, :length, None]
        advantage, target = generalized_advantage_estimate(0.9, 0.8, state_value=value, **common)
        torch.testing.assert_close(found.advantages[row, :length], advantage[:, 0], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(found.targets[row, :length], target[:, 0], atol=1e-6, rtol=1e-6)


def test_vtrace_and_retrace(rollout: Rollout, ratios: torch.Tensor) -> None:
    """torchrl's V-trace has no λ, and the ratio in its advantage. Retrace is V-trace where λ and ρ̄ are 1."""
    from torchrl.objectives.value.functional import vtrace_advantage_estimate

    for rho_bar, c_bar, found in (
        (1.3, 0.8, returns.vtrace(rollout, ratios, 0.9, 1.0, 1.3, 0.8)),
        (1.0, 1.0, returns.retrace(rollout, ratios, 0.9, 1.0)),
    ):
        for row, length, common in rows(rollout):
            rho, value = ratios[row, :length, None], rollout.values[row, :length, None]
            advantage, target = vtrace_advantage_estimate(
                0.9, rho.log(), 0.0 * rho, value, **common, rho_thresh=rho_bar, c_thresh=c_bar
            )
            torch.testing.assert_close(found.targets[row, :length], target[:, 0])
            weighed = found.advantages[row, :length] * rho[:, 0].clamp(max=rho_bar)
            torch.testing.assert_close(weighed, advantage[:, 0])
