"""Replay: the sum tree against a plain search, DPER against its formula, state bit for bit."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.configs.schema import ReplayConfig
from distrl.learner.replay import Replay
from distrl.learner.sum_tree import SumTree


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=40).filter(lambda masses: sum(masses) > 1e-3),
    st.lists(st.floats(0.0, 0.999), min_size=1, max_size=8),
)
def test_find_is_a_search_in_the_cumulated_masses(masses, fractions) -> None:
    tree = SumTree(len(masses))
    tree.set(range(len(masses)), masses)
    assert tree.total == pytest.approx(sum(masses))
    points = np.array(fractions) * tree.total
    found = tree.find(points)
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    for point, index in zip(points, found, strict=True):
        assert masses[index] > 0
        assert edges[index] - 1e-9 <= point <= edges[index + 1] + 1e-9


def test_setting_leaves_one_by_one_or_at_once_gives_the_same_bits() -> None:
    masses = np.random.default_rng(0).random(37)
    one, other = SumTree(37), SumTree(37)
    one.set(range(37), masses)
    for index in reversed(range(37)):
        other.set([index], [masses[index]])
    assert one.total == other.total
    assert (one._nodes == other._nodes).all()


def filled(priority="dper", capacity=4, count=4, **changes) -> Replay:
    replay = Replay(ReplayConfig(capacity=capacity, priority=priority, **changes), seed=1)
    for number in range(count):
        replay.add(f"t{number}")
    return replay


RAW = np.array([[0.1, 0.5, 1.0], [0.4, 1.0, 2.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])


def test_unseen_come_first_in_order_of_arrival_then_the_formula() -> None:
    replay = filled(alpha=0.5, weights=(1.0, 0.3, 0.1))
    assert replay.sample(3).ids == ["t0", "t1", "t2"]
    draw = replay.sample(1)
    assert (draw.ids, draw.num_unseen) == (["t3"], 1)
    replay.update(["t0", "t1", "t2", "t3"], RAW)
    p = 1.0 * RAW[:, 0] / 0.4 + 0.3 * RAW[:, 1].clip(0, 1) + 0.1 * RAW[:, 2] / 2.0
    expected = p**0.5 / (p**0.5).sum()
    np.testing.assert_allclose([replay.probability(f"t{i}") for i in range(4)], expected, rtol=1e-12)


def test_draws_follow_the_probabilities() -> None:
    replay = filled()
    replay.update(replay.sample(4).ids, RAW)
    draw = replay.sample(20_000)
    counts = Counter(draw.ids)
    for name in draw.ids[:50]:
        assert counts[name] / 20_000 == pytest.approx(replay.probability(name), abs=0.02)
    assert draw.probabilities[0] == replay.probability(draw.ids[0])


def test_uniform_ignores_the_components() -> None:
    replay = filled("uniform")
    replay.update(replay.sample(4).ids, RAW)
    assert [replay.probability(f"t{i}") for i in range(4)] == [0.25] * 4


def test_the_oldest_leaves_first_even_if_never_seen() -> None:
    replay = filled(capacity=3, count=3)
    assert replay.add("t3") == "t0"
    assert "t0" not in replay
    assert replay.ids == ["t1", "t2", "t3"]
    assert replay.sample(3).ids == ["t1", "t2", "t3"]
    replay.update(["t0"], RAW[:1])
    assert len(replay) == 3


def test_a_drawn_trajectory_without_a_priority_yet_is_still_there_when_nothing_else_is() -> None:
    replay = filled(count=1)
    assert replay.sample(3).ids == ["t0", "t0", "t0"]


def test_running_maxima_decay_and_the_tree_follows_a_moved_scale() -> None:
    replay = filled(alpha=1.0, weights=(1.0, 0.0, 0.0))
    replay.sample(4)
    replay.update(["t0", "t1"], np.array([[1.0, 0, 0.1], [0.5, 0, 0.1]]))
    assert replay.probability("t0") == pytest.approx(2 / 3)
    replay.update(["t2"], np.array([[4.0, 0, 0.1]]))
    assert replay.probability("t2") == pytest.approx(4 / 5.5)
    for _ in range(400):
        replay.update(["t2"], np.array([[0.5, 0, 0.1]]))
    assert replay.metrics()["replay/max_td_error"] < 1.0


def test_importance_weights_undo_the_bias() -> None:
    replay = filled()
    replay.update(replay.sample(4).ids, RAW)
    draw = replay.sample(8)
    weights = np.array(replay.importance_weights(draw, 1.0))
    scaled = weights * np.array(draw.probabilities)
    np.testing.assert_allclose(scaled, scaled[0])
    assert weights.max() == 1.0
    assert replay.importance_weights(draw, 0.0) == [1.0] * 8


def test_refresh_goes_round_what_has_been_seen() -> None:
    replay = filled(capacity=5, count=5, refresh_size=2)
    assert replay.refresh_slice() == []
    replay.sample(3)
    assert [replay.refresh_slice() for _ in range(3)] == [["t0", "t1"], ["t2", "t0"], ["t1", "t2"]]


def test_state_comes_back_bit_for_bit() -> None:
    replay = filled(capacity=5, count=7)
    replay.update(replay.sample(4).ids, RAW)
    replay.sample(2)
    state = json.loads(json.dumps(replay.state_dict()))
    again = Replay(replay.config, seed=99)
    again.load_state_dict(state)
    assert again.state_dict() == replay.state_dict()
    for _ in range(5):
        assert again.sample(3) == replay.sample(3)
        again.update(["t4"], RAW[:1])
        replay.update(["t4"], RAW[:1])
    assert again.state_dict() == replay.state_dict()


@pytest.mark.parametrize("capacity", [2, 9])
def test_another_capacity_keeps_the_newest_with_their_priorities(capacity) -> None:
    replay = filled(capacity=4, count=6)
    replay.update(replay.sample(4).ids[1:], RAW[1:])
    other = Replay(ReplayConfig(capacity=capacity), seed=0)
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    assert other.ids == replay.ids[-capacity:]
    assert other.num_unseen == (1 if capacity == 9 else 0)
    assert other.probability("t4") > other.probability("t5") > 0


def test_what_is_taken_out_is_never_drawn_and_its_place_is_filled_again() -> None:
    replay = filled(count=3)
    replay.update(replay.sample(2).ids, RAW[:2])
    replay.discard(["t1", "t2", "gone"])  # one seen, one unseen
    assert (replay.ids, len(replay), replay.num_unseen) == (["t0"], 1, 0)
    assert set(replay.sample(20).ids) == {"t0"}
    assert replay.probability("t0") == 1.0
    again = Replay(replay.config, seed=2)
    again.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    for each in (replay, again):
        assert [each.add(f"n{i}") for i in range(4)] == [None, "t0", None, None]
        assert each.ids == ["n0", "n1", "n2", "n3"]
        assert each.sample(4).ids == ["n0", "n1", "n2", "n3"]
    replay.discard(replay.ids)
    assert len(replay) == 0
