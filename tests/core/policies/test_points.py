"""Agents that write pixels must take pictures to be resized as the model's own processor does it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import yaml
from hub_models import FAMILIES
from policy_fakes import png

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.model_points import Resize, check_agent_points, doubt_of_files
from distrl.core.policies import build_policy
from distrl.learner.distributed import open_train_step
from distrl.workers.agents import build_agent
from distrl.workers.inference.serve import build_engine

SCREENS = [(54, 120), (300, 70), (1080, 2400)]


def configure(model: Path, policy: dict[str, Any] | None = None, **options: Any) -> Config:
    return Config.model_validate(
        {
            "policy": {"kind": "hub", "model": str(model), "device": "cpu", **(policy or {})},
            "agent": {"kind": "mobile-use", "options": {"coordinates": "absolute", **options}},
            "learner": {"device": "cpu"},
        }
    )


@pytest.mark.parametrize("policy", [{}, {"max_pixels": 6000}])
@pytest.mark.parametrize("family", ["qwen", "qwen3"])
def test_learner_and_server_say_at_what_size_the_model_sees(
    family: str, policy: dict[str, Any], tmp_path: Path
) -> None:
    FAMILIES[family](tmp_path)
    resize = {"max_pixels": policy["max_pixels"]} if policy else {}
    config = configure(tmp_path, policy, resize=resize)
    with pytest.raises(ConfigError, match="pixels of the picture that the model sees") as found:
        build_engine(config, [], "a")
    with pytest.raises(ConfigError) as by_learner, open_train_step(config, [], None):
        pass
    assert str(by_learner.value) == str(found.value)

    said = found.value.remedy.removeprefix("Set agent.options.resize to ").removesuffix(".")
    right = configure(tmp_path, policy, resize=yaml.safe_load(said))
    engine = build_engine(right, [], "a")
    with open_train_step(right, [], None):
        pass
    for size in SCREENS:
        _, height, width = engine.policy.image(png(0, size)).shape
        assert Resize(**right.agent.options["resize"]).size(*size) == (width, height)


def test_pictures_of_one_fixed_size_have_no_pixels_of_their_own(tmp_path: Path) -> None:
    FAMILIES["llava"](tmp_path)
    with pytest.raises(ConfigError, match="one fixed size") as found:
        build_engine(configure(tmp_path), [], "a")
    assert "relative" in found.value.remedy
    build_engine(configure(tmp_path, coordinates="relative"), [], "a")


OWN_SIZES = {
    "qwen": {"patch_size": 14, "min_pixels": 784, "max_pixels": 6000},
    "qwen3": {"patch_size": 16, "min_pixels": 1024, "max_pixels": 6000},
}


def warnings_of(config: Config, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an inference server that starts says about points, which is what a run's terminal is told."""
    caplog.clear()
    build_engine(config, [], "a")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    found = [line for line in said if "taps would land elsewhere" in line]
    assert doubt_of_files(config.agent, config.policy) == (found[0] if found else None)
    return found


@pytest.mark.parametrize(
    ("family", "own", "other"), [("qwen", "absolute", "relative"), ("qwen3", "relative", "absolute")]
)
def test_points_that_such_models_do_not_write_are_warned_of(
    family: str, own: str, other: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FAMILIES[family](tmp_path)
    resize, policy = OWN_SIZES[family], {"max_pixels": 6000}
    (said,) = warnings_of(configure(tmp_path, policy, coordinates=other, resize=resize), caplog)
    assert f"Set agent.options.coordinates to {own}" in said
    assert "unless this model was trained to write" in said
    assert not warnings_of(configure(tmp_path, policy, coordinates=own, resize=resize), caplog)


def test_the_warning_names_the_sizes_to_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FAMILIES["qwen"](tmp_path)
    (said,) = warnings_of(configure(tmp_path, {"max_pixels": 6000}, coordinates="relative"), caplog)
    resize = yaml.safe_load(said.partition("agent.options.resize to ")[2].partition(", unless")[0])
    assert not warnings_of(configure(tmp_path, {"max_pixels": 6000}, resize=resize), caplog)


@pytest.mark.parametrize(("family", "is_doubted"), [("qwen", True), ("qwen3", False)])
def test_the_scale_of_the_agent_androidworld_is_not_for_models_that_write_pixels(
    family: str, is_doubted: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FAMILIES[family](tmp_path)
    relative = configure(tmp_path, {"max_pixels": 6000}, coordinates="relative")
    policy = relative.policy.model_dump()
    data = {"policy": policy, "agent": {"kind": "androidworld"}, "learner": {"device": "cpu"}}
    said = warnings_of(Config.model_validate(data), caplog)
    assert len(said) == is_doubted
    for line in said:
        options = yaml.safe_load(line.partition("agent.options to ")[2].partition(", unless")[0])
        assert not warnings_of(configure(tmp_path, {"max_pixels": 6000}, **options), caplog)


@pytest.mark.parametrize(
    "options",
    [
        {"coordinates": "foo"},
        {"coordinates": "relative", "resize": {"foo": 1}},
        {"coordinates": "relative", "resize": {"min_pixels": 0}},
        {"coordinates": "relative", "resize": 3},
    ],
)
def test_options_that_the_agent_refuses_are_left_to_it(options: dict[str, Any], tmp_path: Path) -> None:
    FAMILIES["qwen"](tmp_path)
    config = configure(tmp_path, **options)
    build_engine(config, [], "a")
    with pytest.raises(ConfigError):
        build_agent(config.agent)


def test_models_of_unknown_habits_are_not_doubted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FAMILIES["llava"](tmp_path)
    assert not warnings_of(configure(tmp_path, coordinates="relative"), caplog)


def test_nobody_is_asked_about_points_that_are_no_pixels(tmp_path: Path) -> None:
    FAMILIES["qwen"](tmp_path)
    config = configure(tmp_path)
    policy = build_policy(config.policy, [], 0)
    others = [
        {"kind": "mobile-use", "options": {"resize": asdict(Resize())}},
        {"kind": "androidworld", "options": {"coordinates": [100, 200]}},
        {"import_path": "somebody:Else", "options": {"coordinates": "absolute"}},
    ]
    for agent in others:
        read = Config.model_validate({"policy": config.policy.model_dump(), "agent": agent})
        check_agent_points(read.agent, policy)
