"""The commands with continuous control, and the report."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import json
import threading
import warnings
from pathlib import Path

import yaml
from appo_world import config_data
from typer.testing import CliRunner

from distrl.appo.measure import load_returns, measure
from distrl.appo.policy import GaussianPolicy, PolicySpec
from distrl.appo.report import write_report
from distrl.cli.main import app
from distrl.configs.load import check_config, load_config
from distrl.core.checkpoints import point
from distrl.core.errors import CheckpointError, ConfigError, RunDirectoryError
from distrl.core.rundir import RunDir
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.results import RESULTS_FILE, Subject
from distrl.evaluator.runner import EvaluationStopped


def write(folder: Path) -> str:
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump(config_data() | {"runs_dir": str(folder / "runs")}))
    return str(file)


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        ("serve-inference", [], "has no inference servers"),
        ("evaluate", ["--learner", "tcp://127.0.0.1:9"], "policies are not served"),
        ("evaluate", ["--agent", "expert"], "cannot be measured as 'expert'"),
        ("evaluate", ["--agent", "random", "--split", "test"], "no splits, seeds or baseline"),
        ("train", ["--set", "env.options={id: NoSuch-v0}"], "gymnasium cannot make 'NoSuch-v0'"),
        ("run-learner", ["--set", "env.options={id: NoSuch-v0}"], "gymnasium cannot make 'NoSuch-v0'"),
    ],
)
def test_commands_that_do_not_apply_are_refused(
    tmp_path: Path, command: str, options: list[str], reason: str
) -> None:
    result = CliRunner().invoke(app, [command, write(tmp_path), *options])
    assert result.exit_code == ConfigError.exit_code, result.output
    assert reason in result.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--tasks"], ["export", "--dataset", "out"]])
def test_a_run_has_no_trajectories_to_show(tmp_path: Path, monkeypatch, command: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir.create(load_config(write(tmp_path)))
    result = CliRunner().invoke(app, [*command, str(run.path)])
    assert result.exit_code == ConfigError.exit_code, result.output
    assert "stores no trajectories" in result.stderr


def save(folder: Path, env_id: str = "appo_envs:Aim-v0", size: int = 2) -> Subject:
    policy = GaussianPolicy(PolicySpec(env_id, size, 2, (4,), "tanh", 0.0), 0)
    folder.mkdir()
    policy.save(folder / "policy")
    return Subject(kind="checkpoint", name=str(folder))


def test_a_measurement_is_replaced_only_by_one_of_the_same(tmp_path: Path) -> None:
    config = check_config(config_data() | {"evaluate": {"episodes": 3, "slots": 2}}, "test")
    subject, output = save(tmp_path / "step_1"), tmp_path / "out"
    first = measure(config, subject, output)
    assert load_returns(output) == first
    assert (len(first.returns), first.lengths) == (3, (8, 8, 8))
    assert first.mean == pytest.approx(sum(first.returns) / 3)
    with pytest.raises(RunDirectoryError, match="exists already"):
        measure(config, subject, output)
    assert measure(config, subject, output, resume=True).returns == first.returns
    with pytest.raises(RunDirectoryError, match="a different evaluation"):
        measure(config, Subject(kind="random"), output, resume=True)
    assert load_returns(output).returns == first.returns
    (output / RESULTS_FILE).write_bytes(b"{\xff}")
    with pytest.raises(RunDirectoryError, match="not an evaluation of continuous control"):
        load_returns(output)


@pytest.mark.needs("jinja2")
def test_a_run_without_an_update_is_reported_as_before_training(tmp_path: Path) -> None:
    small = {"evaluate": {"episodes": 1, "slots": 1}, "name": "demo", "runs_dir": str(tmp_path)}
    run = RunDir.create(check_config(config_data() | small, "test"))
    subject = save(run.checkpoints / "step_0")
    point(run.checkpoints, "final", "step_0")
    measure(load_config(run.path), subject, run.evaluations / "step_0")
    result = CliRunner().invoke(app, ["report", str(run.path)])
    assert result.exit_code == 0, result.output
    assert "before training" in run.report.read_text()
    assert "warm start" not in run.report.read_text()


def test_a_policy_of_another_environment_is_refused(tmp_path: Path) -> None:
    config = check_config(config_data(), "test")
    with pytest.raises(CheckpointError, match="policy for Other-v0, not for appo_envs:Aim-v0"):
        measure(config, save(tmp_path / "step_1", "Other-v0", 3), tmp_path / "out")


def test_an_interrupted_measurement_leaves_no_result(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(EvaluationStopped):
        measure(check_config(config_data(), "test"), Subject(kind="random"), tmp_path / "out", stop=stop)
    with pytest.raises(RunDirectoryError, match="not an evaluation of continuous control"):
        load_returns(tmp_path / "out")


@pytest.mark.needs("jinja2")
def test_the_report_has_the_curve_and_needs_none(tmp_path: Path) -> None:
    rows = [{"env_steps": float(n), "time/elapsed_s": float(n), "train/return": -5.0 + n} for n in range(3)]
    page = write_report(tmp_path, "r", {}, RunMetrics(rows)).read_text()
    assert "Return over environment steps" in page
    assert "Subject" not in page, "nothing was measured"
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["learning_curve"]["env_steps"]["train"][-1] == [2.0, -3.0]
    config = load_config(write(tmp_path), ["learner.algorithm.stop_at_return=100"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a plot without curves has no legend
        page = write_report(tmp_path, "r", {}, RunMetrics([]), config).read_text()
    assert "Return over" not in page
