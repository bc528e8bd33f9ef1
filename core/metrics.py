"""Metrics: numbers by name, one JSON object a line in metrics.jsonl, and to trackers such as TensorBoard.

`step` is the number of policy updates, `time` is Unix time; docs/operations.md lists the names.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distrl.core.files import writing

if TYPE_CHECKING:
    from PIL.Image import Image


class Buckets:
    """Ranges edge_i … edge_{i+1} − 1 of whole numbers; the last one has no end.

    Attributes:
        labels: A name for each range: "0", "2-3" and "32+".
    """

    def __init__(self, *edges: int) -> None:
        self._edges = edges
        ranges = [(low, end - 1) for low, end in itertools.pairwise(edges)]
        self.labels = [str(low) if low == end else f"{low}-{end}" for low, end in ranges] + [f"{edges[-1]}+"]

    def __len__(self) -> int:
        return len(self._edges)

    def index(self, values: ArrayLike) -> NDArray[np.int64]:
        """The bucket of each value; values below the first edge are in the first bucket."""
        places = np.searchsorted(self._edges, np.asarray(values), side="right") - 1
        return np.maximum(places, 0).astype(np.int64)


VERSIONS = Buckets(0, 1, 2, 4, 8, 16, 32)
"""Staleness, in weight versions."""


FAMILIES = frozenset({
    "advantage", "batch", "cloning_updates", "env_steps", "episode", "episodes", "eval",
    "gradients", "groups", "inference", "ingest", "judge", "loss", "mismatch", "off_policy", "policy",
    "rejected", "replay", "resumed", "reward", "scheduler", "simulation", "solved", "staleness", "step",
    "throughput", "time", "train", "value", "versions", "weights", "workers", "world",
})  # fmt: skip
"""What the names in metrics.jsonl begin with, up to the first slash."""

UPDATE_PARTS = ("score", "batch", "train", "refresh", "publish")
"""What an update consists of, in this order; each is seconds, as `time/PART_s`."""

IDLE = "time/idle_s"
"""Seconds before an update in which the learner waited for episodes."""

RESUMED = "resumed"
"""Marks the row where a run continues from a checkpoint; its `step` is the checkpoint's."""


PHASE_DONE, PHASE_TOTAL = "phase/done", "phase/total"
"""In broadcasts only: how much of the present phase is done, and of how much; a total of 0 is unknown."""


Values = Mapping[str, "float | Image"]
"""What a tracker shows at a step: numbers and pictures by name."""


class Tracker(Protocol):
    """Shows the same numbers elsewhere, and pictures; see `distrl.learner.trackers`."""

    def log(self, step: int, values: Values | Callable[[], Values]) -> None:
        """Takes values, or a function that makes them, which the tracker may call later.

        After values with `RESUMED` those of later steps so far are invalid.
        """

    def finish(self) -> None:
        """Hands over what is left."""


class MetricsWriter:
    """Appends to metrics.jsonl, a line at a time, so that readers and a crash see whole lines.

    Raises:
        RunDirectoryError: The disk is full, or the file not writable; so do `write`, `resume` and `close`.
    """

    def __init__(
        self, path: Path, trackers: Sequence[Tracker] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._trackers, self._clock = trackers, clock
        self._path = path
        with writing(path):
            self._file = path.open("a", encoding="utf-8", buffering=1)
            self._has_rows = path.stat().st_size > 0
            if self._has_rows:
                with path.open("rb") as rows:
                    rows.seek(-1, os.SEEK_END)
                    if rows.read(1) != b"\n":
                        self._file.write("\n")  # ends a line that a crash cut off

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes one line. Numbers that are not finite are null there, and left out elsewhere."""
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "time": round(self._clock(), 3)}
        # Seven significant digits are all that a float32 has.
        values = {name: float(f"{finite[name]:.7g}") if name in finite else None for name in metrics}
        with writing(self._path):
            self._file.write(json.dumps(row | values) + "\n")
        for tracker in self._trackers:
            tracker.log(step, finite)

    def show(self, step: int, pictures: Callable[[], Values]) -> None:
        """Lets trackers show pictures, which they make when they get to it."""
        for tracker in self._trackers:
            tracker.log(step, pictures)

    def resume(self, step: int) -> None:
        """Records that the run continues from `step`: later rows so far belong to what was rolled back.

        A file without rows stays empty.
        """
        if self._has_rows:
            self.write(step, {RESUMED: 1.0})

    def close(self) -> None:
        """Closes the file and the trackers."""
        for tracker in self._trackers:
            tracker.finish()
        with writing(self._path):
            self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, float]]:
    """The rows of a metrics.jsonl; a line that a crash cut off is skipped, and so is what is not finite."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        yield from parse_rows(file)


def parse_rows(lines: Iterable[str]) -> Iterator[dict[str, float]]:
    """The rows in the lines of a metrics.jsonl; see `read_metrics`."""
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            yield {name: value for name, value in numbers.items() if abs(value) < math.inf}
