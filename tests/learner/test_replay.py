"""Replay: DPER against its formula and a plain model, its state bit for bit, its costs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.configs.learner import ReplayConfig
from distrl.learner.replay import REFRESH_SIZE, MixedReplay, Replay


def filled(priority="dper", capacity=4, count=4, **changes) -> Replay:
    replay = Replay(ReplayConfig(capacity=capacity, priority=priority, **changes), seed=1)
    for number in range(count):
        replay.add(f"t{number}")
    return replay


def drawn(replay: Replay, count: int) -> list[str]:
    return replay.names(replay.sample(count))


def probability(replay: Replay, name: str) -> float:
    """P(τ) of the next prioritised draw; 0 for one that has no priority yet."""
    tree, place = replay._tree, np.array([replay._places[name]])
    return float(tree.at(place)[0] / tree.total) if tree.total > 0 else 0.0


def unseen(replay: Replay) -> float:
    return replay.metrics()["replay/unseen"]


def entries(*numbers: int) -> np.ndarray:
    """Those of t0, t1 and so on."""
    return np.array(numbers, dtype=np.int64)


RAW = np.array([[0.1, 0.5, 1.0], [0.4, 1.0, 2.0], [0.2, 0.8, 0.0], [0.0, 0.0, 0.5]])


@pytest.mark.parametrize("capacity", [2, 9])
def test_another_capacity_keeps_the_newest_with_their_priorities(capacity) -> None:
    replay = filled(capacity=4, count=6)
    replay.update(replay.sample(4)[1:], RAW[1:])
    other = Replay(ReplayConfig(capacity=capacity), seed=0)
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    assert other.ids == replay.ids[-capacity:]
    assert unseen(other) == (1 if capacity == 9 else 0)
    assert probability(other, "t4") > probability(other, "t5") > 0


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
        each.update(each.sample(3), RAW[1:])  # "t4" has none yet
    resumed = Replay(other.config, seed=0)
    resumed.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    for name in other.ids:
        assert probability(resumed, name) == pytest.approx(probability(other, name), rel=1e-9)


class Model:
    """Lists, loops and the formula. Whom a prioritised draw takes is left to replay."""

    def __init__(self, config: ReplayConfig) -> None:
        self.config = config
        self.slots: list[str | None] = [None] * config.capacity
        self.raw: dict[str, list[float]] = {}
        self.unseen: list[str] = []
        self.maxima, self.scale = [0.0, 0.0], [0.0, 0.0]
        self.next = self.cursor = 0

    @property
    def ids(self) -> list[str]:
        return [name for name in self.slots[self.next :] + self.slots[: self.next] if name is not None]

    def leave(self, name: str) -> None:
        self.slots[self.slots.index(name)] = None
        self.raw.pop(name, None)
        if name in self.unseen:
            self.unseen.remove(name)

    def add(self, name: str) -> str | None:
        evicted = self.slots[self.next]
        if evicted is not None:
            self.leave(evicted)
        self.slots[self.next] = name
        self.unseen.append(name)
        self.next = (self.next + 1) % len(self.slots)
        return evicted

    def resume(self) -> None:
        """What was drawn and has no priority is unseen again, before all others; none of them has one."""
        waiting = [name for name in self.ids if name not in self.raw and name not in self.unseen]
        self.unseen[:0] = waiting
        self.raw = {name: raw for name, raw in self.raw.items() if name not in self.unseen}

    def update(self, names: list[str], raw: list[list[float]]) -> None:
        here = [(name, row) for name, row in zip(names, raw, strict=True) if name in self.slots]
        self.raw |= dict(here)
        if here:
            largest = [max(row[0] for _, row in here), max(row[2] for _, row in here)]
            self.maxima = [max(0.995 * old, new) for old, new in zip(self.maxima, largest, strict=True)]
            if any(abs(m - s) > 0.1 * s for m, s in zip(self.maxima, self.scale, strict=True)):
                self.scale = list(self.maxima)

    def mass(self, name: str) -> float:
        if name not in self.raw:
            return 0.0
        if self.config.priority == "uniform":
            return 1.0
        error, ratio, entropy = self.raw[name]
        w1, w2, w3 = self.config.weights
        p = w1 * error / max(self.scale[0], 1e-12) + w2 * ratio
        return max(p + w3 * entropy / max(self.scale[1], 1e-12), 1e-6) ** self.config.alpha

    def probabilities(self) -> dict[str, float]:
        total = sum(self.mass(name) for name in self.ids)
        return {name: self.mass(name) / total if total > 0 else 0.0 for name in self.ids}

    def effective_share(self) -> float:
        masses = [mass for name in self.ids if (mass := self.mass(name))]
        squares = sum(mass**2 for mass in masses)
        return sum(masses) ** 2 / squares / len(masses) if squares > 0 else 1.0

    def refresh_slice(self) -> list[str]:
        round_ = [*range(self.cursor, len(self.slots)), *range(self.cursor)]
        seen = [i for i in round_ if self.slots[i] is not None and self.slots[i] not in self.unseen]
        chosen = seen[:REFRESH_SIZE]
        if chosen:
            self.cursor = (chosen[-1] + 1) % len(self.slots)
        return [str(self.slots[i]) for i in chosen]


COMPONENTS = st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 1.0), st.floats(0.0, 2.0)).map(list)
NUMBERS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 8)),
    st.tuples(st.just("sample"), st.integers(1, 6)),
    st.tuples(st.just("update"), NUMBERS, st.lists(COMPONENTS, min_size=6, max_size=6)),
    st.tuples(st.just("discard"), NUMBERS),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("resume")),
)


def sampled(replay: Replay, model: Model, count: int) -> None:
    """Draws, and compares whom."""
    expected, unseen = model.probabilities(), model.unseen[:count]
    names = drawn(replay, count)
    assert names[: len(unseen)] == unseen
    del model.unseen[:count]
    assert all(expected[name] > 0 for name in names[len(unseen) :]) or not any(expected.values())
    assert len(names) == count


def test_unseen_trajectories_take_no_more_than_their_share_of_a_batch() -> None:
    replay = Replay(ReplayConfig(capacity=20, unseen=0.25), seed=0)
    for number in range(12):
        replay.add(f"t{number}")
    first = replay.sample(4)  # nothing else is there
    assert sorted(replay.names(first)) == ["t0", "t1", "t2", "t3"]
    replay.update(first, np.ones((4, 3)))
    names = replay.names(replay.sample(8))
    assert names[:2] == ["t4", "t5"]
    assert {*names[2:]} <= {"t0", "t1", "t2", "t3"}


@pytest.mark.parametrize("priority", ["dper", "uniform"])
def test_what_was_drawn_for_a_batch_that_came_to_nothing_is_drawn_again(priority) -> None:
    replay = MixedReplay(ReplayConfig(capacity=8, priority=priority), 0, 0.5)
    for number in range(2):
        replay.add(f"real{number}")
        replay.imagined.add(f"imagined{number}")
    replay.update(replay.sample(2), np.full((2, 3), 0.5))
    lost = replay.sample(2)
    assert sorted(replay.names(lost)) == ["imagined1", "real1"]
    replay.keep(lost)
    assert {name for _ in range(50) for name in replay.names(replay.sample(2))} == {*replay.all_ids}


@settings(max_examples=150, deadline=None)
@given(
    capacity=st.integers(1, 20),
    priority=st.sampled_from(["dper", "uniform"]),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    operations=st.lists(OPERATIONS, max_size=40),
)
def test_replay_is_its_model(capacity, priority, alpha, operations) -> None:
    config = ReplayConfig(capacity=capacity, priority=priority, alpha=alpha)
    replay, model, num_added = Replay(config, seed=0), Model(config), 0
    for name, *arguments in operations:
        if name == "add":
            for _ in range(arguments[0]):
                assert replay.add(f"t{num_added}") == model.add(f"t{num_added}")
                num_added += 1
        elif name == "sample" and model.ids:
            sampled(replay, model, arguments[0])
        elif name == "update":
            entries = [number for number in arguments[0] if number < num_added]
            raw = arguments[1][: len(entries)]
            replay.update(np.array(entries, dtype=np.int64), np.array(raw).reshape(-1, 3))
            model.update([f"t{number}" for number in entries], raw)
        elif name == "discard":
            gone = [f"t{number}" for number in arguments[0]]
            replay.discard(gone)
            for each in {*gone} & {*model.ids}:
                model.leave(each)
        elif name == "refresh":
            assert replay.names(replay.refresh_slice()) == model.refresh_slice()
        elif name == "resume":
            state = json.loads(json.dumps(replay.state_dict()))
            replay = Replay(config, seed=1)
            replay.load_state_dict(state)
            assert replay.state_dict() == state
            model.resume()
        assert (replay.ids, unseen(replay)) == (model.ids, len(model.unseen))
        probabilities = {name: probability(replay, name) for name in replay.ids}
        assert probabilities == pytest.approx(model.probabilities(), rel=1e-9)
        assert sum(probabilities.values()) == pytest.approx(float(any(probabilities.values())))
        assert replay.metrics()["replay/effective_share"] == pytest.approx(model.effective_share(), rel=1e-9)
