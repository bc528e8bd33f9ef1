"""Replay: DPER against its formula, its state bit for bit, nothing in training as long as the buffer."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from distrl.configs.training import ReplayConfig
from distrl.learner import sum_tree
from distrl.learner.replay import Replay


def filled(priority="dper", capacity=4, count=4, **changes) -> Replay:
    replay = Replay(ReplayConfig(capacity=capacity, priority=priority, **changes), seed=1)
    for number in range(count):
        replay.add(f"t{number}")
    return replay


def drawn(replay: Replay, count: int) -> list[str]:
    return replay.names(replay.sample(count).entries)


def entries(*numbers: int) -> np.ndarray:
    """Those of t0, t1 and so on."""
    return np.array(numbers, dtype=np.int64)


RAW = np.array([[0.1, 0.5, 1.0], [0.4, 1.0, 2.0], [0.2, 0.8, 0.0], [0.0, 0.0, 0.5]])


def test_unseen_come_first_in_order_of_arrival_then_the_formula() -> None:
    replay = filled(alpha=0.5, weights=(1.0, 0.3, 0.1))
    assert drawn(replay, 3) == ["t0", "t1", "t2"]
    draw = replay.sample(1)
    assert (replay.names(draw.entries), draw.num_unseen) == (["t3"], 1)
    replay.update(entries(0, 1, 2, 3), RAW)
    p = 1.0 * RAW[:, 0] / 0.4 + 0.3 * RAW[:, 1] + 0.1 * RAW[:, 2] / 2.0
    expected = p**0.5 / (p**0.5).sum()
    np.testing.assert_allclose([replay.probability(f"t{i}") for i in range(4)], expected, rtol=1e-12)


def test_draws_follow_the_probabilities() -> None:
    replay = filled()
    replay.update(replay.sample(4).entries, RAW)
    draw = replay.sample(20_000)
    names = replay.names(draw.entries)
    counts = Counter(names)
    for name in names[:50]:
        assert counts[name] / 20_000 == pytest.approx(replay.probability(name), abs=0.02)
    assert draw.probabilities[0] == replay.probability(names[0])


def test_uniform_ignores_the_components() -> None:
    replay = filled("uniform")
    replay.update(replay.sample(4).entries, RAW)
    assert [replay.probability(f"t{i}") for i in range(4)] == [0.25] * 4


def test_the_oldest_leaves_first_even_if_never_seen() -> None:
    replay = filled(capacity=3, count=3)
    assert replay.add("t3") == "t0"
    assert "t0" not in replay
    assert replay.ids == ["t1", "t2", "t3"]
    assert drawn(replay, 3) == ["t1", "t2", "t3"]
    replay.update(entries(0), RAW[:1])
    assert len(replay) == 3


def test_a_drawn_trajectory_without_a_priority_yet_is_still_there_when_nothing_else_is() -> None:
    replay = filled(count=1)
    assert drawn(replay, 3) == ["t0", "t0", "t0"]


def test_running_maxima_decay_and_the_tree_follows_a_moved_scale() -> None:
    replay = filled(alpha=1.0, weights=(1.0, 0.0, 0.0))
    replay.sample(4)
    replay.update(entries(0, 1), np.array([[1.0, 0, 0.1], [0.5, 0, 0.1]]))
    assert replay.probability("t0") == pytest.approx(2 / 3)
    replay.update(entries(2), np.array([[4.0, 0, 0.1]]))
    assert replay.probability("t2") == pytest.approx(4 / 5.5)
    for _ in range(400):
        replay.update(entries(2), np.array([[0.5, 0, 0.1]]))
    assert replay.metrics()["replay/max_td_error"] < 1.0


def test_importance_weights_undo_the_bias() -> None:
    replay = filled()
    replay.update(replay.sample(4).entries, RAW)
    draw = replay.sample(8)
    weights = np.array(replay.importance_weights(draw, 1.0))
    scaled = weights * np.array(draw.probabilities)
    np.testing.assert_allclose(scaled, scaled[0])
    assert weights.max() == 1.0
    assert replay.importance_weights(draw, 0.0) == [1.0] * 8


def test_refresh_goes_round_what_has_been_seen() -> None:
    replay = filled(capacity=5, count=5, refresh_size=2)
    assert replay.refresh_slice().tolist() == []
    replay.sample(3)
    assert [replay.refresh_slice().tolist() for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


@pytest.mark.parametrize("capacity", [5, 5000])
def test_state_comes_back_bit_for_bit(capacity) -> None:
    replay = filled(capacity=capacity, count=capacity + 2)
    rng = np.random.default_rng(3)
    first = replay.sample(capacity - 1).entries
    replay.update(first, rng.random((len(first), 3)))
    replay.sample(2)
    replay.refresh_slice()
    replay.discard(replay.ids[1:2])
    state = json.loads(json.dumps(replay.state_dict()))
    again = Replay(replay.config, seed=99)
    again.load_state_dict(state)
    assert again.state_dict() == replay.state_dict() == state
    for number in range(25):  # the scale moves on the way
        draws = replay.sample(3), again.sample(3)
        assert replay.names(draws[0].entries) == again.names(draws[1].entries)
        assert draws[0].probabilities.tolist() == draws[1].probabilities.tolist()
        raw = rng.random((3, 3)) * (1.0 + number / 10.0)
        for each, draw in zip((replay, again), draws, strict=True):
            each.update(draw.entries, raw)
        assert again.names(again.refresh_slice()) == replay.names(replay.refresh_slice())
        assert again.add(f"n{number}") == replay.add(f"n{number}")
        assert again.metrics() == replay.metrics()
    assert again.state_dict() == replay.state_dict()


@pytest.mark.parametrize(
    "change", [{"raw": [[0.0] * 3] * 4}, {"raw": "AAAA"}, {"masses": "?"}, {"masses": ""}]
)
def test_a_state_of_another_form_is_refused(change) -> None:
    replay = filled()
    with pytest.raises((TypeError, ValueError)):
        replay.load_state_dict(replay.state_dict() | change)


def test_a_draw_that_a_stop_has_lost_is_made_again() -> None:
    replay = filled(capacity=5, count=5)
    replay.update(replay.sample(2).entries, RAW[:2])
    replay.add("t5")  # in the place of t0
    assert drawn(replay, 3) == ["t2", "t3", "t4"]
    replay.update(entries(3), RAW[:1])
    replay.forget_draws()
    draw = replay.sample(5)
    names = replay.names(draw.entries)
    assert (names[:3], draw.num_unseen) == (["t2", "t4", "t5"], 3)
    assert set(names[3:]) <= {"t1", "t3"}


@pytest.mark.parametrize("capacity", [2, 9])
def test_another_capacity_keeps_the_newest_with_their_priorities(capacity) -> None:
    replay = filled(capacity=4, count=6)
    replay.update(replay.sample(4).entries[1:], RAW[1:])
    other = Replay(ReplayConfig(capacity=capacity), seed=0)
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    other.forget_draws()
    assert other.ids == replay.ids[-capacity:]
    assert other.num_unseen == (1 if capacity == 9 else 0)
    assert other.probability("t4") > other.probability("t5") > 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"priority": "uniform"}, {}),
        ({}, {"priority": "uniform"}),
        ({"alpha": 0.5}, {"alpha": 1.0}),
        ({}, {"weights": (0.1, 1.0, 0.5)}),
    ],
)
def test_a_run_that_is_resumed_with_other_priorities_draws_by_these(before, after) -> None:
    replay, other = filled(count=5, **before), filled(count=5, **after)
    for each in (replay, other):
        each.update(each.sample(3).entries, RAW[1:])  # "t4" has none yet
    resumed = Replay(other.config, seed=0)
    resumed.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    for name in other.ids:
        assert resumed.probability(name) == pytest.approx(other.probability(name), rel=1e-9)


def test_what_is_taken_out_is_never_drawn_and_its_place_is_filled_again() -> None:
    replay = filled(count=3)
    replay.update(replay.sample(2).entries, RAW[:2])
    replay.discard(["t1", "t2", "gone"])  # one seen, one unseen
    assert (replay.ids, len(replay), replay.num_unseen) == (["t0"], 1, 0)
    assert set(drawn(replay, 20)) == {"t0"}
    assert replay.probability("t0") == 1.0
    again = Replay(replay.config, seed=2)
    again.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    for each in (replay, again):
        assert [each.add(f"n{i}") for i in range(4)] == [None, "t0", None, None]
        assert each.ids == ["n0", "n1", "n2", "n3"]
        assert drawn(each, 4) == ["n0", "n1", "n2", "n3"]
    replay.discard(replay.ids)
    assert len(replay) == 0


def test_training_makes_nothing_that_is_as_long_as_the_buffer(monkeypatch) -> None:
    """Unless a maximum moves: then masses are made anew, which the last lines see."""
    capacity, rng = 200_000, np.random.default_rng(0)
    replay = filled(capacity=capacity, count=capacity, refresh_size=16)
    first = replay.sample(capacity - 100).entries
    replay.update(first, np.concatenate([np.ones((1, 3)), rng.random((len(first) - 1, 3))]))
    assert replay.metrics()["replay/effective_share"] > 0.5
    assert len(replay.refresh_slice()) == 16
    summed, whole = [], sum_tree._cumulated
    monkeypatch.setattr(sum_tree, "_cumulated", lambda masses: summed.append(len(masses)) or whole(masses))

    def peak_bytes(largest: float) -> int:
        tracemalloc.start()
        chosen = replay.sample(32).entries
        raw = rng.random((32, 3))
        raw[0] = largest
        replay.update(chosen, raw)
        replay.update(replay.refresh_slice(), rng.random((16, 3)))
        replay.add(f"n{largest}")
        replay.discard(replay.names(chosen[:1]))
        assert replay.metrics()["replay/size"] >= capacity - 2
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(1.0) < capacity / 2, "less than half a byte for each"
    # A tree of masses and one of what has been seen; each mass is set at most once for each call above.
    assert 0 < sum(summed) <= 2 * 2 * (32 + 32 + 16 + 1 + 1)
    assert peak_bytes(2.0) > 8 * capacity
