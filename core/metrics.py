"""Metrics: numbers by name, one JSON object a line in metrics.jsonl, and to further sinks (TensorBoard).

`step` is the number of policy updates, `time` is Unix time; docs/operations.md lists the names.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distrl.core.files import writing


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


FAMILIES = frozenset({
    "advantage", "batch", "cloning_updates", "drawn_age", "env_steps", "episode", "episodes", "eval",
    "gradients", "groups", "inference", "ingest", "judge", "loss", "mismatch", "off_policy", "policy",
    "rejected", "replay", "replay_age", "resumed", "reward", "scheduler", "solved", "staleness", "step",
    "throughput", "time", "train", "value", "versions", "weights", "workers",
})  # fmt: skip
"""What the names in metrics.jsonl begin with, up to the first slash."""

RESUMED = "resumed"
"""Marks the row where a run continues from a checkpoint; its `step` is the checkpoint's."""


PHASE_DONE, PHASE_TOTAL = "phase/done", "phase/total"
"""In broadcasts only: how much of the present phase is done, and of how much; a total of 0 is unknown."""


class Sink(Protocol):
    """Takes the same numbers to another place."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Notes `metrics` at `step`."""
        ...

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Notes counts by bucket at `step`."""
        ...

    def resume(self, step: int) -> None:
        """Drops rows of later steps: the run continues from `step`."""
        ...

    def close(self) -> None:
        """Flushes and closes."""
        ...


class MetricsWriter:
    """Appends to metrics.jsonl, a line at a time, so that readers and a crash see whole lines.

    Args:
        path: The file; what is in it stays.
        sinks: Others that get the same numbers.
        clock: Unix time.

    Raises:
        RunDirectoryError: The disk is full, or the file not writable; so do `write`, `resume` and `close`.
    """

    def __init__(
        self, path: Path, sinks: Sequence[Sink] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._sinks, self._clock = sinks, clock
        self._path = path
        with writing(path):
            self._has_rows = path.exists() and path.stat().st_size > 0
            _end_last_line(path)
            self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(
        self, step: int, metrics: Mapping[str, float], histograms: Mapping[str, Histogram] | None = None
    ) -> None:
        """Writes one line. What is not finite becomes null there and is left out elsewhere.

        Args:
            step: Policy updates so far.
            metrics: Numbers by name.
            histograms: By name. The line holds the count of each bucket that is not empty, as NAME/LABEL.
        """
        histograms = histograms or {}
        counts = {k: v for name, one in histograms.items() for k, v in one.as_metrics(name).items()}
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "time": round(self._clock(), 3)}
        values = {name: _short(finite[name]) if name in finite else None for name in metrics}
        with writing(self._path):
            self._file.write(json.dumps(row | values | counts) + "\n")
            for sink in self._sinks:
                sink.write(step, finite)
                for name, histogram in histograms.items():
                    sink.write_histogram(step, name, histogram)

    def resume(self, step: int) -> None:
        """Records that the run continues from `step`: later rows so far belong to what was rolled back.

        A file without rows stays empty.
        """
        if self._has_rows:
            for sink in self._sinks:
                sink.resume(step)
            self.write(step, {RESUMED: 1.0})

    def close(self) -> None:
        """Closes the file and the sinks."""
        with writing(self._path):
            self._file.close()
            for sink in self._sinks:
                sink.close()


def _short(value: float) -> float:
    """Seven significant digits: all that a float32 has."""
    return float(f"{value:.7g}")


def _end_last_line(path: Path) -> None:
    """Ends a line that a crash cut off, so that the next one starts on its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")


def read_metrics(path: Path) -> Iterator[dict[str, float]]:
    """The rows of a metrics.jsonl; a line that a crash cut off is skipped, and so are null values."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield {name: value for name, value in row.items() if isinstance(value, int | float)}
