"""Algorithms in the configuration: every name is taken, and what cannot work is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.algorithms import (
    DigirlConfig,
    GipoConfig,
    GrpoConfig,
    PpoConfig,
    VtraceConfig,
)
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
    assert (kept.clip, kept.negative_weight) == (0.1, 0.3), "the preset's weight of failures"
    fresh = load_config("quickstart", ["learner.algorithm=ppo"]).learner.algorithm
    assert fresh == PpoConfig()


def test_keys_of_another_kind_and_of_earlier_versions_are_named() -> None:
    with pytest.raises(ConfigError, match=r"`learner\.algorithm\.clip` is a key of ppo, grpo, appo only"):
        load_config("quickstart", ["learner.algorithm.clip=0.1"])
    with pytest.raises(ConfigError, match=r"Did you mean `learner\.algorithm\.group_size`"):
        load_config("quickstart", ["learner.group_size=4"])


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


@pytest.mark.parametrize("preset", ["androidworld", "devices", "miniwob", "quickstart"])
def test_presets_keep_their_algorithm(preset: str) -> None:
    assert load_config(preset).learner.algorithm.kind == "aride"


def test_an_unknown_algorithm_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"learner\.algorithm.*'gipo'"):
        load_config("quickstart", ["learner.algorithm=trpo"])


@pytest.mark.parametrize("name", ["aride", "ppo", "gipo", "grpo", "vtrace"])
@pytest.mark.parametrize("truncation", ["learner.top_p=0.9", "learner.top_k=5"])
def test_truncated_sampling_is_refused_where_ratios_weigh(name: str, truncation: str) -> None:
    with pytest.raises(ConfigError, match=r"truncates sampling: .* no importance ratio") as caught:
        load_config("quickstart", [f"learner.algorithm={name}", truncation])
    assert truncation.rpartition(".")[2] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["digirl", "bc", "filtered-bc"])
def test_truncated_sampling_is_taken_where_they_do_not(name: str) -> None:
    """The validity term does, whose weight is 0 by default for cloning only."""
    asked = [f"learner.algorithm={name}", "learner.top_p=0.9"]
    learner = load_config("quickstart", [f"learner.algorithm={{kind: {name}, invalid: 0}}", asked[1]]).learner
    assert (learner.top_p, learner.top_k) == (0.9, 0)
    with pytest.raises(ConfigError, match=rf"validity term of {name}.*set learner\.algorithm\.invalid to 0"):
        load_config("quickstart", [f"learner.algorithm={{kind: {name}, invalid: 0.1}}", asked[1]])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["learner.algorithm={kind: aride, critic: q, returns: gae}"],
            "critic 'q' does not support returns 'gae'",
        ),
        (
            ["learner.algorithm.critic=q", "learner.value_recompute=false"],
            "expectations under the current policy",
        ),
        (["learner.algorithm={kind: ppo, clip: 0.3, clip_high: 0.2}"], "clip_high is less than clip"),
        (["learner.algorithm={kind: grpo, clip: 0.5}"], "clip_high is less than clip"),
        (["learner.algorithm={kind: ppo, dual_clip: 0.5}"], "`learner.algorithm.dual_clip` is 0.5"),
        (["learner.algorithm={kind: digirl, top_fraction: 0}"], "`learner.algorithm.top_fraction` is 0"),
        (
            ["learner.algorithm={kind: digirl, negative_weight: 0.3}"],
            "negative_weight` is a key of aride,",
        ),
        (["learner.algorithm={kind: digirl, ratio_level: token}"], "ratio_level` is a key of aride,"),
        (["learner.algorithm={kind: bc, ratio_level: token}"], "ratio_level` is a key of aride,"),
        (["learner.algorithm={kind: grpo, group_size: 1}"], "`learner.algorithm.group_size` is 1"),
        (["learner.algorithm={kind: grpo, gamma: 0.9}"], "`learner.algorithm.gamma` is a key of"),
        (
            ["learner.stale=drop", "learner.policy_lag=9", "learner.max_staleness=8"],
            "would drop every episode",
        ),
        (["policy.attention=eager"], "`policy.attention` is a key of hub only"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_q_critic_is_reached_by_configuration() -> None:
    assert load_config("quickstart", ["learner.algorithm={critic: q}"]).learner.algorithm.critic == "q"


def test_a_saved_configuration_is_read_although_it_names_keys_that_do_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(load_config("quickstart").to_yaml())
    assert "critic: v" in file.read_text()
    assert load_config(str(file)).learner == load_config("quickstart").learner


def test_the_sources_numbers_are_the_defaults() -> None:
    assert (GrpoConfig().clip, GrpoConfig().clip_high) == (0.2, 0.28)
    assert GipoConfig().sigma == 0.5
    assert (DigirlConfig().top_fraction, DigirlConfig().step_threshold) == (0.1, 0.05)
    assert (VtraceConfig().rho_bar, VtraceConfig().c_bar, VtraceConfig().lam) == (1.0, 1.0, 1.0)
