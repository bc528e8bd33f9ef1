"""Results files: sweeps that continue over several sessions or machines. No run is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweeps
from finished_runs import make_run

from distrl.core.errors import ConfigError
from distrl.evaluator.experiment_results import ResultsFile
from distrl.evaluator.experiments import Sweep, load_sweep

SWEEP = """
base: quickstart
arms: {ours: {}, other: {learner.algorithm: ppo}}
set: {learner.keep_best: false}
seeds: [0, 1]
minutes: 5
"""
AFTER = {"ours": 9, "other": 5}


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    file = tmp_path / "try.yaml"
    file.write_text(SWEEP)
    return file


def load(preset: Path, machine: str) -> Sweep:
    return load_sweep(preset, runs_dir=str(preset.parent / machine))


def finish(sweep: Sweep, *numbers: int) -> None:
    """Lets these runs be finished in the sweep's directory."""
    for number in numbers or range(len(sweep.runs)):
        planned = sweep.runs[number]
        make_run(planned, 2, AFTER[planned.arm] - planned.seed, [0.2, 0.4, 0.8])


def known(preset: Path, machine: str) -> ResultsFile:
    found = ResultsFile(load(preset, machine), preset.parent / "results" / "try.json")
    found.update()
    return found


def missing(preset: Path, machine: str) -> list[tuple[str, int]]:
    found = known(preset, machine)
    return [(run.arm, run.seed) for run in load(preset, machine).runs if not found.is_done(run)]


def test_another_machine_continues_where_the_first_was_lost(tmp_path: Path, preset: Path) -> None:
    first = load(preset, "one")
    finish(first, 0, 1, 2)
    assert missing(preset, "one") == missing(preset, "two") == [("other", 1)]
    second = load(preset, "two")
    finish(second, 3)
    results = known(preset, "two").results()
    assert [(one.arm, one.seed, one.after) for one in results] == [
        ("ours", 0, 0.9), ("other", 0, 0.5), ("ours", 1, 0.8), ("other", 1, 0.4),
    ]  # fmt: skip
    assert [seconds for seconds, _ in results[0].curve][-1] == 200.0
    written = (tmp_path / "results" / "try.json").read_bytes()
    assert missing(preset, "three") == []
    assert (tmp_path / "results" / "try.json").read_bytes() == written


def test_a_benchmark_reads_the_sweeps_file(tmp_path: Path, preset: Path) -> None:
    finish(load(preset, "one"))
    known(preset, "one")
    outcome = sweeps.read(preset, tmp_path / "results" / "try.json")
    assert [arm.name for arm in outcome.arms] == ["ours", "other"]
    found = sweeps.gain(outcome, "ours", "other")
    assert found is not None
    assert (found.mean, found.n) == (pytest.approx(0.4), 2)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("minutes: 5", "minutes: 6"), "learner.max_minutes"),
        (("arms:", "metric: test/steps\narms:"), "metric"),
        (("keep_best: false", "keep_best: false, env.options.latency.median_s: 2"), "env.options"),
    ],
)
def test_runs_with_other_settings_are_reported_repeated_and_kept(
    preset: Path, change: tuple[str, str], key: str
) -> None:
    finish(load(preset, "one"))
    assert missing(preset, "one") == []
    preset.write_text(SWEEP.replace(*change))
    left_out = known(preset, "two").left_out
    assert len(left_out) == len(missing(preset, "two")) == 4
    assert all(key in line for line in left_out)
    finish(load(preset, "two"))
    assert missing(preset, "two") == []
    preset.write_text(SWEEP)
    assert missing(preset, "three") == []


@pytest.mark.parametrize("text", ["{", '{"settings": {}, "runs": [{"arm": "ours"}]}'])
def test_a_damaged_file_is_one_clear_error(preset: Path, text: str) -> None:
    (preset.parent / "results").mkdir()
    (preset.parent / "results" / "try.json").write_text(text)
    with pytest.raises(ConfigError, match=r"try.json is damaged"):
        known(preset, "one")


@pytest.mark.parametrize("name", ["learning", "staleness"])
def test_committed_results_can_be_read(name: str) -> None:
    file = Path(__file__).parents[2] / "docs" / "results" / f"{name}.json"
    found = ResultsFile(load_sweep(name), file)
    assert found.left_out == []
    assert sum(found.is_done(run) for run in load_sweep(name).runs) >= 25
