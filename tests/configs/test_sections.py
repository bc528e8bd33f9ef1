"""Sections of the configuration: devices, judges, ranks, and continuous control."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distrl.configs.devices import DevicesConfig
from distrl.configs.load import check_config, load_config, presets
from distrl.configs.parse import parse_yaml
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.workers.devices.guard import GuardPolicy
from distrl.workers.devices.recipes import Recipe

POOL = """
devices:
  adb_server_port: 5039
  pool:
    - {kind: sim, count: 2, width: 1080, height: 2400}
    - {kind: adb, serials: ["emulator-5554", "emulator-56*"], snapshot: clean}
    - {kind: adb, serials: [b], guard: null}
    - {kind: avd, avd: Pixel_7_API_34, count: 4, snapshot: clean}
    - {kind: phone, serials: [R5CT1234567], recipe: {clear: [com.example.shop]}, reboot: true}
"""


def test_a_mixed_pool_is_read_and_written_and_physical_devices_are_guarded_unless_set_otherwise() -> None:
    config = check_config(parse_yaml(POOL, "x"), "x")
    again = check_config(parse_yaml(config.to_yaml(), "y"), "y")
    assert again == config
    pool = again.devices.pool
    assert [members.kind for members in pool] == ["sim", "adb", "adb", "avd", "phone"]
    assert [getattr(members, "guard", "") for members in pool] == ["", "physical", None, None, {}]
    assert check_config({}, "x").devices.pool == []


def test_the_configurations_in_the_documentation_are_valid() -> None:
    text = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")
    blocks = [parse_yaml(block, "docs") for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    pools = [block for block in blocks if isinstance(block, dict) and "devices" in block]
    assert len(pools) >= 1
    for pool in pools:
        check_config(pool, "docs")
    for block in blocks:
        if isinstance(block, dict) and "recipe" in block:
            Recipe.model_validate(block["recipe"])
        if isinstance(block, dict) and "guard" in block:
            GuardPolicy.model_validate(block["guard"])


@pytest.mark.parametrize(
    ("set_port", "variable", "port"),
    [(None, None, 5037), (None, "5099", 5099), (None, "", 5037), (5040, "5099", 5040)],
)
def test_the_adb_server_s_port(set_port: int | None, variable: str | None, port: int) -> None:
    environment = {} if variable is None else {"ANDROID_ADB_SERVER_PORT": variable}
    assert DevicesConfig(adb_server_port=set_port).server_port(environment) == port
    with pytest.raises(ConfigError, match="ANDROID_ADB_SERVER_PORT='70000' is not a valid port"):
        DevicesConfig().server_port({"ANDROID_ADB_SERVER_PORT": "70000"})


def test_the_shown_configuration_names_the_variable_and_not_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "sk-secret")
    shown = Config.model_validate({"judge": {"kind": "vlm", "model": "m"}}).to_yaml()
    assert "DISTRL_JUDGE_KEY" in shown
    assert "sk-secret" not in shown


def test_the_presets_of_continuous_control_have_the_papers_environments_and_no_servers() -> None:
    configs = [load_config(name) for name in presets() if name.startswith("appo-")]
    ids = {config.env.options["id"] for config in configs}
    assert ids == {"LunarLanderContinuous-v3", "BipedalWalker-v3", "Hopper-v5", "HalfCheetah-v5"}
    for config in configs:
        assert config.num_servers == 0
        assert check_config(parse_yaml(config.to_yaml(), "again"), "again") == config
    placed = load_config("appo-lunarlander", ["placement.workers.count=4", "metrics.trackers=[wandb]"])
    assert placed.placement.workers.count == 4


@pytest.mark.parametrize("name", ["qwen-vl", "phones", "androidworld"])
def test_the_presets_of_large_models_learn_in_groups_and_use_all_gpus(name: str) -> None:
    config = load_config(name)
    learner = config.learner
    assert (learner.algorithm.kind, learner.group_size, learner.optim.lr) == ("grpo", 8, 1e-4)
    assert learner.episodes * learner.updates_per_episode >= 64
    chosen = (config.inference.engine.kind, config.inference.max_batch)
    assert {*chosen, learner.num_processes, config.local.inference_servers} == {"auto"}


def test_the_engine_auto_is_vllm_where_it_can_serve_the_policy() -> None:
    def engine(*settings: str, has_vllm: bool = True) -> str:
        return load_config("qwen-vl", list(settings)).engine_for(has_vllm).kind

    assert engine() == engine("inference.engine=vllm", has_vllm=False) == "vllm"
    assert engine(has_vllm=False) == engine("policy.lora.vision=true") == engine("policy.device=cpu") == "hf"
    assert engine("local.gpus=colocated", has_vllm=False) == "vllm", "the server reports that it is missing"
    assert load_config("quickstart", ["inference.engine=auto"]).engine_for(True).kind == "hf"
