"""Returns against slow NumPy loops that follow the equations line by line, and their limiting cases."""

from __future__ import annotations

import numpy as np
import pytest
import slow_returns
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.learner import returns
from distrl.learner.returns import Rollout


def make_rollout(seed: int, lengths: list[int], terminated: list[bool]) -> tuple[Rollout, torch.Tensor]:
    rng = np.random.default_rng(seed)
    size = max([*lengths, 1])
    mask = np.arange(size)[None, :] < np.array(lengths)[:, None]

    def draw(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.normal(size=shape))

    shape = mask.shape
    rollout = Rollout(
        rewards=draw(*shape),
        values=draw(*shape),
        bootstrap=draw(shape[0]),
        terminated=torch.tensor(terminated),
        mask=torch.tensor(mask),
    )
    return rollout, torch.tensor(np.exp(rng.normal(size=shape)))


CASES = st.tuples(
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=4),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)


def test_all_padding_and_no_steps_give_zeros() -> None:
    rollout, ratios = make_rollout(1, [0, 0], [True, False])
    assert not returns.retrace(rollout, ratios, 0.9, 0.9).advantages.any()
    empty = torch.zeros(2, 0)
    mask = torch.zeros(2, 0, dtype=torch.bool)
    nothing = Rollout(empty, empty, torch.zeros(2), torch.zeros(2, dtype=torch.bool), mask)
    assert returns.gae(nothing, 0.9, 0.9).advantages.shape == (2, 0)


def rows(rollout: Rollout, *grids: torch.Tensor):
    """Per trajectory: its length, the value after its end, and its entries of `grids` as lists."""
    for row in range(rollout.mask.shape[0]):
        length = int(rollout.mask[row].sum())
        after = 0.0 if bool(rollout.terminated[row]) else float(rollout.bootstrap[row])
        yield row, length, after, [grid[row, :length].tolist() for grid in grids]


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_every_return_follows_its_sum(case) -> None:
    seed, sizes, gamma, lam = case
    rollout, ratios = make_rollout(seed, [r[0] for r in sizes], [r[1] for r in sizes])
    found = {name: compute(rollout, ratios, gamma, lam) for name, compute in returns.RETURNS.items()}
    for row, length, after, (r, v, rho) in rows(rollout, rollout.rewards, rollout.values, ratios):
        for name, slow in slow_returns.RETURNS.items():
            a, target = slow(r, v, after, rho, gamma, lam)
            np.testing.assert_allclose(found[name].advantages[row, :length], a, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(found[name].targets[row, :length], target, atol=1e-9, err_msg=name)
    for result in found.values():
        assert not result.advantages[~rollout.mask].any()
        assert not result.targets[~rollout.mask].any()


def test_ratios_of_padding_do_not_matter() -> None:
    rollout, ratios = make_rollout(4, [5, 2, 0, 3], [True, False, True, False])
    spoilt = torch.where(rollout.mask, ratios, torch.nan)
    for name, compute in returns.RETURNS.items():
        one, other = (compute(rollout, each, 0.9, 0.8) for each in (ratios, spoilt))
        assert torch.equal(one.advantages, other.advantages), name
        assert torch.equal(one.targets, other.targets), name
    expected = torch.zeros_like(ratios)
    one, other = (returns.retrace_q(rollout, expected, each, 0.9, 0.8) for each in (ratios, spoilt))
    assert torch.equal(one.advantages, other.advantages)


@settings(max_examples=40, deadline=None)
@given(CASES, st.floats(0.2, 3.0), st.floats(0.2, 3.0))
def test_vtraces_thresholds(case, rho_bar, c_bar) -> None:
    seed, sizes, gamma, lam = case
    rollout, ratios = make_rollout(seed, [r[0] for r in sizes], [r[1] for r in sizes])
    found = returns.vtrace(rollout, ratios, gamma, lam, rho_bar, c_bar)
    for row, length, after, (r, v, rho) in rows(rollout, rollout.rewards, rollout.values, ratios):
        a, target = slow_returns.vtrace(r, v, after, rho, gamma, lam, rho_bar, c_bar)
        np.testing.assert_allclose(found.advantages[row, :length], a, atol=1e-9)
        np.testing.assert_allclose(found.targets[row, :length], target, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_retrace_of_action_values_follows_its_sum(case) -> None:
    seed, sizes, gamma, lam = case
    rollout, ratios = make_rollout(seed, [r[0] for r in sizes], [r[1] for r in sizes])
    expected = torch.tensor(np.random.default_rng(seed + 1).normal(size=tuple(ratios.shape)))
    found = returns.retrace_q(rollout, expected, ratios, gamma, lam)
    for row, length, after, (r, q, e, rho) in rows(
        rollout, rollout.rewards, rollout.values, expected, ratios
    ):
        a, target = slow_returns.retrace_q(r, q, e, after, rho, gamma, lam)
        np.testing.assert_allclose(found.advantages[row, :length], a, atol=1e-9)
        np.testing.assert_allclose(found.targets[row, :length], target, atol=1e-9)
    assert not found.advantages[~rollout.mask].any()
    assert not found.targets[~rollout.mask].any()


def test_vtrace_has_the_targets_of_retrace_and_its_advantages_at_lambda_one_only() -> None:
    rollout, ratios = make_rollout(3, [5, 2, 4], [True, False, False])
    for lam in (1.0, 0.7):
        one, other = (find(rollout, ratios, 0.9, lam) for find in (returns.retrace, returns.vtrace))
        np.testing.assert_allclose(one.targets, other.targets, atol=1e-12)
        assert torch.allclose(one.advantages, other.advantages) == (lam == 1.0)


def test_group_relative_advantages() -> None:
    """By the formula; groups of one, or without spread but for rounding, say nothing."""
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.7, 0.0])
    mean, std = torch.tensor([0.25, 0.25, 0.5, 0.7, 0.0]), torch.tensor([0.433, 0.433, 6e-9, 0.2, 0.0])
    count = torch.tensor([4, 4, 8, 1, 1])
    found = returns.group_relative(rewards, mean, std, count, 1e-6)
    assert found.tolist() == pytest.approx([0.75 / 0.433001, -0.25 / 0.433001, 0.0, 0.0, 0.0], abs=1e-6)
    assert returns.has_spread(std, count, 1e-6).tolist() == [True, True, False, False, False]
