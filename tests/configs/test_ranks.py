"""The keys of a learner of several processes: what contradicts the learner is refused by name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from distrl.configs.learner import OURS, RanksConfig
from distrl.configs.schema import Config


@pytest.mark.parametrize("key", sorted(OURS))
def test_deepspeed_s_keys_that_the_learner_sets_are_refused(key) -> None:
    with pytest.raises(ValidationError, match=rf"ds_config\.{key} is set by the learner, .*remove it"):
        RanksConfig(engine="deepspeed", ds_config={key: 1})


def test_its_other_keys_are_its_own() -> None:
    section = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "data_types": {"grad_accum_dtype": "fp32"},
        "wall_clock_breakdown": True,
    }
    config = RanksConfig(engine="deepspeed", ds_config=section)
    assert config.ds_config == section
    assert config.zero_stage == 3
    assert RanksConfig(engine="deepspeed").zero_stage == 2
    assert RanksConfig().zero_stage == 0


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"zero_optimization": {"stage": 0}}, "stage=0 is not supported"),
        ({"zero_optimization": 3}, "must be a mapping"),
        (
            {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}},
            "with stage 1 does not support --resume; use stage 2",
        ),
        ({"zero_optimization": {"offload_param": {"device": "nvme"}}}, "offload_param.device='nvme'"),
    ],
)
def test_what_is_not_supported_is_refused(section, match) -> None:
    with pytest.raises(ValidationError, match=match):
        RanksConfig(engine="deepspeed", ds_config=section)


def test_a_ds_config_without_deepspeed_does_nothing_and_is_refused() -> None:
    with pytest.raises(ValidationError, match="has no effect with engine 'torch'"):
        RanksConfig(ds_config={"zero_optimization": {"stage": 2}})


def test_sharded_weights_draw_no_actions() -> None:
    learner = {
        "engine": "deepspeed",
        "num_processes": 2,
        "ds_config": {"zero_optimization": {"stage": 3}},
        "algorithm": {"critic": "q"},
    }
    with pytest.raises(ValidationError, match="critic 'q' draws actions"):
        Config.model_validate({"learner": learner})
    Config.model_validate({"learner": {**learner, "num_processes": 1}})


def test_workers_that_train_need_no_ranks() -> None:
    with pytest.raises(ValidationError, match=r"learner\.num_processes has no effect"):
        Config.model_validate(
            {
                "learner": {"algorithm": "appo", "num_processes": 2},
                "env": {"kind": "gym", "options": {"id": "CartPole-v1"}},
                "policy": {"kind": "gaussian"},
            }
        )
