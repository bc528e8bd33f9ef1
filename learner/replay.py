"""Circular trajectory replay with distributed prioritised experience replay (DistRL §5.2, DPER).

    p(τ) = w1·|δ|̄/max|δ| + w2·ρ̄ + w3·H̄/max H        P(τ) = p(τ)^α / Σ p^α

|δ|̄, ρ̄ (each ρ clipped at 1) and H̄ are means over the steps of τ, the maxima are running and decay
slowly. Stored are the raw components; the sum tree holds p^α under a fixed scale and is rebuilt when a
maximum has moved by more than 10% from it. Every step and every length counts alike: a one-step episode
is drawn like any other. What was never drawn comes first, also with `priority: uniform`, where p is 1.

Interpretation: docs/algorithms.md.

A trajectory in replay has an entry, a number that no later one gets; draws and updates are made of these, a
batch at a time, and `names` returns the ids. Adding, drawing, updating and choosing what to refresh take
O(k log N) for k trajectories of N; the rebuild takes O(N), the metrics one dot product of all masses.

Imagined trajectories have a buffer of their own (`MixedReplay`).

Owned by the training thread.
"""

from __future__ import annotations

import base64
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.configs.learner import ReplayConfig
from distrl.learner.sum_tree import Indices, SumTree

REFRESH_SIZE = 16  # trajectories whose priorities are renewed at a time
_DECAY = 0.995
_RESCALE = 0.1
_FLOOR = 1e-6
_RAW = np.dtype((np.void, 24))  # the three components, float64: as one item they are read and written at once


class Replay:
    """The newest `capacity` trajectories."""

    def __init__(self, config: ReplayConfig, seed: int) -> None:
        self.config = config
        self._rng = np.random.default_rng(seed)
        self._ids = [""] * config.capacity  # "" where nothing is
        self._places: dict[str, int] = {}
        self._unseen: OrderedDict[int, None] = OrderedDict()  # entries
        self._is_here = np.zeros(config.capacity, dtype=np.bool_)
        self._raw = np.zeros(config.capacity, dtype=_RAW)
        self._tree = SumTree(config.capacity)
        self._seen = SumTree(config.capacity)  # 1 for what has been drawn: finds the n-th of these
        self._maxima = [0.0, 0.0]  # of |δ|̄ and H̄
        self._rescale([0.0, 0.0])
        self._num_added = 0  # the next entry; an entry modulo the capacity is its place
        self._refreshed = 0  # the place after the last one whose priority was renewed

    imagined: Replay | None = None
    """The buffer of imagined trajectories, if there is one."""

    def __len__(self) -> int:
        return len(self._places)

    @property
    def all_ids(self) -> list[str]:
        """The ids in replay, and those of imagined trajectories."""
        return self.ids + (self.imagined.ids if self.imagined is not None else [])

    @property
    def ids(self) -> list[str]:
        """The ids in replay, oldest first."""
        first = self._num_added % self.config.capacity
        return [name for name in self._ids[first:] + self._ids[:first] if name]

    def add(self, trajectory_id: str) -> str | None:
        """Adds a trajectory in place of the oldest one when full. Returns the id that left, if any."""
        if trajectory_id in self._places:
            return None
        entry, place = self._num_added, self._num_added % self.config.capacity
        evicted = self._ids[place]
        if evicted:
            self._clear([evicted])
        self._ids[place] = trajectory_id
        self._places[trajectory_id] = place
        self._is_here[place] = True
        self._unseen[entry] = None
        self._num_added += 1
        return evicted or None

    def discard(self, ids: Iterable[str]) -> None:
        """Takes trajectories out; ids that are not here are ignored."""
        self._clear([name for name in dict.fromkeys(ids) if name in self._places])

    def _clear(self, ids: Sequence[str]) -> None:
        places = np.array([self._places.pop(name) for name in ids], dtype=np.int64)
        for place, entry in zip(places.tolist(), self._entries(places).tolist(), strict=True):
            self._ids[place] = ""
            self._unseen.pop(entry, None)
        self._is_here[places] = False
        self._raw[places] = np.zeros(1, dtype=_RAW)
        self._tree.set(places, np.zeros(len(places)))
        self._seen.set(places, np.zeros(len(places)))

    def sample(self, count: int) -> Indices:
        """Draws `count` trajectories: unseen ones first, as they came, the rest from P with replacement.

        What is drawn for the first time cannot be drawn again before `update` has given it a priority, unless
        nothing else is there.
        """
        assert self._places, "replay is empty"
        most = math.ceil(self.config.unseen * count) if self._tree.total > 0 else count
        new = [self._unseen.popitem(last=False)[0] for _ in range(min(most, len(self._unseen)))]
        entries = np.array(new, dtype=np.int64)
        self._seen.set(entries % self.config.capacity, np.ones(len(new)))
        if (left := count - len(new)) == 0:
            return entries
        if self._tree.total > 0:
            places = self._tree.sample(left, self._rng)
        else:  # all have been seen and none has a priority
            places = self._seen.find(self._rng.integers(len(self), size=left).astype(np.float64))
        return np.concatenate([entries, self._entries(places)])

    def _entries(self, places: Indices) -> Indices:
        """The entries at `places`: of each the newest number that has its place."""
        round_, first = divmod(self._num_added, self.config.capacity)
        entries: Indices = places + round_ * self.config.capacity
        entries[places >= first] -= self.config.capacity
        return entries

    def _are_here(self, entries: Indices, places: Indices) -> NDArray[np.bool_]:
        is_new: NDArray[np.bool_] = entries >= self._num_added - self.config.capacity
        return is_new & self._is_here.take(places)

    def names(self, entries: Indices) -> list[str]:
        """The ids of what is at `entries`, all of which must still be here."""
        places = entries % self.config.capacity
        assert bool(self._are_here(entries, places).all()), "entries that have left replay have no names"
        return [self._ids[place] for place in places.tolist()]

    def update(self, entries: Indices, components: NDArray[np.float64]) -> None:
        """Stores new |δ|̄, ρ̄ and H̄; entries that have left meanwhile are ignored.

        Args:
            entries: [k] of draws or of `refresh_slice`.
            components: [k, 3] finite and >= 0.
        """
        places, raw = entries % self.config.capacity, np.ascontiguousarray(components, dtype=np.float64)
        is_here = self._are_here(entries, places)
        if not is_here.all():
            places, raw = places[is_here], raw[is_here]
        if not len(places):
            return
        self._raw[places] = raw.view(_RAW)[:, 0]
        error, entropy = self._maxima
        error = max(_DECAY * error, float(np.maximum.reduce(raw[:, 0])))
        entropy = max(_DECAY * entropy, float(np.maximum.reduce(raw[:, 2])))
        self._maxima = [error, entropy]
        scale = self._scale
        if abs(error - scale[0]) > _RESCALE * scale[0] or abs(entropy - scale[1]) > _RESCALE * scale[1]:
            self._rescale(self._maxima)
            has_mass = self._tree.masses > 0
            has_mass[places] = True
            places = np.flatnonzero(has_mass)
            raw = _numbers(self._raw[places])
        self._tree.set(places, self._masses(raw))

    def keep(self, entries: Indices) -> None:
        """For a draw whose batch came to nothing: what was drawn for the first time can be drawn again."""
        places = entries % self.config.capacity
        lost = entries[self._are_here(entries, places) & (self._tree.at(places) == 0)]
        error, entropy = self._maxima
        self.update(lost, np.tile([error, 1.0, entropy], (len(lost), 1)))

    def _rescale(self, scale: list[float]) -> None:
        w = self.config.weights
        self._scale = scale
        self._factors = np.array([w[0] / max(scale[0], 1e-12), w[1], w[2] / max(scale[1], 1e-12)])

    def _masses(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """[k] p(τ)^α of raw components [k, 3]."""
        if self.config.priority == "uniform":
            return np.ones(len(raw))
        # Column by column: the product of matrices rounds by how many rows there are.
        p: NDArray[np.float64] = sum(raw[:, i] * self._factors[i] for i in range(3))
        # The small floor keeps a trajectory that has nothing to teach today from disappearing.
        np.maximum(p, _FLOOR, out=p)
        p **= self.config.alpha
        return p

    def refresh_slice(self) -> Indices:
        """The next `REFRESH_SIZE` seen trajectories, going round, whose priorities are to be renewed."""
        num_seen = int(self._seen.total)
        if not num_seen:
            return np.empty(0, dtype=np.int64)
        first = int(self._seen.before(self._refreshed))
        numbers = (first + np.arange(min(REFRESH_SIZE, num_seen))) % num_seen
        places = self._seen.find(numbers.astype(np.float64))
        self._refreshed = (int(places[-1]) + 1) % self.config.capacity
        return self._entries(places)

    def metrics(self) -> dict[str, float]:
        """Size, unseen ones, and how concentrated the draw among the others is: 1 if all are as likely."""
        square, num_rated = self._tree.sum_of_squares, int(np.count_nonzero(self._tree.masses))
        return {
            "replay/size": float(len(self)),
            "replay/unseen": float(len(self._unseen)),
            "replay/effective_share": self._tree.total**2 / (square * num_rated) if square > 0 else 1.0,
            "replay/max_td_error": self._maxima[0],
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON-able data; arrays as base64 of their bytes, so they come back bit for bit.

        What was drawn and never updated is unseen again, before all others: after a resume the batch that was
        ready is gone, and without a priority its trajectories would not be drawn again.
        """
        waiting = np.sort(self._entries(np.flatnonzero((self._seen.masses > 0) & (self._tree.masses == 0))))
        unseen = [*waiting.tolist(), *self._unseen]
        return {
            "ids": list(self._ids),
            "unseen": [self._ids[entry % self.config.capacity] for entry in unseen],
            "raw": base64.b64encode(_numbers(self._raw).astype("<f8").tobytes()).decode(),
            "maxima": list(self._maxima),
            "scale": list(self._scale),
            "next": self._num_added,
            "refreshed": self._refreshed,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`; under another capacity the newest stay.

        Priorities are computed from their components, under the present configuration.
        """
        ids, capacity = list(state["ids"]), self.config.capacity
        raw = np.frombuffer(base64.b64decode(state["raw"], validate=True), "<f8").reshape(len(ids), 3)
        places = np.arange(len(ids))
        self._num_added, self._refreshed = int(state["next"]), int(state["refreshed"])
        if len(ids) != capacity:
            by_age = np.roll(places, -self._num_added)
            places = np.array([i for i in by_age.tolist() if ids[i]][-capacity:], dtype=np.int64)
            self._num_added, self._refreshed = len(places), 0
        size = len(places)
        self._ids = [ids[i] for i in places.tolist()] + [""] * (capacity - size)
        self._places = {name: i for i, name in enumerate(self._ids) if name}
        self._is_here = np.array([bool(name) for name in self._ids])
        waiting = np.array([self._places[name] for name in state["unseen"] if name in self._places], np.int64)
        self._unseen = OrderedDict.fromkeys(self._entries(waiting).tolist())
        self._raw = np.zeros(capacity, dtype=_RAW)
        self._raw[:size] = np.ascontiguousarray(raw[places], np.float64).view(_RAW)[:, 0]
        self._tree, self._seen = SumTree(capacity), SumTree(capacity)
        self._maxima = list(state["maxima"])
        self._rescale(list(state["scale"]))
        is_seen = self._is_here.copy()
        is_seen[waiting] = False
        seen = np.flatnonzero(is_seen)
        self._tree.set(seen, self._masses(_numbers(self._raw[seen])))
        self._seen.set(seen, np.ones(len(seen)))
        self._rng.bit_generator.state = state["rng"]


class MixedReplay(Replay):
    """Replay of real trajectories, and one of imagined ones beside it, whose entries are negative.

    A draw has as large a share of imagined ones as there are, but at most `max_share`. Real ones come first.
    """

    imagined: Replay

    def __init__(self, config: ReplayConfig, seed: int, max_share: float) -> None:
        super().__init__(config, seed)
        self.imagined, self._max_share = Replay(config, seed + 1), max_share

    def discard(self, ids: Iterable[str]) -> None:
        names = list(ids)
        super().discard(names)
        self.imagined.discard(names)

    def sample(self, count: int) -> Indices:
        imagined = len(self.imagined)
        own = min(int(self._max_share * count), round(count * imagined / (imagined + len(self))))
        real = super().sample(count - own)
        return np.concatenate([real, ~self.imagined.sample(own)]) if own else real

    def names(self, entries: Indices) -> list[str]:
        real = entries >= 0
        return super().names(entries[real]) + self.imagined.names(~entries[~real])

    def update(self, entries: Indices, components: NDArray[np.float64]) -> None:
        real = entries >= 0
        super().update(entries[real], components[real])
        self.imagined.update(~entries[~real], components[~real])

    def keep(self, entries: Indices) -> None:
        real = entries >= 0
        super().keep(entries[real])
        self.imagined.keep(~entries[~real])

    def refresh_slice(self) -> Indices:
        return np.concatenate([super().refresh_slice(), ~self.imagined.refresh_slice()])

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "replay/imagined": float(len(self.imagined))}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "imagined": self.imagined.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "imagined" in state:
            self.imagined.load_state_dict(state["imagined"])


def _numbers(raw: NDArray[np.void]) -> NDArray[np.float64]:
    """[k, 3] the components of `raw` [k]."""
    return raw.view(np.float64).reshape(-1, 3)
