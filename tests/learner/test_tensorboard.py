"""TensorBoard: what was written is in the event file, and what was rolled back is not."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("tensorboard", reason="needs tensorboard: not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from distrl.core.metrics import MetricsWriter
from distrl.learner.build import tensorboard_sinks


def test_what_was_rolled_back_is_gone(tmp_path) -> None:
    for first in (1, 4):  # the second process continues from step 3, where the checkpoint is
        writer = MetricsWriter(tmp_path / "metrics.jsonl", tensorboard_sinks(tmp_path))
        writer.resume(first - 1)
        for step in range(first, first + 5):
            writer.write(step, {"loss/policy": float(first)})
        writer.close()
        time.sleep(1.0)  # files are read in the order of the seconds in their names
    scalars = EventAccumulator(str(tmp_path)).Reload().Scalars("loss/policy")
    found = [(scalar.step, scalar.value) for scalar in scalars]
    assert found == [*((step, 1.0) for step in (1, 2, 3)), *((step, 4.0) for step in range(4, 9))]
