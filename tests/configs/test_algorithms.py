"""Algorithms in the configuration: every name is taken, and what cannot work is refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.algorithms import AlgorithmName
from distrl.configs.appo import APPO
from distrl.configs.load import dump_config, load_config
from distrl.core.errors import ConfigError

NAMES = [name for name in get_args(AlgorithmName) if name != APPO]


@pytest.mark.parametrize("name", NAMES)
def test_distrl_train_takes_every_algorithm(name: str) -> None:
    options = ["--set", f"learner.algorithm={name}", "--set", "learner.group_size=4", "--dry-run"]
    result = CliRunner().invoke(app, ["train", "quickstart", *options])
    assert result.exit_code == 0, result.output
    assert f"algorithm: {name}\n" in result.stdout


@pytest.mark.parametrize("preset", ["androidworld", "devices", "miniwob", "quickstart"])
def test_presets_keep_their_algorithm(preset: str) -> None:
    assert load_config(preset).learner.algorithm == "aride"


def test_an_unknown_algorithm_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"learner\.algorithm.*'gipo'"):
        load_config("quickstart", ["learner.algorithm=trpo"])


@pytest.mark.parametrize("name", ["aride", "ppo", "gipo", "grpo", "vtrace"])
@pytest.mark.parametrize("truncation", ["learner.top_p=0.9", "learner.top_k=5"])
def test_truncated_sampling_is_refused_where_ratios_weigh(name: str, truncation: str) -> None:
    with pytest.raises(ConfigError, match=r"truncates sampling: .* no importance ratio") as caught:
        load_config("quickstart", ["learner.group_size=4", f"learner.algorithm={name}", truncation])
    assert truncation.rpartition(".")[2] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["digirl", "bc", "filtered-bc"])
def test_truncated_sampling_is_taken_where_they_do_not(name: str) -> None:
    """The validity term does, whose weight is 0 by default for cloning only."""
    section = name.removeprefix("filtered-")
    asked = [f"learner.algorithm={name}", "learner.top_p=0.9"]
    learner = load_config("quickstart", [*asked, f"learner.{section}.invalid=0"]).learner
    assert (learner.top_p, learner.top_k) == (0.9, 0)
    with pytest.raises(ConfigError, match=rf"validity term of {name}.*or learner\.{section}\.invalid to 0"):
        load_config("quickstart", [*asked, f"learner.{section}.invalid=0.1"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["learner.aride={critic: q, returns: gae}"], "critic 'q' has no returns 'gae'"),
        (
            ["learner.aride.critic=q", "learner.value_recompute=false"],
            "expectations under the present policy",
        ),
        (["learner.ppo.decoupled=true"], "raise epochs or minibatches"),
        (["learner.ppo={clip: 0.3, clip_high: 0.2}"], "clip_high is below clip"),
        (["learner.grpo.clip=0.5"], "clip_high is below clip"),
        (["learner.ppo.dual_clip=0.5"], "`learner.ppo.dual_clip` is 0.5"),
        (["learner.digirl.top_fraction=0"], "`learner.digirl.top_fraction` is 0"),
        (["learner.digirl.negative_weight=0.3"], "negative_weight=0.3 would do nothing"),
        (["learner.digirl.advantage_centre=false"], "advantage_centre=False would do nothing"),
        (["learner.digirl.advantage_std_floor=0.2"], "advantage_std_floor=0.2 would do nothing"),
        (["learner.digirl.ratio_level=token"], "digirl imitates, and weighs nothing by ratios"),
        (["learner.bc.ratio_level=token"], "cloning weighs nothing by ratios"),
        (["learner.aride.q_samples=8"], "they belong to critic 'q', and critic is 'v'"),
        (["learner.aride.q_next=sampled"], "q_next=sampled would do nothing"),
        (["learner.algorithm=grpo"], "set learner.group_size to 2 or more"),
        (["learner.grpo.gamma=0.9"], "unknown key `learner.grpo.gamma`"),
        (
            ["learner.stale=drop", "learner.policy_lag=9", "learner.max_staleness=8"],
            "would drop every episode",
        ),
        (["policy.slim_vocabulary=[tap]"], "slim_vocabulary is for hub models"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_q_critic_is_reached_by_configuration() -> None:
    aride = load_config(
        "quickstart", ["learner.aride={critic: q, q_next: sampled, q_samples: 8}"]
    ).learner.aride
    assert (aride.critic, aride.q_next, aride.q_samples) == ("q", "sampled", 8)


def test_a_saved_configuration_is_read_although_it_names_keys_that_do_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(load_config("quickstart")))
    assert "q_samples: 4" in file.read_text()
    assert load_config(str(file)).learner == load_config("quickstart").learner


def test_the_sources_numbers_are_the_defaults() -> None:
    learner = load_config("quickstart").learner
    assert (learner.grpo.clip, learner.grpo.clip_high) == (0.2, 0.28)
    assert learner.gipo.sigma == 0.5
    assert (learner.digirl.top_fraction, learner.digirl.step_threshold) == (0.1, 0.05)
    assert (learner.vtrace.rho_bar, learner.vtrace.c_bar, learner.vtrace.lam) == (1.0, 1.0, 1.0)
