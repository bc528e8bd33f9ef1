"""A sum tree over non-negative masses: draw an index with probability mass / total; vectorised, O(log N)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Masses = NDArray[np.float64]


class SumTree:
    """A complete binary tree in one array: node i has children 2i and 2i + 1, leaves start at `_base`.

    A node is always computed as left + right of its present children, so equal leaves give an equal tree, bit
    for bit, in whatever order they were set.
    """

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self.capacity = capacity
        self._base = 1 << (capacity - 1).bit_length()
        self._nodes: Masses = np.zeros(2 * self._base)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self._nodes[1])

    @property
    def masses(self) -> Masses:
        """[capacity] a copy of the masses."""
        masses: Masses = self._nodes[self._base : self._base + self.capacity].copy()
        return masses

    def set(self, indices: Sequence[int] | Indices, masses: Sequence[float] | Masses) -> None:
        """Sets the masses of `indices`; when an index occurs twice, the last one counts."""
        nodes = self._base + np.asarray(indices, dtype=np.int64)
        values = np.asarray(masses, dtype=np.float64)
        assert nodes.shape == values.shape
        assert not len(nodes) or (nodes.min() >= self._base and nodes.max() < self._base + self.capacity)
        assert bool((np.isfinite(values) & (values >= 0)).all()), "masses must be finite and >= 0"
        self._nodes[nodes] = values
        while len(nodes) and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, points: Masses) -> Indices:
        """For each point in [0, total) the index whose interval of the cumulated masses holds it.

        An index of mass 0 is never returned while `total` > 0.
        """
        assert self.total > 0, "nothing to draw from"
        remaining = np.asarray(points, dtype=np.float64).copy()
        nodes = np.ones(len(remaining), dtype=np.int64)
        for _ in range(self._base.bit_length() - 1):
            left = 2 * nodes
            left_mass = self._nodes[left]
            # Rounding can leave a point at the very end of a subtree; an empty right side is never entered.
            go_right = (remaining >= left_mass) & (self._nodes[left + 1] > 0)
            remaining = np.where(go_right, remaining - left_mass, remaining)
            nodes = np.where(go_right, left + 1, left)
        return nodes - self._base

    def sample(self, count: int, rng: np.random.Generator) -> Indices:
        """`count` independent draws, with replacement."""
        return self.find(rng.random(count) * self.total)
