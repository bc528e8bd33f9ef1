"""The TensorBoard sink of the metrics, where the package tensorboard is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from distrl.core.metrics import Sink


class TensorBoardSink:
    """Writes scalars to event files in `directory`."""

    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), flush_secs=10)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink.write`."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See `Sink.close`."""
        self._writer.close()


def tensorboard_sinks(directory: Path) -> list[Sink]:
    """A sink if TensorBoard is installed, else none."""
    if importlib.util.find_spec("tensorboard") is None:
        return []
    return [TensorBoardSink(directory)]
