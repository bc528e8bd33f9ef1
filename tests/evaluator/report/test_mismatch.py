"""The train–inference mismatch in a run's report: numbers over all measurements, alarms, charts."""

from __future__ import annotations

import pytest

from distrl.configs.schema import Config
from distrl.core.metrics import MetricsWriter
from distrl.core.rundir import RunDir
from distrl.evaluator.report import write_run_report
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import Alarm, mismatch, mismatch_data


def row(
    step: int, kl: float, tokens: int = 100, outside: float = 0.0, alarm: bool = False
) -> dict[str, float]:
    numbers = {"kl": kl, "kl_max": 10 * kl, "outside": outside, "tokens": tokens}
    numbers |= {"kl_limit": 0.05, "kl_recent": kl, "alarm": float(alarm)}
    return {
        "step": step,
        "time": float(step),
        **{f"mismatch/{name}": value for name, value in numbers.items()},
    }


ROWS = [
    row(0, 1e-9),
    row(5, 0.0),
    row(10, 0.4, tokens=300, outside=0.5, alarm=True),
    {"step": 15, "time": 15.0, "mismatch/tokens": 0.0, "mismatch/kl_limit": 0.05, "mismatch/alarm": 1.0},
    row(20, 1e-9),
    row(25, 0.2, alarm=True),
]


def test_the_numbers_are_of_all_measurements() -> None:
    data = mismatch_data(RunMetrics(ROWS))
    assert data is not None
    assert data["measurements"] == 5
    assert data["tokens"] == 700
    assert data["kl"] == 1e-9
    assert data["kl_max"] == 4.0
    assert data["outside"] == pytest.approx(150 / 700)


def test_alarms_are_stretches_of_updates() -> None:
    found = mismatch(RunMetrics(ROWS))
    assert found is not None
    assert found.numbers.alarms == [Alarm(10, 20, False), Alarm(25, 25, True)]
    assert [signal.title for signal in found.signals] == ["KL, log₁₀", "Ratios off by 10%"]


def test_a_run_that_measured_nothing_has_no_section() -> None:
    assert mismatch(RunMetrics([])) is None
    assert mismatch(RunMetrics([{"step": 5, "mismatch/tokens": 0.0, "mismatch/alarm": 0.0}])) is None
    assert mismatch_data(RunMetrics([])) is None


@pytest.mark.needs("jinja2")
def test_the_page_says_it(tmp_path) -> None:
    config = Config(name="run", runs_dir=str(tmp_path))
    run = RunDir.create_or_open(config, resume=False)
    run.write_config(config)
    writer = MetricsWriter(run.metrics)
    for one in ROWS:
        writer.write(int(one["step"]), {name: value for name, value in one.items() if "/" in name})
    writer.close()
    page = write_run_report(run.path, {}).read_text()
    assert "Train–inference mismatch" in page
    assert "updates 10 to 20" in page
    assert "from update 25 to the end" in page
    assert "median 1e−09" in page
