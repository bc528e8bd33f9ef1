"""`distrl sweep` up to where it starts runs, and what it tells of those that are there."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from finished_runs import make_run
from typer.testing import CliRunner

from distrl.cli.local import sweep as execute
from distrl.cli.local.sweep import Execution, log_of
from distrl.cli.main import app
from distrl.cli.options import seeds_of
from distrl.cli.sweep import check
from distrl.configs.schema import HfConfig
from distrl.core.errors import ConfigError
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.experiment_results import ResultsFile
from distrl.evaluator.experiments import Sweep, load_sweep

runner = CliRunner()
SWEEP = """
base: quickstart
arms: {a: {}, b: {learner.batch_trajectories: 2}}
seeds: [0, 1]
minutes: 0.1
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "try.yaml").write_text(SWEEP)
    return tmp_path / "try.yaml"


def test_dry_run_lists_the_runs_and_makes_nothing(file: Path) -> None:
    result = runner.invoke(app, ["sweep", "try.yaml", "--seeds", "2", "--dry-run"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["runs/try/a/seed-2", "runs/try/b/seed-2"]
    assert not Path("runs").exists()


@pytest.mark.needs("torch", "transformers", "jinja2")
@pytest.mark.parametrize(
    ("text", "options", "exit_code", "message"),
    [
        (SWEEP.replace("batch_trajectories", "batch_trajektories"), [], 2, "Did you mean `learner.batch_tr"),
        (SWEEP + "set: {tasks.suite: nowhere}", [], 6, "there is no suite 'nowhere'"),
        (SWEEP, ["--seeds", "1..3"], 2, "Write 0,1,2 or 0-4."),
        (
            SWEEP + "metric: test/sucess",
            [],
            2,
            "metric test/sucess is not measured by its runs. Did you",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(file: Path, text, options, exit_code, message) -> None:
    file.write_text(text)
    result = runner.invoke(app, ["sweep", "try.yaml", *options])
    assert result.exit_code == exit_code, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_a_run_of_another_configuration_is_refused_and_named(file: Path) -> None:
    planned = load_sweep(file).runs[1]
    store = planned.config.store.model_copy(update={"max_bytes": 77})
    RunDir.create(planned.config.model_copy(update={"store": store}))
    result = runner.invoke(app, ["sweep", "try.yaml"])
    assert result.exit_code == 2
    assert "b/seed-0/config.yaml differs from the sweep in `store.max_bytes`" in result.stderr


def test_what_training_chose_for_auto_is_no_difference(file: Path) -> None:
    auto = "set: {learner.num_processes: auto, inference.engine: auto, inference.max_batch: auto}\n"
    file.write_text(SWEEP + auto)
    loaded = load_sweep(file)
    config = loaded.runs[1].config
    chosen = {"engine": HfConfig(), "max_batch": 24}
    learner = config.learner.model_copy(update={"num_processes": 2})
    config = config.model_copy(
        update={"inference": config.inference.model_copy(update=chosen), "learner": learner}
    )
    run = RunDir.create(config)
    check(loaded)
    run.write_config(config.model_copy(update={"learner": learner.model_copy(update={"threads": 7})}))
    with pytest.raises(ConfigError, match=r"learner\.threads"):
        check(loaded)


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0-2,7", [0, 1, 2, 7]), ("2-", None), ("0-99999", None)]
)
def test_seeds(text: str, seeds: list[int] | None) -> None:
    if seeds is not None:
        assert seeds_of(text) == seeds
    else:
        with pytest.raises(ConfigError, match=r"not a list of seeds|more than 10000"):
            seeds_of(text)


class Runs:
    """Stands in for `distrl train`: how each run ends is asked of `outcomes`, by its arm."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **outcomes: int) -> None:
        self.started: list[str] = []
        self.gpus: list[str | None] = []
        self.finished: set[Path] = set()
        self.most_at_a_time = self._alive = 0
        runs = self

        class Child:
            def __init__(self, name: str, command: tuple[str, ...], log: Path, env: dict[str, str]) -> None:
                runs.gpus.append(env.get("CUDA_VISIBLE_DEVICES"))
                self.directory = log.with_suffix("")
                self.started_at, self._code, self._polls = 0.0, outcomes[log.parent.name], 0
                runs.started.append(f"{log.parent.name}/{log.stem}{' --resume' * ('--resume' in command)}")
                runs._alive += 1
                runs.most_at_a_time = max(runs.most_at_a_time, runs._alive)
                log.write_text(f"one\ntwo\nerror: {log.parent.name} is broken.\n")

            def poll(self) -> int | None:
                self._polls += 1
                if self._polls < 3:
                    return None
                if self._polls == 3:
                    runs._alive -= 1
                if self._code == 0:
                    runs.finished.add(self.directory)
                return self._code

        monkeypatch.setattr(execute, "Child", Child)
        monkeypatch.setattr(execute, "is_finished", self.finished.__contains__)
        monkeypatch.setattr("distrl.evaluator.experiment_results.is_finished", self.finished.__contains__)
        monkeypatch.setattr(execute, "TICK_S", 0.001)


def execution(sweep: Sweep, parallel: int = 1) -> tuple[Execution, io.StringIO]:
    out = io.StringIO()
    return Execution(
        sweep, parallel, threading.Event(), Console(file=out, width=200), ResultsFile(sweep)
    ), out


def test_a_failed_run_is_reported_and_does_not_stop_the_others(file: Path, monkeypatch) -> None:
    runs = Runs(monkeypatch, a=2, b=0)
    made, out = execution(load_sweep(file))
    assert made.run()
    assert runs.started == ["a/seed-0", "b/seed-0", "a/seed-1", "b/seed-1"]
    assert [title for title, _ in made.failures] == [
        f"a, seed {seed} failed (exit code 2). The end of runs/try/a/seed-{seed}.log:" for seed in (0, 1)
    ]
    assert made.failures[0][1].splitlines()[-1].strip() == "error: a is broken."
    assert "[2/4] b seed 0 starts" in out.getvalue()
    assert "a seed 0 failed after" in out.getvalue()


def test_finished_runs_are_skipped_and_begun_ones_resumed(file: Path, monkeypatch) -> None:
    sweep = load_sweep(file)
    runs = Runs(monkeypatch, a=0, b=0)
    runs.finished.add(sweep.runs[0].directory)
    RunDir.create(sweep.runs[1].config)
    made, out = execution(sweep)
    assert made.run()
    assert runs.started == ["b/seed-0 --resume", "a/seed-1", "b/seed-1"]
    assert "4 runs, 1 of them finished" in out.getvalue()
    assert log_of(sweep.runs[3]).with_suffix(".yaml").read_text() == sweep.runs[3].config.to_yaml()
    runs.finished |= {run.directory for run in sweep.runs}
    made, out = execution(sweep)
    assert made.run()
    assert "4 runs, 4 of them finished; no time left" in out.getvalue()


@pytest.mark.parametrize(
    ("parallel", "visible", "expected"),
    [
        (2, "0,1,2,3,4", ["0,1", "2,3", "0,1", "2,3"]),
        (4, "0,1", ["0", "1", "0", "1"]),
        (9, "0,1,2,3", ["0", "1", "2", "3"]),
        (2, "3", [None] * 4),
        (1, "0,1", [None] * 4),
    ],
)
def test_parallel_runs_share_the_gpus(file: Path, monkeypatch, parallel, visible, expected) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    runs = Runs(monkeypatch, a=0, b=0)
    made, _ = execution(load_sweep(file), parallel)
    assert made.run()
    assert runs.gpus == expected
    assert runs.most_at_a_time == min(parallel, 4)


def test_runs_of_a_tuned_arm_wait_for_the_choice(tmp_path: Path) -> None:
    text = """
base: quickstart
time: virtual
tune: {key: learner.optim.lr, values: [0.001, 0.002], seeds: [0]}
arms: {one: {}}
seeds: [0, 1]
"""
    (tmp_path / "try.yaml").write_text(text)
    sweep = load_sweep(tmp_path / "try.yaml", runs_dir=str(tmp_path))
    execution = Execution(sweep, 2, threading.Event(), Console(file=io.StringIO()), ResultsFile(sweep))
    runs = {(run.arm, run.seed): run for run in sweep.runs}
    assert [execution._next(), execution._next()] == [runs["one,lr=0.001", 0], runs["one,lr=0.002", 0]]
    execution._running = [object()]  # type: ignore[list-item]
    assert execution._next() is None
    make_run(runs["one,lr=0.001", 0], 2, 9, [0.2, 0.4])
    make_run(runs["one,lr=0.002", 0], 2, 8, [0.2, 0.8])
    execution._choose()
    assert execution._next() == runs["one,lr=0.002", 1]
    assert execution._next() is None
    assert not execution._waiting
