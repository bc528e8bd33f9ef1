"""Moments that are merged are those of everything, however it was split."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distrl.core.moments import Moments


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_merged_parts_have_the_moments_of_the_whole(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(1e3, 2.0, (size, 3)) * [1.0, 5.0, 0.0] for size in sizes]
    merged = Moments.empty(3)
    for part in parts:
        merged.merge(Moments.of(part))
    whole = np.concatenate(parts)
    assert merged.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(merged.mean, whole.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(merged.m2 / merged.count, whole.var(axis=0), rtol=1e-9, atol=1e-9)


def test_nothing_counted_leaves_values_as_they_are() -> None:
    assert Moments.empty(2).std().tolist() == [1.0, 1.0]


def test_what_never_varies_is_not_divided_by_zero() -> None:
    assert Moments.of(np.full((4, 1), 7.0)).std(floor=0.5).tolist() == [0.5]


def test_a_copy_is_its_own() -> None:
    one = Moments.of(np.ones((2, 1)))
    other = one.copy()
    other.merge(Moments.of(np.zeros((2, 1))))
    assert (one.count, one.mean.tolist(), other.mean.tolist()) == (2.0, [1.0], [0.5])
