"""Agents that write pixels must take pictures to be resized as the model's own processor does it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_models import FAMILIES
from policy_fakes import png

from distrl.configs.agents import AgentConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.model_points import Resize, check_agent_points, doubt_of_files
from distrl.core.policies import build_policy
from distrl.core.published import coordinates_of
from distrl.learner.distributed import open_train_step
from distrl.workers.agents import build_agent
from distrl.workers.inference.serve import build_engine

SCREENS = [(54, 120), (300, 70), (1080, 2400)]
BOUND = {"max_pixels": 6000}
GLM_BOUND = {"patch_size": 14, "merge_size": 2, **BOUND}


def configure(model: Path, policy: dict[str, Any] | None = None, **options: Any) -> Config:
    return Config.model_validate(
        {
            "policy": {"kind": "hub", "model": str(model), "device": "cpu", **(policy or {})},
            "agent": {"kind": "mobile-use", "options": {"coordinates": "absolute", **options}},
            "learner": {"device": "cpu"},
        }
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directories = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    for family, directory in directories.items():
        FAMILIES[family](directory)
    return directories


@pytest.mark.parametrize("policy", [{}, BOUND])
@pytest.mark.parametrize("family", ["qwen", "qwen3", "glm"])
def test_learner_and_server_say_at_what_size_the_model_sees(
    family: str, policy: dict[str, Any], models: dict[str, Path]
) -> None:
    config = configure(models[family], policy, resize=policy)
    with pytest.raises(ConfigError, match="pixels of the picture that the model sees") as found:
        build_engine(config, [], "a")
    with pytest.raises(ConfigError) as by_learner, open_train_step(config, [], None):
        pass
    assert str(by_learner.value) == str(found.value)

    said = found.value.remedy.removeprefix("Set agent.options.resize to ").removesuffix(".")
    right = configure(models[family], policy, resize=yaml.safe_load(said))
    engine = build_engine(right, [], "a")
    for size in SCREENS:
        _, height, width = engine.policy.image(png(0, size)).shape
        assert Resize(**right.agent.options["resize"]).size(*size) == (width, height)


def test_pictures_of_one_fixed_size_have_no_pixels_of_their_own(models: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="one fixed size") as found:
        build_engine(configure(models["llava"]), [], "a")
    assert "relative" in found.value.remedy


def warnings_of(config: Config, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an inference server that starts logs about points."""
    caplog.clear()
    build_engine(config, [], "a")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    found = [line for line in said if "taps would land elsewhere" in line]
    assert doubt_of_files(config.agent, config.policy) == (found[0] if found else None)
    return found


@pytest.mark.parametrize(
    ("family", "agent", "remedy"),
    [
        ("qwen", {"coordinates": "relative"}, "agent.options.resize to "),
        ("qwen3", {"coordinates": "absolute", "resize": {"patch_size": 16, "min_pixels": 1024, **BOUND}}, ""),
        ("qwen3", {"coordinates": "relative"}, None),
        ("llava", {"coordinates": "relative"}, None),
        ("qwen", "androidworld", "agent.options to "),
        ("qwen3", "androidworld", None),
        ("glm", {"coordinates": "absolute", "resize": {"min_pixels": 784, **GLM_BOUND}}, ""),
        ("glm", {"coordinates": "relative"}, None),
    ],
)
def test_points_that_such_models_do_not_write_are_warned_of(
    family: str,
    agent: dict[str, Any] | str,
    remedy: str | None,
    models: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the options that end the warning; a model of unknown habits is not doubted."""
    bound = {} if family == "llava" else BOUND
    if isinstance(agent, dict):
        config = configure(models[family], bound, **agent)
    else:
        data = configure(models[family], bound, coordinates="relative").model_dump()
        config = Config.model_validate({**data, "agent": {"kind": agent}})
    said = warnings_of(config, caplog)
    assert len(said) == (remedy is not None)
    for line in said:
        assert "unless this model was trained to write" in line
        if remedy:
            options = yaml.safe_load(line.partition(remedy)[2].partition(", unless")[0])
            options = options if remedy == "agent.options to " else {"resize": options}
            assert not warnings_of(configure(models[family], BOUND, **options), caplog)


def test_the_name_of_a_published_model_says_more_than_its_type(
    models: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here a Qwen2.5-VL, whose stock models write pixels, with the name of one that writes a scale."""
    folder = tmp_path / "MAI-UI-2B"
    folder.symlink_to(models["qwen"])
    assert not warnings_of(configure(folder, BOUND, coordinates="relative"), caplog)
    resize = {"min_pixels": 784, **BOUND}
    (said,) = warnings_of(configure(folder, BOUND, coordinates="absolute", resize=resize), caplog)
    assert f"but models like {folder} write thousandths of the picture" in said
    older = tmp_path / "GUI-Owl-7B"
    older.symlink_to(models["qwen"])
    data = configure(older, BOUND, coordinates="relative").model_dump()
    (said,) = warnings_of(Config.model_validate({**data, "agent": {"kind": "androidworld"}}), caplog)
    assert "Set agent.kind to gui-owl and agent.options to {version: 1, resize: {" in said


@pytest.mark.parametrize(
    ("agent", "coordinates"),
    [
        ({"kind": "ui-tars"}, "absolute"),
        ({"kind": "ui-tars", "options": {"version": 1}}, "relative"),
        ({"kind": "ui-tars", "options": {"version": "points"}}, "relative"),
        ({"kind": "ui-tars", "options": {"version": 1, "coordinates": "absolute"}}, "absolute"),
        ({"kind": "ui-venus"}, "relative"),
        ({"kind": "holo", "options": {"version": 1}}, "absolute"),
        ({"kind": "autoui"}, None),
    ],
)
def test_the_points_of_an_agent(agent: dict[str, Any], coordinates: str | None) -> None:
    read = AgentConfig.model_validate(agent)
    assert coordinates_of(read) == coordinates
    made = build_agent(read)
    assert getattr(made, "coordinates", None) == coordinates


def test_agents_without_pixels_are_not_checked(models: dict[str, Path]) -> None:
    config = configure(models["qwen"])
    policy = build_policy(config.policy, [], 0)
    others = [
        {"kind": "mobile-use", "options": {"resize": asdict(Resize())}},
        {"kind": "androidworld", "options": {"coordinates": [100, 200]}},
        {"import_path": "somebody:Else", "options": {"coordinates": "absolute"}},
    ]
    for agent in others:
        read = Config.model_validate({"policy": config.policy.model_dump(), "agent": agent})
        check_agent_points(read.agent, policy)
