"""Buckets of powers of two, by which staleness and ages are counted, and histograms over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Buckets:
    """Ranges [edge_i, edge_{i+1}) of whole numbers or of a continuous quantity; the last one has no end.

    Attributes:
        edges: The lower ends, rising.
        is_whole: Whether only whole numbers are counted, which the labels show.
    """

    edges: tuple[float, ...]
    is_whole: bool = True

    def __len__(self) -> int:
        return len(self.edges)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each range: "0", "2-3" and "32+"; of other than whole numbers "1-2" for [1, 2)."""
        ends = [end - 1 if self.is_whole else end for end in self.edges[1:]]
        pairs = zip(self.edges, ends, strict=False)
        names = [f"{low:g}" if self.is_whole and low == end else f"{low:g}-{end:g}" for low, end in pairs]
        return (*names, f"{self.edges[-1]:g}+")

    def index(self, values: ArrayLike) -> NDArray[np.int64]:
        """The bucket of each value; what lies below the first edge counts to the first bucket."""
        places = np.searchsorted(self.edges, np.asarray(values, dtype=np.float64), side="right") - 1
        return np.maximum(places, 0).astype(np.int64)

    def count(self, values: ArrayLike) -> Histogram:
        """How many values fall into each bucket."""
        counts = np.bincount(self.index(values), minlength=len(self.edges))
        return Histogram(self, tuple(int(count) for count in counts))


@dataclass(frozen=True)
class Histogram:
    """How many there are in each of `buckets`."""

    buckets: Buckets
    counts: tuple[int, ...]

    def __add__(self, other: Histogram) -> Histogram:
        assert self.buckets == other.buckets, "histograms over different buckets"
        return Histogram(self.buckets, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """How many there are in all."""
        return sum(self.counts)

    def as_metrics(self, name: str) -> dict[str, int]:
        """`name/LABEL` → count, without the empty buckets."""
        pairs = zip(self.buckets.labels, self.counts, strict=True)
        return {f"{name}/{label}": count for label, count in pairs if count}


VERSIONS = Buckets((0, 1, 2, 4, 8, 16, 32))
"""Staleness, in weight versions."""

MINUTES = Buckets((0, 1, 2, 4, 8, 16, 32, 64), is_whole=False)
"""Ages, in minutes."""
