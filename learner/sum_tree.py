"""A sum tree over non-negative masses: draw an index with probability mass / total; vectorised, O(log N).

    masses ── 16 to 1 ──► … ── 16 to 1 ──► top: at most 4096 sums, cumulated; one binary search finds one

A batch goes down all at once, a level at a time. NumPy's cost is in its calls and the memory's in the lines
it fetches, so a node has 16 children whose cumulated sums lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Masses = NDArray[np.float64]

_SHIFT = 4
_FAN_OUT = 1 << _SHIFT
_TOP = 4096


class SumTree:
    """Levels of sums, the masses first; node i of a level has children 16 i … 16 i + 15 in the level below.

    `set` writes masses and marks the sums that they change; these are computed from their present children
    when one is next needed. So equal masses give an equal tree, bit for bit, in whatever order they
    were set, and what is set several times between two draws is summed once.
    """

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self.capacity = capacity
        sizes = [capacity]
        while sizes[-1] > _TOP:
            sizes.append(-(-sizes[-1] // _FAN_OUT))
        # Below the top every node has all its children; those beyond the last one stay 0.
        self._levels: list[Masses] = [np.zeros(size * _FAN_OUT) for size in sizes[1:]]
        self._levels.append(np.zeros(sizes[-1]))
        # [nodes, 16] for each level above the masses: what lies before each child within its node.
        self._before: list[Masses] = [np.zeros((size, _FAN_OUT)) for size in sizes[1:]]
        self._top: Masses = np.zeros(sizes[-1] + 1)  # what lies before each node of the last level; the total
        self._stale: list[Indices] = []
        self._num_stale = 0

    @property
    def total(self) -> float:
        self._sum_stale()
        return float(self._top[-1])

    @property
    def sum_of_squares(self) -> float:
        return float(self._levels[0] @ self._levels[0])

    @property
    def masses(self) -> Masses:
        """[capacity] a copy of the masses."""
        masses: Masses = self._levels[0][: self.capacity].copy()
        return masses

    def at(self, indices: Indices) -> Masses:
        return self._levels[0].take(indices)

    def set(self, indices: Sequence[int] | Indices, masses: Sequence[float] | Masses) -> None:
        """Sets the masses of `indices`; when an index occurs twice, the last one counts."""
        nodes = np.array(indices, dtype=np.int64)  # a copy: it is kept until it is summed
        values = np.asarray(masses, dtype=np.float64)
        assert nodes.shape == values.shape
        if not len(nodes):
            return
        assert np.maximum.reduce(nodes.view(np.uint64)) < self.capacity  # a negative one is a large one too
        assert 0 <= np.minimum.reduce(values) <= np.maximum.reduce(values) < np.inf, "masses: finite and >= 0"
        self._levels[0][nodes] = values
        self._stale.append(nodes)
        self._num_stale += len(nodes)
        num_parents = -(-self.capacity // _FAN_OUT)
        if self._num_stale > 2 * num_parents:  # then all of them may be stale, which takes less room to note
            self._stale, self._num_stale = [np.arange(0, self.capacity, _FAN_OUT)], num_parents

    def before(self, index: int) -> float:
        self._sum_stale()
        total = 0.0
        for before in self._before:
            total += float(before[index >> _SHIFT, index % _FAN_OUT])
            index >>= _SHIFT
        return total + float(self._top[index])

    def find(self, points: Masses) -> Indices:
        """For each point in [0, total) the index whose interval of the cumulated masses holds it.

        An index of mass 0 is never returned.
        """
        assert self.total > 0, "nothing to draw from"
        nodes = self._top.searchsorted(points, side="right") - 1
        rest = points - self._top.take(nodes)
        rows = np.arange(len(points)) * _FAN_OUT
        for level in reversed(self._before):
            before = level.take(nodes, axis=0)
            # The last child that begins at or before the point. (The first one begins at 0, so the smallest
            # answer is its own, 0, only if all are true.) An empty child ends where it begins: the next one
            # is taken.
            children = ((before <= rest[:, None]).argmin(axis=1) - 1) % _FAN_OUT
            rest -= before.ravel().take(rows + children)
            nodes = (nodes << _SHIFT) + children
        # Rounding can bring a point to the very end of its node, behind which there may be empty ones.
        while (is_empty := self.at(nodes) == 0.0).any():
            nodes -= is_empty
        return nodes

    def sample(self, count: int, rng: np.random.Generator) -> Indices:
        points = rng.random(count) * self.total
        order = points.argsort()  # memory is read from its beginning to its end
        result = np.empty(count, dtype=np.int64)
        result[order] = self.find(points[order])
        return result

    def _sum_stale(self) -> None:
        """Computes the sums that have changed: in each level at most one node per mass."""
        if not self._stale:
            return
        nodes = self._stale[0] if len(self._stale) == 1 else np.concatenate(self._stale)
        self._stale, self._num_stale = [], 0
        for level, before, sums in zip(self._levels, self._before, self._levels[1:], strict=False):
            nodes = nodes >> _SHIFT
            if len(nodes) >= len(before):
                nodes = np.arange(len(before))
            cumulated = _cumulated(level.reshape(-1, _FAN_OUT).take(nodes, axis=0))
            before[nodes] = cumulated[:-1].T
            sums[nodes] = cumulated[-1]
        np.cumsum(self._levels[-1], out=self._top[1:])


def _cumulated(masses: Masses) -> Masses:
    """[1 + _FAN_OUT, nodes] 0 and the cumulated sums of the children `masses` [nodes, _FAN_OUT] of each node.

    They are added one after the other: so a sum does not depend on how many nodes are summed at once, and the
    sums never fall, nor rise where a child is empty.
    """
    result = np.zeros((1 + _FAN_OUT, len(masses)))
    result[1:] = masses.T
    previous = result[1]
    for following in result[2:]:
        np.add(previous, following, out=following)
        previous = following
    return result
