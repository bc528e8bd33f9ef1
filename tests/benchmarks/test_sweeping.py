"""Benchmarks by sweep that go on over several sessions; `distrl sweep` is played, no run is trained."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import sweeping
from finished_runs import make_run

from distrl.configs.sweep import load_sweep
from distrl.core.rundir import RunDir

SWEEP = """
base: quickstart
arms: {ours: {}, other: {learner.algorithm: ppo}}
grid: {learner.policy_lag: [0, 4]}
set: {learner.keep_best: false}
seeds: [0, 1]
minutes: 5
"""
ARMS = ["ours,policy_lag=0", "ours,policy_lag=4", "other,policy_lag=0", "other,policy_lag=4"]
AFTER = dict(zip(ARMS, (9, 8, 5, 3), strict=True))


class Sweeps:
    """Stands in for `distrl sweep`: a `Popen` whose process finishes one run at each `wait`.

    Attributes:
        made: The runs made so far, in order.
        patience: How many more runs are finished before everything is killed, as with its machine.
        on_wait: Called before each run.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, int]] = []
        self.patience, self.code = 100, 0
        self.on_wait: Callable[[], None] = lambda: None
        played = SimpleNamespace(Popen=self.start, TimeoutExpired=subprocess.TimeoutExpired)
        monkeypatch.setattr(sweeping, "subprocess", played)

    def start(self, command: Sequence[str]) -> Sweeps:
        options = dict(word[2:].split("=", 1) for word in command if word.startswith("--"))
        sweep = load_sweep(
            command[command.index("sweep") + 1],
            [int(options["seeds"])],
            float(options["minutes"]) if "minutes" in options else None,
            options["arms"].split(";"),
            options["runs-dir"],
        )
        self.planned: Iterator = iter(sweep.runs)
        return self

    def terminate(self) -> None:
        self.planned, self.code = iter(()), 130

    def wait(self, timeout_s: float) -> int:
        self.on_wait()
        planned = next(self.planned, None)
        if planned is None:
            return self.code
        if not self.patience:
            raise SystemError("the machine is gone")
        self.patience -= 1
        self.made.append((planned.arm, planned.seed))
        make_run(planned, 2, AFTER[planned.arm] - planned.seed, [0.2, 0.4, 0.8])
        raise subprocess.TimeoutExpired("sweep", timeout_s)


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    return Sweeps(monkeypatch)


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    file = tmp_path / "try.yaml"
    file.write_text(SWEEP)
    return file


def arguments(tmp_path: Path, machine: str = "one", *more: str) -> argparse.Namespace:
    options = [f"--runs-dir={tmp_path / machine}", f"--results={tmp_path / 'results' / 'try.json'}"]
    return sweeping.parser("Tries.", str(tmp_path / "plot.png")).parse_args([*options, *more])


def test_another_machine_goes_on_where_the_first_was_lost(tmp_path, preset, sweeps, capsys) -> None:
    sweeps.patience = 5
    with pytest.raises(SystemError):
        sweeping.run(str(preset), arguments(tmp_path))
    assert sweeps.made == [*((arm, 0) for arm in ARMS), (ARMS[0], 1)], "seeds are outermost"
    sweeps.patience, before = 100, len(sweeps.made)
    outcome = sweeping.run(str(preset), arguments(tmp_path, "two"))
    assert sweeps.made[before:] == [(arm, 1) for arm in ARMS[1:]]
    assert [(arm.name, arm.seeds) for arm in outcome.arms] == [(arm, (0, 1)) for arm in ARMS]
    ours = outcome.arm(ARMS[0])
    assert ours is not None
    assert ours.after is not None
    assert ours.after.value == pytest.approx(0.85)
    assert [seconds for seconds, _ in ours.curve][-1] == 200.0
    found = sweeping.gain(outcome, ARMS[0], ARMS[2])
    assert found is not None
    assert (found.mean, found.n) == (pytest.approx(0.4), 2)
    assert f"{ARMS[3]}    2/2" in capsys.readouterr().out


def test_who_ends_the_benchmark_ends_its_sweep(tmp_path, preset, sweeps) -> None:
    before = signal.getsignal(signal.SIGTERM)
    sweeps.on_wait = lambda: os.kill(os.getpid(), signal.SIGTERM) if len(sweeps.made) == 2 else None
    with pytest.raises(SystemExit) as ended:
        sweeping.run(str(preset), arguments(tmp_path))
    assert (ended.value.code, len(sweeps.made)) == (130, 2)
    assert signal.getsignal(signal.SIGTERM) == before


def test_when_all_are_there_nothing_is_run(tmp_path, preset, sweeps) -> None:
    first = sweeping.run(str(preset), arguments(tmp_path))
    made, written = len(sweeps.made), (tmp_path / "results" / "try.json").read_bytes()
    second = sweeping.run(str(preset), arguments(tmp_path, "two"))
    assert len(sweeps.made) == made == 8
    assert second.arms == first.arms
    assert (tmp_path / "results" / "try.json").read_bytes() == written


def test_only_what_is_asked_for_is_run(tmp_path, preset, sweeps) -> None:
    sweeping.run(str(preset), arguments(tmp_path, "one", "--seeds=1", "--arms=other"))
    assert sweeps.made == [(ARMS[2], 1), (ARMS[3], 1)]
    outcome = sweeping.run(str(preset), arguments(tmp_path, "two", "--seeds=1", "--report-only"))
    assert len(sweeps.made) == 2
    assert [run.arm for run in outcome.runs] == ARMS[2:]


def test_a_report_takes_in_what_is_finished_here(tmp_path, preset, sweeps) -> None:
    planned = load_sweep(preset, runs_dir=str(tmp_path / "one")).runs[0]
    make_run(planned, 2, 9, [0.2])
    make_run(load_sweep(preset, runs_dir=str(tmp_path / "one")).runs[1], 2, None, [0.2])
    sweeping.run(str(preset), arguments(tmp_path, "one", "--report-only"))
    outcome = sweeping.run(str(preset), arguments(tmp_path, "elsewhere", "--report-only"))
    assert [(run.arm, run.seed, run.after) for run in outcome.runs] == [(planned.arm, 0, 0.9)]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("minutes: 5", "minutes: 6"), "learner.max_minutes"),
        (("arms:", "metric: test/steps\narms:"), "its metric is test/success"),
        (("keep_best: false", "keep_best: false, worker.slots: 3"), "worker.slots"),
    ],
)
def test_runs_with_other_settings_are_told_run_anew_and_kept(
    tmp_path, preset, sweeps, capsys, change: tuple[str, str], key: str
) -> None:
    only = ("--seeds=0", "--arms=ours")
    sweeping.run(str(preset), arguments(tmp_path, "one", *only))
    preset.write_text(SWEEP.replace(*change))
    made = len(sweeps.made)
    sweeping.run(str(preset), arguments(tmp_path, "two", *only))
    assert len(sweeps.made) == 2 * made == 4
    told = [line for line in capsys.readouterr().out.splitlines() if "is left out" in line]
    assert [ARMS[0] in told[0], ARMS[1] in told[1]] == [True, True]
    assert all(key in line for line in told)
    preset.write_text(SWEEP)
    sweeping.run(str(preset), arguments(tmp_path, "three", *only))
    assert len(sweeps.made) == 4, "what was run before is still there"


def test_settings_recorded_before_a_key_was_there_have_its_default(tmp_path, preset, sweeps) -> None:
    sweeping.run(str(preset), arguments(tmp_path))
    file = tmp_path / "results" / "try.json"
    data = json.loads(file.read_text())
    for settings in data["settings"].values():
        del settings["config"]["learner"]["lease_ttl_s"]
    file.write_text(json.dumps(data))
    sweeping.run(str(preset), arguments(tmp_path, "two"))
    assert len(sweeps.made) == 8


def test_a_run_here_of_another_configuration_does_not_get_into_the_file(tmp_path, preset, sweeps) -> None:
    planned = load_sweep(preset, runs_dir=str(tmp_path / "one")).runs[0]
    run = make_run(planned, 2, 9, [0.2])
    RunDir(run.path).write_config(planned.config.model_copy(update={"seed": 7}))
    with pytest.raises(SystemExit, match="differs from the sweep in `seed`"):
        sweeping.run(str(preset), arguments(tmp_path))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"settings": {}}', '{"settings": {}, "runs": [{"arm": "ours"}]}']
)
def test_a_damaged_file_is_one_clear_error(tmp_path, preset, sweeps, text: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "try.json").write_text(text)
    with pytest.raises(SystemExit, match=r"error: .*try.json is damaged"):
        sweeping.run(str(preset), arguments(tmp_path))
    assert sweeps.made == []


@pytest.mark.parametrize(("code", "ends"), [(11, False), (130, True)])
def test_failed_runs_do_not_end_it_and_a_stop_does(tmp_path, preset, sweeps, code: int, ends: bool) -> None:
    sweeps.code = code
    if ends:
        with pytest.raises(SystemExit) as stopped:
            sweeping.run(str(preset), arguments(tmp_path))
        assert stopped.value.code == code
    else:
        sweeping.run(str(preset), arguments(tmp_path))
    assert len(sweeps.made) == (4 if ends else 8)
    runs = json.loads((tmp_path / "results" / "try.json").read_text())["runs"]
    assert [(run["arm"], run["seed"]) for run in runs] == sweeps.made
