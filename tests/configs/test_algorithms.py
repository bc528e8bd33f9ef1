"""Algorithms in the configuration: every name is taken, and what cannot work is refused with the reason."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.algorithms import PpoConfig
from distrl.configs.load import load_config
from distrl.core.errors import ConfigError

NAMES = ("aride", "digirl", "ppo", "gipo", "grpo", "vtrace", "bc", "filtered-bc")


@pytest.mark.parametrize("name", NAMES)
def test_distrl_train_takes_every_algorithm(name: str) -> None:
    options = ["--set", f"learner.algorithm={name}", "--dry-run"]
    result = CliRunner().invoke(app, ["train", "quickstart", *options])
    assert result.exit_code == 0, result.output
    assert f"kind: {name}\n" in result.stdout


def test_an_override_of_the_kind_keeps_the_keys_that_both_have() -> None:
    kept = load_config(
        "quickstart", ["learner.algorithm.kind=ppo", "learner.algorithm.clip=0.1"]
    ).learner.algorithm
    assert isinstance(kept, PpoConfig)
    assert (kept.clip, kept.failure_weight) == (0.1, 0.1), "the preset's weight of failures"
    fresh = load_config("quickstart", ["learner.algorithm=ppo"]).learner.algorithm
    assert fresh == PpoConfig()


def test_an_objective_of_ones_own_has_its_options_and_groups() -> None:
    own = "{import_path: 'mine:Mine', options: {alpha: 2}, group_size: 4}"
    learner = load_config("quickstart", [f"learner.algorithm={own}"]).learner
    assert (learner.algorithm.kind, learner.group_size) == ("custom", 4)


def test_a_dry_run_checks_the_options_of_an_objective_of_ones_own() -> None:
    pytest.importorskip("torch", reason="needs torch: not installed")
    own = "learner.algorithm={import_path: 'distrl.learner.algorithms.ppo:Ppo', options: {clip: %s}}"
    for clip, code in (("0.1", 0), ("7", ConfigError.exit_code)):
        result = CliRunner().invoke(app, ["train", "quickstart", "--dry-run", "--set", own % clip])
        assert result.exit_code == code, result.output
    assert "clip" in result.output
