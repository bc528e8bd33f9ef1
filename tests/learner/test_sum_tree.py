"""The sum tree: against a plain search, the same bits in any order, and how many nodes it sums."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.learner.sum_tree import SumTree

# A top alone, just full and just not; one level of nodes below it, and two.
CAPACITIES = [1, 37, 4096, 4097, 70_000]


def levels(tree: SumTree) -> list[np.ndarray]:
    assert tree.total >= 0  # sums what is stale
    return [*tree._levels, *tree._before, tree._top]


def plain_find(masses: np.ndarray, point: float) -> int:
    """One index after the other."""
    end = 0.0
    for index, mass in enumerate(masses):
        end += mass
        if point < end:
            return index
    raise AssertionError("the point lies beyond the total")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_find_is_a_plain_search(data) -> None:
    """With whole numbers there is no rounding, so every index is exact."""
    capacity = data.draw(st.sampled_from(CAPACITIES))
    places = st.integers(0, capacity - 1)
    entries = data.draw(st.dictionaries(places, st.integers(0, 9), min_size=1, max_size=30))
    tree, masses = SumTree(capacity), np.zeros(capacity)
    tree.set(list(entries), list(entries.values()))
    masses[list(entries)] = list(entries.values())
    assert tree.total == masses.sum()
    np.testing.assert_array_equal(tree.masses, masses)
    np.testing.assert_array_equal(tree.at(np.array(list(entries))), list(entries.values()))
    for index in data.draw(st.lists(places, max_size=5)):
        assert tree.before(index) == masses[:index].sum()
    if tree.total > 0:
        points = data.draw(st.lists(st.integers(0, int(tree.total) - 1), max_size=8))
        expected = [plain_find(masses, point) for point in points]
        assert tree.find(np.array(points, dtype=np.float64)).tolist() == expected


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=40).filter(lambda masses: sum(masses) > 1e-3),
    st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=8),
    st.sampled_from([1, 16, 1700]),
)
def test_with_rounding_it_finds_the_interval_and_never_an_empty_one(masses, fractions, stride) -> None:
    tree = SumTree(len(masses) * stride)
    tree.set(np.arange(len(masses)) * stride, masses)
    assert tree.total == pytest.approx(sum(masses))
    points = np.minimum(np.array(fractions) * tree.total, np.nextafter(tree.total, 0.0))
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    for point, index in zip(points, tree.find(points), strict=True):
        place, offset = divmod(int(index), stride)
        assert offset == 0
        assert masses[place] > 0
        assert edges[place] - 1e-9 <= point <= edges[place + 1] + 1e-9


def test_a_point_that_is_rounded_to_the_end_of_its_node_is_of_its_last_mass() -> None:
    """0 + 3·2⁻⁵³ + 1.5 is rounded up to 1.5 + 2⁻⁵¹, and what a point below leaves of it, up to 1.5."""
    tree = SumTree(4097)
    tree.set([0, 16], [3 * 2.0**-53, 1.5])
    point = 1.5 + 2.0**-52
    assert point < tree.total
    assert point - 3 * 2.0**-53 == 1.5
    assert tree.find(np.array([point])).tolist() == [16]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_equal_masses_are_equal_trees_whatever_order_they_were_set_in(capacity) -> None:
    rng = np.random.default_rng(0)
    masses = rng.random(capacity)
    at_once, pieces = SumTree(capacity), SumTree(capacity)
    at_once.set(np.arange(capacity), masses)
    pieces.set(np.arange(capacity), rng.random(capacity))
    for number, part in enumerate(np.array_split(rng.permutation(capacity), 23)):
        pieces.set(part, np.zeros(len(part)))
        pieces.set(part, masses[part])
        if number % 3:
            assert pieces.total > 0
    for one, other in zip(levels(at_once), levels(pieces), strict=True):
        np.testing.assert_array_equal(one, other)


def test_draws_follow_the_masses_in_no_order() -> None:
    tree, rng = SumTree(70_000), np.random.default_rng(0)
    masses = {3: 1.0, 17: 2.0, 35_000: 3.0, 69_999: 4.0}
    tree.set(list(masses), list(masses.values()))
    drawn = tree.sample(20_000, rng)
    counts = Counter(drawn.tolist())
    assert drawn[:10_000].mean() == pytest.approx(drawn[10_000:].mean(), rel=0.05)
    for index, mass in masses.items():
        assert counts[index] / 20_000 == pytest.approx(mass / 10.0, abs=0.015)
    assert set(counts) == set(masses)
