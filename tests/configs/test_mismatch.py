"""The section `learner.mismatch`: its keys, and where a bound would do nothing or correct twice."""

from __future__ import annotations

import pytest

from distrl.configs.load import load_config
from distrl.configs.mismatch import MismatchConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError


def test_by_default_it_is_measured_and_bounds_nothing() -> None:
    config = load_config("quickstart").learner.mismatch
    assert config == MismatchConfig()
    assert config.bound == "none"
    assert config.on_alarm == "warn"


def test_a_saved_configuration_is_read_again() -> None:
    config = Config.model_validate(
        {"learner": {"algorithm": "ppo", "mismatch": {"bound": "mask", "min_ratio": 0.7, "level": "action"}}}
    )
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["mismatch.max_ratio=3"], "max_ratio=3.0 would do nothing: bound is 'none'"),
        (["mismatch.level=token"], "level=token would do nothing: bound is 'none'"),
        (["mismatch.alarm_drift=1"], "greater than 1"),
        (["mismatch.bounds=mask"], "bound"),
        (
            ["algorithm=ppo", "mismatch.bound=truncate", "mismatch.min_ratio=0.3"],
            "min_ratio=0.3 would do nothing",
        ),
        (
            ["algorithm=ppo", "mismatch.bound=truncate", "mismatch.level=trajectory"],
            "level 'trajectory' is for bound 'mask'",
        ),
        (["algorithm=aride", "mismatch.bound=truncate"], "caps π/μ at learner.algorithm.rho_max already"),
        (["algorithm=gipo", "mismatch.bound=truncate"], "damps π/μ by learner.algorithm.sigma already"),
        (["algorithm=vtrace", "mismatch.bound=truncate"], "caps π/μ at learner.algorithm.rho_bar already"),
        (
            ["algorithm={kind: ppo, decoupled: true, epochs: 2}", "mismatch.bound=truncate"],
            "learner.algorithm.decoupled already weighs",
        ),
        (["algorithm=digirl", "mismatch.bound=mask"], "does nothing with digirl"),
        (["algorithm=filtered-bc", "mismatch.bound=mask"], "does nothing with filtered-bc"),
        (
            ["algorithm=ppo", "mismatch.bound=mask", "mismatch.level=token"],
            "needs learner.algorithm.ratio_level 'token'",
        ),
    ],
)
def test_what_would_do_nothing_or_too_much_is_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config("quickstart", [f"learner.{one}" for one in overrides])
    assert reason in str(error.value)


def test_continuous_control_has_no_such_section() -> None:
    with pytest.raises(ConfigError, match=r"learner\.mismatch"):
        load_config("appo-hopper", ["learner.mismatch.every=2"])
