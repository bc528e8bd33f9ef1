"""The learning curves and signals of a run, as the page draws them: those of its report, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from distrl.core.metrics import RESUMED
from distrl.evaluator.report.chart import thin
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, EVALUATIONS, LEARNER_CLOCK, UPDATES, RunMetrics
from distrl.evaluator.report.training import (
    FRESHNESS_SIGNALS,
    SIGNALS,
    TRAIN_SUCCESS,
    SignalSpec,
    bounds,
    learning_curve,
    signal_series,
)

MAX_POINTS, MAX_NAMES = 200, 200
RETURNS: SignalSpec = (
    "Return",
    "Mean return of an episode",
    (("train/return", "training"), ("eval/return", "evaluation")),
)
CHARTS = (RETURNS, *SIGNALS, *FRESHNESS_SIGNALS)
"""The signals of a run's report; returns are those of continuous control."""
_NAMES = {name for _, _, series in CHARTS for name, _ in series}
_NAMES |= {UPDATES, EPISODES, LEARNER_CLOCK, TRAIN_SUCCESS, RESUMED, "time"}


def kept(row: Mapping[str, float]) -> dict[str, float]:
    """The small part of a row of metrics that curves need; bounded, because a learner may send anything."""
    found = (name for name in row if name in _NAMES or (name.startswith(EVALUATIONS) and len(name) < 200))
    return {name: row[name] for name in islice(found, MAX_NAMES)}


def curves(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Success over episodes and over minutes, of validation with its interval, and signals over updates."""
    metrics = RunMetrics(rows)
    signals = []
    for title, note, series in signal_series(metrics, CHARTS):
        lines = [{"label": label, "points": points} for _, label, points in series if points]
        if lines:
            signals.append({"title": title, "note": note, "lines": lines})
    success = {
        "episodes": _success(metrics, EPISODES, 1.0),
        "minutes": _success(metrics, ELAPSED, 1.0 / 60.0),
    }
    return {"success": success, "signals": signals}


def _success(metrics: RunMetrics, x: str, scale: float) -> list[dict[str, Any]]:
    curve = learning_curve(metrics, x)
    train = [(at * scale, rate) for at, rate in thin(curve.train, MAX_POINTS)]
    validation = [
        (at * scale, rate, *bounds(min(1.0, max(0.0, rate)), max(0, n)))
        for (at, rate), n in zip(curve.validation, curve.counts, strict=True)
    ]
    lines = [("training episodes", train), ("validation, with 95% interval", validation)]
    return [{"label": label, "points": points} for label, points in lines if points]
