"""TensorBoard: what was written is in the event file."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("tensorboard", reason="needs tensorboard: not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from distrl.core.metrics import VERSIONS, MetricsWriter
from distrl.learner.build import tensorboard_sinks


def test_scalars_and_histograms_come_back(tmp_path) -> None:
    (sink,) = tensorboard_sinks(tmp_path)
    sink.write(3, {"staleness/2-3/success": 0.25})
    sink.write_histogram(3, "replay_age/versions", VERSIONS.count([0, 0, 5, 40]))
    sink.write_histogram(4, "replay_age/versions", VERSIONS.count(()))
    sink.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0}).Reload()
    (scalar,) = events.Scalars("staleness/2-3/success")
    assert (scalar.step, scalar.value) == (3, 0.25)
    (histogram,) = events.Histograms("replay_age/versions")
    value = histogram.histogram_value
    assert histogram.step == 3, "an empty one is left out"
    assert (value.num, value.min, value.max) == (4, 0, 64)
    pairs = [(limit, n) for limit, n in zip(value.bucket_limit, value.bucket, strict=True) if n]
    assert pairs == [(1, 2), (8, 1), (64, 1)]


def test_what_was_rolled_back_is_gone(tmp_path) -> None:
    for first in (1, 4):  # the second process goes on from step 3, where the checkpoint is
        writer = MetricsWriter(tmp_path / "metrics.jsonl", tensorboard_sinks(tmp_path))
        writer.resume(first - 1)
        for step in range(first, first + 5):
            writer.write(step, {"loss/policy": float(first)}, {"replay_age/versions": VERSIONS.count([0])})
        writer.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0}).Reload()
    told = [(scalar.step, scalar.value) for scalar in events.Scalars("loss/policy")]
    assert told == [*((step, 1.0) for step in (1, 2, 3)), *((step, 4.0) for step in range(4, 9))]
    assert [one.step for one in events.Histograms("replay_age/versions")] == list(range(1, 9))
