"""The TensorBoard sink of the metrics, where the package tensorboard is installed."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.core.metrics import Histogram, Sink

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardSink:
    """Writes scalars and histograms to event files in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer = self._open(None)

    def _open(self, purge_step: int | None) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._directory), purge_step=purge_step, flush_secs=10)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink.write`."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """See `Sink.write_histogram`. The last bucket, which has no end, ends at twice its beginning."""
        edges, counts = histogram.buckets.edges, histogram.counts
        if not histogram.total:
            return
        lower = [*edges, 2.0 * edges[-1]]
        middle = [(a + b) / 2 for a, b in itertools.pairwise(lower)]
        pairs = list(zip(middle, counts, strict=True))
        self._writer.add_histogram_raw(
            name,
            min=min(edge for edge, count in zip(edges, counts, strict=True) if count),
            max=max(edge for edge, count in zip(lower[1:], counts, strict=True) if count),
            num=histogram.total,
            sum=sum(value * count for value, count in pairs),
            sum_squares=sum(value * value * count for value, count in pairs),
            bucket_limits=lower[1:],
            bucket_counts=list(counts),
            global_step=step,
        )

    def resume(self, step: int) -> None:
        """See `Sink.resume`. TensorBoard drops what its earlier files have of later steps."""
        self._writer.close()
        self._writer = self._open(step + 1)

    def close(self) -> None:
        """See `Sink.close`."""
        self._writer.close()


def tensorboard_sinks(directory: Path) -> list[Sink]:
    """A sink if TensorBoard is installed, else none."""
    if importlib.util.find_spec("tensorboard") is None:
        return []
    return [TensorBoardSink(directory)]
