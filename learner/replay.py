"""Circular trajectory replay with distributed prioritised experience replay (DistRL §5.2, DPER).

    p(τ) = w1·|δ|̄/max|δ| + w2·ρ̄ + w3·H̄/max H        P(τ) = p(τ)^α / Σ p^α

|δ|̄, ρ̄ (each ρ clipped at 1) and H̄ are means over the steps of τ, the maxima are running and decay
slowly. Stored are the raw components; the sum tree holds p^α under a fixed scale and is rebuilt when a
maximum has moved by more than 10% from it. Every step and every length counts alike: a one-step episode
is drawn like any other.

Owned by the training thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
        self._tree = SumTree(config.capacity)
        self._ids: list[str | None] = [None] * config.capacity
        self._places: dict[str, int] = {}
        self._raw: NDArray[np.float64] = np.zeros((config.capacity, 3))
        self._unseen: deque[str] = deque()
        self._maxima = np.zeros(2)
        self._scale = np.zeros(2)
        self._next = 0
        self._refreshed = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, trajectory_id: str) -> bool:
        return trajectory_id in self._places

    @property
    def ids(self) -> list[str]:
        """The ids in replay, oldest first."""
        order = np.roll(np.arange(self.config.capacity), -self._next)
        return [name for name in (self._ids[i] for i in order) if name is not None]

    @property
    def num_unseen(self) -> int:
        """How many have never been drawn."""
        return len(self._unseen)

    def add(self, trajectory_id: str) -> str | None:
        """Adds a trajectory in place of the oldest one when full. Returns the id that left, if any."""
        if trajectory_id in self._places:
            return None
        place, evicted = self._next, self._ids[self._next]
        if evicted is not None:
            del self._places[evicted]
            if evicted in self._unseen:
                self._unseen.remove(evicted)
        self._ids[place] = trajectory_id
        self._places[trajectory_id] = place
        self._raw[place] = 0.0
        self._tree.set([place], [0.0])
        self._unseen.append(trajectory_id)
        self._next = (place + 1) % self.config.capacity
        return evicted

    def discard(self, ids: Iterable[str]) -> None:
        """Takes trajectories out; ids that are not here are ignored."""
        places = [self._places.pop(name) for name in ids if name in self._places]
        for place in places:
            self._ids[place] = None
        if places:
            self._tree.set(places, [0.0] * len(places))
            self._unseen = deque(name for name in self._unseen if name in self._places)

    def sample(self, count: int) -> Draw:
        """Draws `count` trajectories: unseen ones first, as they came, the rest from P with replacement.

        What is drawn for the first time cannot be drawn again before `update` has given it a priority, unless
        nothing else is there.
        """
        assert self._places, "replay is empty"
        new = [self._unseen.popleft() for _ in range(min(count, len(self._unseen)))]
        rest = count - len(new)
        places = self._draw(rest)
        total = self._tree.total
        probabilities = self._tree.masses[places] / total if total > 0 else np.full(rest, 1.0 / len(self))
        ids = new + [name for name in (self._ids[i] for i in places) if name is not None]
        return Draw(ids, [1.0 / len(self)] * len(new) + probabilities.tolist(), len(new))

    def _draw(self, count: int) -> Indices:
        if count == 0:
            return np.zeros(0, dtype=np.int64)
        if self._tree.total > 0:
            return self._tree.sample(count, self._rng)
        return self._rng.choice(np.array(list(self._places.values()), dtype=np.int64), size=count)

    def importance_weights(self, draw: Draw, beta: float) -> list[float]:
        """(N·P)^(−β), divided by the largest so that no step grows. Unseen ones count as P = 1/N."""
        weights = (len(self) * np.array(draw.probabilities)) ** -beta
        result: list[float] = (weights / weights.max()).tolist()
        return result

    def update(self, ids: Sequence[str], components: NDArray[np.float64]) -> None:
        """Stores new raw components [len(ids), 3]; ids that have left meanwhile are ignored."""
        kept = [i for i, name in enumerate(ids) if name in self._places]
        if not kept:
            return
        places = np.array([self._places[ids[i]] for i in kept], dtype=np.int64)
        raw = np.asarray(components, dtype=np.float64)[kept]
        assert bool(np.isfinite(raw).all()), "priorities must be finite"
        self._raw[places] = raw
        self._maxima = np.maximum(_DECAY * self._maxima, raw[:, [0, 2]].max(axis=0))
        if bool((np.abs(self._maxima - self._scale) > _RESCALE * self._scale).any()):
            self._scale = self._maxima.copy()
            places = np.union1d(np.flatnonzero(self._tree.masses > 0), places)
        self._tree.set(places, self._masses(places))

    def priorities(self, places: Indices) -> NDArray[np.float64]:
        """p(τ) of the trajectories at `places`."""
        raw, w = self._raw[places], self.config.weights
        scale = np.maximum(self._scale, 1e-12)
        # The small floor keeps a trajectory that has nothing to teach today from vanishing for ever.
        p = w[0] * raw[:, 0] / scale[0] + w[1] * np.clip(raw[:, 1], 0.0, 1.0) + w[2] * raw[:, 2] / scale[1]
        return np.asarray(np.maximum(p, _FLOOR))

    def _masses(self, places: Indices) -> NDArray[np.float64]:
        if self.config.priority == "uniform":
            return np.ones(len(places))
        return np.asarray(self.priorities(places) ** self.config.alpha)

    def probability(self, trajectory_id: str) -> float:
        """P(τ) of the next prioritised draw; 0 for one that has no priority yet."""
        total = self._tree.total
        return float(self._tree.masses[self._places[trajectory_id]] / total) if total > 0 else 0.0

    def refresh_slice(self) -> list[str]:
        """The next `refresh_size` seen trajectories, going round, whose priorities are to be renewed."""
        unseen = set(self._unseen)
        seen = [name for name in self._ids if name is not None and name not in unseen]
        if not seen:
            return []
        start = self._refreshed % len(seen)
        count = min(self.config.refresh_size, len(seen))
        self._refreshed = start + count
        return (seen + seen)[start : start + count]

    def metrics(self) -> dict[str, float]:
        """Size, unseen ones, and how concentrated the draw is (effective share of the buffer)."""
        masses = self._tree.masses
        total, square = float(masses.sum()), float((masses**2).sum())
        return {
            "replay/size": float(len(self)),
            "replay/unseen": float(len(self._unseen)),
            "replay/effective_share": total**2 / (square * max(len(self), 1)) if square > 0 else 1.0,
            "replay/max_td_error": float(self._maxima[0]),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON-able data; floats come back bit for bit."""
        return {
            "ids": list(self._ids),
            "raw": self._raw.tolist(),
            "masses": self._tree.masses.tolist(),
            "unseen": list(self._unseen),
            "maxima": self._maxima.tolist(),
            "scale": self._scale.tolist(),
            "next": self._next,
            "refreshed": self._refreshed,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`; under another capacity the newest stay, with their priorities."""
        if len(state["ids"]) != self.config.capacity:
            self._adopt(state)
            return
        self._ids = list(state["ids"])
        self._places = {name: i for i, name in enumerate(self._ids) if name is not None}
        self._raw = np.array(state["raw"], dtype=np.float64).reshape(-1, 3)
        self._tree = SumTree(self.config.capacity)
        self._tree.set(np.arange(self.config.capacity), np.array(state["masses"]))
        self._unseen = deque(state["unseen"])
        self._maxima, self._scale = np.array(state["maxima"]), np.array(state["scale"])
        self._next, self._refreshed = int(state["next"]), int(state["refreshed"])
        self._rng.bit_generator.state = state["rng"]

    def _adopt(self, state: dict[str, Any]) -> None:
        size = len(state["ids"])
        for place in np.roll(np.arange(size), -int(state["next"])):
            name = state["ids"][place]
            if name is None:
                continue
            self.add(name)
            if state["masses"][place] > 0:
                self.update([name], np.array([state["raw"][place]]))
                self._unseen.remove(name)
