"""Keys that do nothing beside others are told, by the command too, and nothing else is."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.idle import idle_keys
from distrl.configs.load import load_config, presets

DATASET = "learner.demonstrations.dataset=demos"


@pytest.mark.parametrize("preset", presets())
def test_presets_have_no_idle_keys(preset: str) -> None:
    assert idle_keys(load_config(preset)) == []


@pytest.mark.parametrize(
    ("preset", "overrides", "key"),
    [
        ("quickstart", ["learner.algorithm=bc", "learner.value_recompute=false"], "learner.value_recompute"),
        ("qwen-vl", ["learner.value_recompute=false"], "learner.value_recompute"),
        ("quickstart", ["learner.replay.priority=uniform", "learner.replay.alpha=1"], "learner.replay.alpha"),
        ("qwen-vl", ["learner.replay.weights=[1, 1, 1]"], "learner.replay.weights"),
        ("qwen-vl", ["learner.replay.refresh_every=3"], "learner.replay.refresh_every"),
        ("quickstart", ["learner.updates_per_episode=0.02"], "learner.max_staleness"),
        ("quickstart", ["learner.replay.importance_start=0.6"], "learner.replay.importance_start"),
        ("qwen-vl", [DATASET, "learner.demonstrations.noise=0.3"], "learner.demonstrations.noise"),
        ("qwen-vl", [DATASET, "learner.demonstrations.weights={a: 2}"], "learner.demonstrations.weights"),
        ("appo-hopper", ["network.act=tcp://127.0.0.1:5999"], "network.act"),
        ("appo-hopper", ["network.advertise=tcp://10.0.0.1:5999"], "network.advertise"),
    ],
)
def test_a_key_that_does_nothing_is_named(preset: str, overrides: list[str], key: str) -> None:
    (found,) = idle_keys(load_config(preset, overrides))
    assert found.startswith(f"{key} does nothing: learner.")


def test_keys_that_do_something_are_not_named() -> None:
    overrides = ["learner.value_recompute=false", "learner.replay.alpha=1", "learner.replay.refresh_size=4"]
    assert idle_keys(load_config("quickstart", overrides)) == []
    overrides = ["learner.demonstrations.noise=0.3", "learner.demonstrations.weights={a: 2}"]
    assert idle_keys(load_config("qwen-vl", overrides)) == []
    assert idle_keys(load_config("qwen-vl", [DATASET])) == []


def test_the_command_tells_it_and_goes_on() -> None:
    arguments = ["--dry-run", "--set", "learner.replay.priority=uniform", "--set", "learner.replay.alpha=1"]
    result = CliRunner().invoke(app, ["train", "quickstart", *arguments])
    assert result.exit_code == 0
    assert "warning: learner.replay.alpha does nothing: learner.replay.priority is" in result.stderr
    assert "warning" not in result.stdout
