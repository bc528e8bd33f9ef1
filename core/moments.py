"""Running moments of observations and returns, merged over many workers without counting anything twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Moments:
    """Count, mean and M2 = Σ (x − mean)² of vectors of d numbers.

    A worker collects those of what is new since the learner took its last ones; the learner merges them into
    the run's. So each number is counted once, whichever way the work was split.
    """

    count: float
    mean: Array
    m2: Array

    @classmethod
    def empty(cls, size: int) -> Moments:
        """Of no vectors."""
        return cls(0.0, np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, x: NDArray[np.floating]) -> Moments:
        """Of the rows of `x`, [n, d]."""
        rows = np.asarray(x, np.float64)
        if not len(rows):
            return cls.empty(rows.shape[1])
        mean = rows.mean(axis=0)
        return cls(float(len(rows)), mean, ((rows - mean) ** 2).sum(axis=0))

    def merge(self, other: Moments) -> None:
        """Adds `other` (Chan, Golub & LeVeque 1979, eq. 2.1).

        n = n_a + n_b,  δ = mean_b − mean_a:  mean = mean_a + δ n_b / n,  M2 = M2_a + M2_b + δ² n_a n_b / n
        """
        if other.count == 0.0:
            return
        count = self.count + other.count
        delta = other.mean - self.mean
        self.mean = self.mean + delta * (other.count / count)
        self.m2 = self.m2 + other.m2 + delta * delta * (self.count * other.count / count)
        self.count = count

    def std(self, floor: float = 1e-4) -> Array:
        """√(M2 / n), at least `floor`; 1 while nothing was counted."""
        if self.count == 0.0:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.m2 / self.count), floor)

    def copy(self) -> Moments:
        """Moments of their own, equal to these."""
        return Moments(self.count, self.mean.copy(), self.m2.copy())
