"""`distrl report`: the report of a run, written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.checkpoints import point
from distrl.core.rundir import RunDir
from distrl.evaluator.results import (
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    split_result,
)

runner = CliRunner()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(Config(name="demo", runs_dir=str(tmp_path)))


@pytest.mark.needs("jinja2")
def test_evaluations_are_compared_in_the_order_of_their_checkpoints(run: RunDir) -> None:
    for name in ("step_100", "step_0", "step_20", "step_7"):
        spec = EvaluationSpec(suite="s", splits=("test",), subject=Subject(kind="checkpoint", name=name))
        directory = EvaluationDirectory(run.evaluations / name, spec)
        if name != "step_7":  # this one was interrupted
            directory.finish(Evaluation(spec=spec, splits={"test": split_result([])}))
        directory.close()
    (run.checkpoints / "step_100").mkdir()
    point(run.checkpoints, "final", "step_100")
    result = runner.invoke(app, ["report", str(run.path)])
    assert result.exit_code == 0
    assert result.stdout.strip() == str(run.report)
    labels = list(json.loads(run.report.with_suffix(".json").read_text())["evaluations"])
    assert labels == ["warm start", "step_20", "after training"]


@pytest.mark.needs("jinja2")
def test_during_a_run_the_report_shows_what_there_is(run: RunDir, tmp_path: Path) -> None:
    rows = [{"step": i, "time": i, "episodes": 10 * i, "train/success": 0.1 * i} for i in range(1, 5)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = runner.invoke(app, ["report", str(run.path)])
    assert result.exit_code == 0, result.output
    page = run.report.read_text()
    assert "This run is not complete: 40 of 2,000 training episodes so far." in page
    assert "Learning curve" in page
    assert runner.invoke(app, ["report", str(tmp_path / "nowhere")]).exit_code == 3
