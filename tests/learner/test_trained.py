"""What updates made of each step, as the player shows it."""

import json

import torch

from distrl.configs.schema import Config
from distrl.core.rundir import RunDir
from distrl.evaluator.dashboard.run_files import RunFiles
from distrl.learner import trained as module
from distrl.learner.losses import importance_ratios
from distrl.learner.off_policy import StepStats
from distrl.learner.trained import TrainedLog

MASK = torch.ones(3, 1, dtype=torch.bool)


def stats(times, advantages, noted=True):
    """Two trajectories: two steps of the first, one of the second, each with ρ = e."""
    ratios = importance_ratios(torch.ones(3, 1), torch.zeros(3, 1), MASK)
    columns = {"time": torch.tensor(times), "advantage": torch.tensor(advantages)}
    return StepStats.of(torch.tensor([0, 0, 1]), ratios, MASK, "action", {}, columns if noted else {})


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_are_in_their_order_and_the_last_pass_counts(tmp_path):
    first, second = stats([1, 0, 0], [0.5, 0.25, -1.0]), stats([1, 0, 0], [0.75, 0.25, -2.0])
    TrainedLog(tmp_path / "t").write(7, ["a", "b"], StepStats.join([(None, first), (None, second)]))
    assert rows(tmp_path / "t") == [
        {"id": "a", "update": 7, "ratio": [2.718, 2.718], "advantage": [0.25, 0.75]},
        {"id": "b", "update": 7, "ratio": [2.718], "advantage": [-2.0]},
    ]


def test_an_objective_that_notes_nothing_writes_nothing(tmp_path):
    TrainedLog(tmp_path / "t").write(1, ["a", "b"], stats([0, 1, 0], [0.0] * 3, noted=False))
    assert not (tmp_path / "t").exists()


def test_the_file_is_bounded_and_the_newest_line_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    run = RunDir.create(Config.model_validate({"name": "r", "runs_dir": str(tmp_path)}))
    files = RunFiles(run.path)
    assert files.trained("a") == {}
    log = TrainedLog(run.path / "trained.jsonl")
    for update in (1, 2, 3):
        log.write(update, ["a", f"b{update}"], stats([0, 1, 0], [float(update)] * 3))
    assert len(list(run.path.glob("trained*"))) == 2
    assert files.trained("a")["update"] == 3
    assert files.trained("b2")["advantage"] == [2.0]
    assert files.trained("b1") == {}
