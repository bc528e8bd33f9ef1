"""Continuous control in the configuration: presets, and combinations that are refused with the remedy."""

from __future__ import annotations

import pytest
import yaml

from distrl.configs.load import load_config, presets
from distrl.core.errors import ConfigError

PRESETS = [name for name in presets() if name.startswith("appo-")]
LANDER = "appo-lunarlander"


def test_the_paper_s_environments_are_presets() -> None:
    ids = {load_config(name).env.options["id"] for name in PRESETS}
    assert ids == {"LunarLanderContinuous-v3", "BipedalWalker-v3", "Hopper-v5", "HalfCheetah-v5"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_written_out_configuration_is_read_back(name: str, tmp_path: object) -> None:
    config = load_config(name)
    assert config.num_servers == 0
    data = yaml.safe_load(config.to_yaml())
    from distrl.configs.load import check_config

    assert check_config(data, "again") == config


@pytest.mark.parametrize(
    ("preset", "override", "reason"),
    [
        ("quickstart", "learner.algorithm=appo", r"needs env\.kind=gym.* env\.kind is phone"),
        ("quickstart", "env.kind=gym", r"env\.kind=gym is for continuous control"),
        ("quickstart", "policy.kind=gaussian", r"policy\.kind=gaussian is for continuous control"),
        (LANDER, "learner.algorithm=ppo", r"env\.kind=gym is for continuous control"),
        (LANDER, "policy.kind=tiny", r"needs policy\.kind=gaussian"),
        (LANDER, "env.import_path=a.b:C", r"but env\.kind is a\.b:C"),
        (LANDER, "env.options={}", r"needs env\.options\.id"),
        (LANDER, "policy.d_model=8", r"`policy\.d_model` is a key of tiny only"),
        (LANDER, "tasks.suite=general", r"tasks\.suite has no effect with learner\.algorithm=appo"),
        (LANDER, "learner.optim.lr=0.1", r"learner\.optim has no effect"),
        (LANDER, "learner.num_processes=2", r"learner\.num_processes has no effect"),
        (LANDER, "judge={kind: local}", r"judge has no effect"),
        (LANDER, "worker.slots=3", r"multiple of worker\.slots=3"),
        (LANDER, "learner.algorithm.minibatch_size=100000", "is larger than num_steps"),
    ],
)
def test_half_a_configuration_is_refused(preset: str, override: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        load_config(preset, [override])
    assert "\n" not in str(caught.value)
