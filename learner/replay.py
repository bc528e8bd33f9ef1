"""Circular trajectory replay with distributed prioritised experience replay (DistRL §5.2, DPER).

    p(τ) = w1·|δ|̄/max|δ| + w2·ρ̄ + w3·H̄/max H        P(τ) = p(τ)^α / Σ p^α

|δ|̄, ρ̄ (each ρ clipped at 1) and H̄ are means over the steps of τ, the maxima are running and decay
slowly. Stored are the raw components; the sum tree holds p^α under a fixed scale and is rebuilt when a
maximum has moved by more than 10% from it. Every step and every length counts alike: a one-step episode
is drawn like any other. What was never drawn comes first, also with `priority: uniform`, where p is 1.

Adding, drawing, updating, choosing what to refresh and the metrics take O(k log N) for k trajectories of N;
only the rebuild takes O(N).

Owned by the training thread.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.configs.schema import ReplayConfig
from distrl.learner.sum_tree import Indices, SumTree

COMPONENTS = ("td_error", "ratio", "entropy")
_DECAY = 0.995
_RESCALE = 0.1
_FLOOR = 1e-6


@dataclass(frozen=True)
class Draw:
    """Sampled trajectories: their ids, probabilities P(τ), and how many of them (the first) were unseen."""

    ids: list[str]
    probabilities: list[float]
    num_unseen: int


class Replay:
    """The newest `capacity` trajectories, by id.

    Args:
        config: Capacity and priorities.
        seed: Of the draws.
    """

    def __init__(self, config: ReplayConfig, seed: int) -> None:
        self.config = config
        self._rng = np.random.default_rng(seed)
        self._ids = [""] * config.capacity  # "" where nothing is
        self._places: dict[str, int] = {}
        self._unseen: OrderedDict[str, None] = OrderedDict()
        self._raw: NDArray[np.float64] = np.zeros((config.capacity, 3))
        self._tree = SumTree(config.capacity)
        self._squares = SumTree(config.capacity)  # of the masses, for the effective share
        self._seen = SumTree(config.capacity)  # 1 for what has been drawn: finds the n-th of these
        self._maxima = np.zeros(2)
        self._scale = np.zeros(2)
        self._next = 0  # the place of the next arrival
        self._refreshed = 0  # the place after the last one whose priority was renewed

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, trajectory_id: str) -> bool:
        return trajectory_id in self._places

    @property
    def ids(self) -> list[str]:
        """The ids in replay, oldest first."""
        return [name for name in self._ids[self._next :] + self._ids[: self._next] if name]

    @property
    def num_unseen(self) -> int:
        """How many have never been drawn."""
        return len(self._unseen)

    def add(self, trajectory_id: str) -> str | None:
        """Adds a trajectory in place of the oldest one when full. Returns the id that left, if any."""
        if trajectory_id in self._places:
            return None
        place, evicted = self._next, self._ids[self._next]
        if evicted:
            self._clear([evicted])
        self._ids[place] = trajectory_id
        self._places[trajectory_id] = place
        self._unseen[trajectory_id] = None
        self._next = (place + 1) % self.config.capacity
        return evicted or None

    def discard(self, ids: Iterable[str]) -> None:
        """Takes trajectories out; ids that are not here are ignored."""
        self._clear([name for name in dict.fromkeys(ids) if name in self._places])

    def _clear(self, ids: Sequence[str]) -> None:
        places = np.array([self._places.pop(name) for name in ids], dtype=np.int64)
        for name, place in zip(ids, places.tolist(), strict=True):
            self._ids[place] = ""
            self._unseen.pop(name, None)
        self._raw[places] = 0.0
        self._set_masses(places, np.zeros(len(places)))
        self._seen.set(places, np.zeros(len(places)))

    def sample(self, count: int) -> Draw:
        """Draws `count` trajectories: unseen ones first, as they came, the rest from P with replacement.

        What is drawn for the first time cannot be drawn again before `update` has given it a priority, unless
        nothing else is there.
        """
        assert self._places, "replay is empty"
        new = [self._unseen.popitem(last=False)[0] for _ in range(min(count, len(self._unseen)))]
        self._seen.set([self._places[name] for name in new], np.ones(len(new)))
        ids, probabilities = new, [1.0 / len(self)] * len(new)
        rest = count - len(new)
        if rest and self._tree.total > 0:
            places = self._tree.sample(rest, self._rng)
            ids = new + self._names(places)
            probabilities += (self._tree.at(places) / self._tree.total).tolist()
        elif rest:  # all have been seen, none has a priority
            places = self._seen.find(self._rng.integers(len(self), size=rest).astype(np.float64))
            ids = new + self._names(places)
            probabilities += [1.0 / len(self)] * rest
        return Draw(ids, probabilities, len(new))

    def forget_draws(self) -> None:
        """Puts what was drawn and never updated back among the unseen ones, before all others.

        For a resume: a batch that was ready when the checkpoint was written is gone, and without a priority
        its trajectories would not be drawn again.
        """
        is_waiting = (self._seen.masses > 0) & (self._tree.masses == 0)
        by_age = np.roll(np.arange(self.config.capacity), -self._next)
        places = by_age[is_waiting[by_age]]
        self._unseen = OrderedDict.fromkeys([*self._names(places), *self._unseen])
        self._seen.set(places, np.zeros(len(places)))

    def _names(self, places: Indices) -> list[str]:
        return [self._ids[place] for place in places.tolist()]

    def importance_weights(self, draw: Draw, beta: float) -> list[float]:
        """(N·P)^(−β), divided by the largest so that no step grows. Unseen ones count as P = 1/N."""
        weights = (len(self) * np.array(draw.probabilities)) ** -beta
        result: list[float] = (weights / weights.max()).tolist()
        return result

    def update(self, ids: Sequence[str], components: NDArray[np.float64]) -> None:
        """Stores new raw components [len(ids), 3]; ids that have left meanwhile are ignored."""
        places = np.fromiter(map(self._places.get, ids, repeat(-1)), dtype=np.int64, count=len(ids))
        is_here = places >= 0
        if not is_here.any():
            return
        places, raw = places[is_here], np.asarray(components, dtype=np.float64)[is_here]
        assert bool(np.isfinite(raw).all()), "priorities must be finite"
        self._raw[places] = raw
        self._maxima = np.maximum(_DECAY * self._maxima, raw[:, [0, 2]].max(axis=0))
        if bool((np.abs(self._maxima - self._scale) > _RESCALE * self._scale).any()):
            self._scale = self._maxima.copy()
            has_mass = self._tree.masses > 0
            has_mass[places] = True
            places = np.flatnonzero(has_mass)
            raw = self._raw[places]
        self._set_masses(places, self._masses(raw))

    def _set_masses(self, places: Indices, masses: NDArray[np.float64]) -> None:
        self._tree.set(places, masses)
        self._squares.set(places, masses**2)

    def _masses(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """[k] p(τ)^α of raw components [k, 3]."""
        if self.config.priority == "uniform":
            return np.ones(len(raw))
        w, scale = self.config.weights, np.maximum(self._scale, 1e-12)
        # The small floor keeps a trajectory that has nothing to teach today from vanishing for ever.
        p = w[0] * raw[:, 0] / scale[0] + w[1] * np.clip(raw[:, 1], 0.0, 1.0) + w[2] * raw[:, 2] / scale[1]
        return np.asarray(np.maximum(p, _FLOOR) ** self.config.alpha)

    def probability(self, trajectory_id: str) -> float:
        """P(τ) of the next prioritised draw; 0 for one that has no priority yet."""
        total, place = self._tree.total, np.array([self._places[trajectory_id]])
        return float(self._tree.at(place)[0] / total) if total > 0 else 0.0

    def refresh_slice(self) -> list[str]:
        """The next `refresh_size` seen trajectories, going round, whose priorities are to be renewed."""
        num_seen = int(self._seen.total)
        if not num_seen:
            return []
        first = int(self._seen.before(self._refreshed))
        numbers = (first + np.arange(min(self.config.refresh_size, num_seen))) % num_seen
        places = self._seen.find(numbers.astype(np.float64))
        self._refreshed = (int(places[-1]) + 1) % self.config.capacity
        return self._names(places)

    def metrics(self) -> dict[str, float]:
        """Size, unseen ones, and how concentrated the draw is (effective share of the buffer)."""
        total, square = self._tree.total, self._squares.total
        return {
            "replay/size": float(len(self)),
            "replay/unseen": float(len(self._unseen)),
            "replay/effective_share": total**2 / (square * max(len(self), 1)) if square > 0 else 1.0,
            "replay/max_td_error": float(self._maxima[0]),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON-able data; arrays as base64 of their bytes, so they come back bit for bit."""
        return {
            "ids": list(self._ids),
            "unseen": list(self._unseen),
            "raw": _encoded(self._raw),
            "masses": _encoded(self._tree.masses),
            "maxima": self._maxima.tolist(),
            "scale": self._scale.tolist(),
            "next": self._next,
            "refreshed": self._refreshed,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`; under another capacity the newest stay, with their priorities."""
        ids, capacity = list(state["ids"]), self.config.capacity
        raw = _decoded(state["raw"]).reshape(len(ids), 3)
        masses = _decoded(state["masses"]).reshape(len(ids))
        places, self._next, self._refreshed = np.arange(len(ids)), int(state["next"]), int(state["refreshed"])
        if len(ids) != capacity:
            by_age = np.roll(places, -self._next)
            places = np.array([i for i in by_age.tolist() if ids[i]][-capacity:], dtype=np.int64)
            self._next, self._refreshed = len(places) % capacity, 0
        size = len(places)
        self._ids = [ids[i] for i in places.tolist()] + [""] * (capacity - size)
        self._places = {name: i for i, name in enumerate(self._ids) if name}
        self._unseen = OrderedDict((name, None) for name in state["unseen"] if name in self._places)
        self._raw = np.zeros((capacity, 3))
        self._raw[:size] = raw[places]
        self._tree, self._squares, self._seen = (SumTree(capacity) for _ in range(3))
        self._set_masses(np.arange(size), masses[places])
        seen = [place for name, place in self._places.items() if name not in self._unseen]
        self._seen.set(seen, np.ones(len(seen)))
        self._maxima, self._scale = np.array(state["maxima"]), np.array(state["scale"])
        self._rng.bit_generator.state = state["rng"]


def _encoded(array: NDArray[np.float64]) -> str:
    return base64.b64encode(array.astype("<f8").tobytes()).decode()


def _decoded(text: str) -> NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
