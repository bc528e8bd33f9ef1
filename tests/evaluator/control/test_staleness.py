"""Staleness in the report of continuous control: tables of a run added up, shown and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.evaluator.control.report import write_control_report
from distrl.evaluator.control.staleness import StalenessRow, staleness_rows
from distrl.evaluator.report.metrics import RunMetrics

ROWS = [
    {
        "staleness/0/gradients": 1.0,
        "staleness/0/steps": 64.0,
        "staleness/0/episodes": 0.0,
        "staleness/0/kl": 0.1,
        "staleness/0/silenced_fraction": 0.0,
    },
    {
        "staleness/0/gradients": 2.0,
        "staleness/0/steps": 192.0,
        "staleness/0/episodes": 2.0,
        "staleness/0/return": -5.0,
        "staleness/0/kl": 0.5,
        "staleness/0/silenced_fraction": 0.2,
        "staleness/4-7/gradients": 1.0,
        "staleness/4-7/steps": 64.0,
        "staleness/4-7/episodes": 0.0,
        "staleness/4-7/kl": 0.3,
        "staleness/4-7/silenced_fraction": 1.0,
    },
    {"train/return": 3.0},
]
FRESH = StalenessRow("0", 3, 256, 2, -5.0, pytest.approx(0.4), pytest.approx(0.15))
STALE = StalenessRow("4-7", 1, 64, 0, None, 0.3, 1.0)


def test_means_are_over_all_steps_and_episodes_of_the_run() -> None:
    assert staleness_rows(RunMetrics(ROWS)) == [FRESH, STALE]
    assert staleness_rows(RunMetrics(ROWS[2:])) == []


@pytest.mark.needs("jinja2")
def test_they_stand_in_the_report(tmp_path: Path) -> None:
    page = write_control_report(tmp_path, "r", {}, RunMetrics(ROWS)).read_text()
    assert "<td>4–7</td>" in page
    assert "-5.00" in page.replace("−", "-")
    data = json.loads((tmp_path / "report.json").read_text())["staleness"]
    assert [(row["label"], row["gradients"], row["mean_return"]) for row in data] == [
        ("0", 3, -5.0),
        ("4-7", 1, None),
    ]
    assert "<h2>Staleness</h2>" not in write_control_report(tmp_path, "r", {}, RunMetrics([])).read_text()
