"""`distrl doctor --estimate`: numbers are those of the real policy, and costs grow with what bounds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from autoui_models import save_autoui, save_blip2
from tiny_qwen import FAMILIES, save_qwen25_vl
from torch.nn.attention import SDPBackend, sdpa_kernel
from typer.testing import CliRunner

from distrl.cli.health.estimate import (
    PEAKS,
    QUESTION,
    Hardware,
    Line,
    Subject,
    estimate,
    hardware,
)
from distrl.cli.main import app
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.policies import build_policy

CPU = hardware(None, 2)
FUSION = [
    *("image_dense__weight", "image_dense__bias", "gate_dense__weight", "gate_dense__bias"),
    *("mha_layer__in_proj_weight", "mha_layer__in_proj_bias"),
    *("mha_layer__out_proj__weight", "mha_layer__out_proj__bias"),
]
runner = CliRunner()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory: Path = tmp_path_factory.mktemp("qwen")
    save_qwen25_vl(directory)
    return str(directory)


def values(
    policy: dict[str, object], steps: float = 15.0, **sections: object
) -> dict[tuple[str, str], float]:
    config = Config.model_validate({"policy": {"device": "cpu", **policy}, **sections})
    found: list[Line] = estimate(config, CPU, steps)
    return {(line.process, line.what): line.value for line in found}


@pytest.mark.parametrize("lora", [None, {"rank": 3, "targets": ["q_proj", "k_proj"]}])
def test_a_hub_model_s_numbers_are_those_of_the_policy(model: str, lora: object) -> None:
    options = {"kind": "hub", "model": model, "lora": lora}
    config = Config.model_validate({"policy": {**options, "device": "cpu"}})
    policy = build_policy(config.policy, [], 0)
    found = values(options)
    base = build_policy(config.policy.model_copy(update={"lora": None}), [], 0)
    assert found["policy", "parameters"] == sum(p.numel() for p in base.parameters())
    state = policy.published_state()
    assert found["policy", "trained parameters"] == sum(tensor.numel() for tensor in state.values())
    assert found["network", "a version"] == sum(tensor.nbytes for tensor in state.values())
    assert found["learner", "weights"] == sum(p.nbytes for p in policy.parameters())


def test_the_size_of_a_weight_is_that_of_a_trained_one_if_all_are(model: str) -> None:
    policy = {"kind": "hub", "model": model, "train_vision": True, "device": "cpu"}
    lines = estimate(Config.model_validate({"policy": policy}), CPU, 5)
    assert next(line.how for line in lines if line.what == "weights") == "4 B each"


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
@pytest.mark.parametrize("has_blip2", [True, False])
def test_autoui_is_counted_from_its_config_json(tmp_path: Path, lora: object, has_blip2: bool) -> None:
    save_autoui(tmp_path / "autoui", **({} if has_blip2 else dict.fromkeys(FUSION)))
    save_blip2(tmp_path / "blip2")
    eyes = {"image_features": str(tmp_path / "blip2")} if has_blip2 else {"image_size": [40, 56]}
    options = {"kind": "autoui", "model": str(tmp_path / "autoui"), "lora": lora, **eyes}
    policy = build_policy(Config.model_validate({"policy": {**options, "device": "cpu"}}).policy, [], 0)
    (tmp_path / "autoui" / "pytorch_model.bin").unlink()
    found = values(options)
    trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    tower = sum(p.numel() for p in policy.eyes._tower.parameters()) if has_blip2 else 0  # type: ignore[union-attr]
    whole = sum(p.numel() for p in policy.parameters()) + tower
    if lora is None:
        assert found["policy", "parameters"] == whole
    assert found["policy", "of these, vision tower"] == tower
    assert found["policy", "trained parameters"] == trained
    assert found["network", "a version"] == sum(one.nbytes for one in policy.published_state().values())


def test_the_cache_of_a_slot_is_what_the_model_keeps(model: str) -> None:
    options = {"kind": "hub", "model": model, "max_prompt_tokens": 9}
    config = Config.model_validate({"policy": {**options, "device": "cpu"}, "learner": {"max_new_tokens": 3}})
    policy = build_policy(config.policy, [], 0)
    with torch.no_grad():
        cache = policy.model(input_ids=torch.full((1, 12), 8), use_cache=True).past_key_values  # type: ignore[operator]
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    found = values(options, learner={"max_new_tokens": 3})
    assert found["inference", "KV cache of a slot"] == kept


INCREMENTAL = {"kind": "androidworld", "options": {"mode": "incremental"}}


def test_an_episode_that_is_one_sequence_is_trained_on_and_kept_once(model: str) -> None:
    options = {"kind": "hub", "model": model, "max_pixels": 28 * 28, "max_prompt_tokens": 64}
    sections = {"learner": {"max_new_tokens": 8, "batch_trajectories": 2}}
    one = values(options, 5, agent=INCREMENTAL, **sections)
    length = 64 + 8 + 4 * (1 + QUESTION + 8)  # a picture is one token
    assert one["policy", "tokens of a sequence, at most"] == length
    whole = values({**options, "max_prompt_tokens": length - 8}, 5, **sections)
    assert one["inference", "KV cache of a slot"] == whole["inference", "KV cache of a slot"]
    assert one["learner", "activations"] == pytest.approx(whole["learner", "activations"] / 5)
    assert one["speed", "an update"] * one["speed", "steps trained"] == pytest.approx(2 * 5)
    cached = values(options, 5, agent=INCREMENTAL, inference={"engine": "vllm"}, **sections)
    assert cached["speed", "actions"] > one["speed", "actions"]
    bounded = values({**options, "max_context_tokens": 150}, 5, agent=INCREMENTAL, **sections)
    assert bounded["policy", "tokens of a sequence, at most"] == length - 2 * (1 + QUESTION + 8)


def kept_bytes(policy: Any, tokens: int) -> int:
    """What a pass over so many tokens keeps for its gradients."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*policy.parameters(), *policy.buffers())}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes(), tensor  # alive, so that its place is not used again
        return tensor

    batch = policy.collate([[20] * tokens], [[]])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.encode(batch)
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
@pytest.mark.parametrize("lora", [None, {"rank": 1}, {"rank": 1, "targets": ["q_proj", "v_proj"]}])
def test_activations_are_what_a_pass_keeps(family: str, lora: object, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    options = {"kind": "hub", "model": str(tmp_path), "dtype": "bfloat16", "lora": lora, "device": "cpu"}
    options |= {"max_prompt_tokens": 62}
    config = Config.model_validate({"policy": options, "learner": {"max_new_tokens": 2}})
    found = kept_bytes(build_policy(config.policy, [], 0), 64)
    one = Subject(config, is_gpu=False, steps=1.0, screen=(60, 90))
    assert one.activation_bytes(64) == pytest.approx(found, rel=0.2), "but for the norm after the layers"


def test_in_float32_the_scores_of_all_layers_are_kept_and_copies_of_one(model: str) -> None:
    options = {"kind": "hub", "model": model, "device": "cpu", "dtype": "float32", "max_prompt_tokens": 510}
    config = Config.model_validate({"policy": options, "learner": {"max_new_tokens": 2}})
    policy = build_policy(config.policy, [], 0)
    kept = -kept_bytes(policy, 512)
    with sdpa_kernel(SDPBackend.MATH):
        kept += kept_bytes(policy, 512)
    gpu, cpu = (Subject(config, is_gpu, steps=1.0, screen=(60, 90)) for is_gpu in (True, False))
    copies = 3 * 4 * gpu.shape.text.heads * 512**2
    assert gpu.activation_bytes(512) - cpu.activation_bytes(512) == pytest.approx(kept + copies, rel=0.1)


def test_passes_and_formats_that_cost_time(model: str) -> None:
    def update(**options: object) -> float:
        sections = {"learner": {"batch_trajectories": 4, **options.pop("learner", {})}}  # type: ignore[arg-type]
        config = Config.model_validate({"policy": {"kind": "hub", "model": model, **options}, **sections})
        lines = estimate(config, gpu_of(1e12), 5)
        return next(line.value for line in lines if line.what == "an update")

    lora = {"lora": {"rank": 2}}
    whole, parts = update(**lora), update(**lora, learner={"micro_batch_tokens": 128})
    assert parts == pytest.approx(1.5 * whole, rel=0.2), "it is scored first, part by part"
    grpo = {"micro_batch_tokens": 128, "algorithm": {"kind": "grpo"}}
    assert update(**lora, learner=grpo) == pytest.approx(whole), "its loss is separable"
    grpo["algorithm"] |= {"kl": 0.1}
    assert update(**lora, learner=grpo) == pytest.approx(parts), "the base model scores it"
    grpo["algorithm"] |= {"kl": 0.0, "epochs": 3}
    assert update(**lora, learner=grpo) == pytest.approx(3 * whole, rel=0.2)
    assert update(**lora, dtype="float32") == pytest.approx(10 * whole)
    uncached = update(**lora, vision_cache_gb=0, learner=grpo)
    assert uncached > update(**lora, learner=grpo), "the frozen tower runs in every pass"
    assert update(**lora, learner={**grpo, "engine": "fsdp"}) == pytest.approx(uncached), "and where sharded"


def test_transformers_reads_a_batch_at_once_and_waits_for_each_token(model: str) -> None:
    def inference(engine: str, **options: object) -> dict[str, float]:
        policy = {"kind": "hub", "model": model, **options}
        fields = {"policy": policy, "inference": {"engine": engine}}
        lines = estimate(Config.model_validate(fields), gpu_of(1e12), 5)
        return {line.what: line.value for line in lines if line.process in ("inference", "speed")}

    plain, vllm = inference("hf"), inference("vllm")
    assert plain["buffers"] > 0
    assert "buffers" not in vllm
    assert plain["tokens sampled"] < vllm["tokens sampled"]
    assert inference("hf", lora={"rank": 2})["tokens sampled"] < plain["tokens sampled"] / 2


def test_ranks_share_what_engines_shard(model: str) -> None:
    def parts(num_processes: int, engine: str = "", **zero: object) -> dict[str, float]:
        learner: dict[str, object] = {"num_processes": num_processes, "batch_trajectories": 8}
        if zero:
            learner |= {"engine": "deepspeed", "ds_config": {"zero_optimization": zero}}
        learner |= {"engine": engine} if engine else {}
        found = values({"kind": "hub", "model": model}, learner=learner)
        return {what: value for (process, what), value in found.items() if process != "inference"}

    alone, torchs = parts(1), parts(4)
    assert torchs["weights"] == alone["weights"]
    assert torchs["optimizer"] == alone["optimizer"]
    assert torchs["activations"] == alone["activations"] / 4
    assert torchs["steps trained"] == 4 * alone["steps trained"]
    second, third = parts(4, stage=2), parts(4, stage=3)
    assert second["weights"] == alone["weights"]
    assert second["gradients"] == alone["gradients"] / 4
    assert second["optimizer"] == 3 * alone["trained parameters"]  # twelve bytes each, over four ranks
    assert third["weights"] == alone["weights"] / 4
    offloaded = parts(4, stage=3, offload_param={"device": "cpu"}, offload_optimizer={"device": "cpu"})
    assert offloaded["weights"] == offloaded["optimizer"] == 0.0
    assert offloaded["device memory"] < third["device memory"] < second["device memory"]
    fsdp = parts(4, engine="fsdp")  # its parts are float32, as these weights are
    assert all(fsdp[name] == alone[name] / 4 for name in ("weights", "gradients", "optimizer"))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA L400", "NVIDIA L400, taken for an A100"),
    ],
)
def test_gpus_are_known_by_their_names(name: str, known: str) -> None:
    assert hardware(name, 1).name == known


def gpu_of(size: float) -> Hardware:
    return Hardware(1e12, 1e12, True, "some GPU", size)


def test_the_verdict_is_on_learner_and_servers_together(model: str) -> None:
    fields = {"policy": {"kind": "hub", "model": model}, "local": {"inference_servers": 7}}
    config = Config.model_validate(fields)
    need = estimate(config, gpu_of(1.0), 15)[-1].value
    for size, said in (
        (2 * need, ": fits"),
        (1.02 * need, ": fits barely: buffers"),
        (0.98 * need, ": does not fit; on a GPU of its own learner, inference-0, "),
        (1e3, ": does not fit; on a GPU of its own nothing would; lower learner."),
    ):
        line = estimate(config, gpu_of(size), 15)[-1]
        assert (line.process, line.value) == ("verdict", need)
        assert said in line.how
    turns = load_config("qwen-vl", [f"policy.model={model}", "local.gpus=colocated", "inference.max_batch=1"])
    lines = estimate(turns, gpu_of(1e12), 15)
    found = {(line.process, line.what): line.value for line in lines}
    kept = sum(found["learner", what] for what in ("weights", "gradients", "optimizer", "critic"))
    most = max(found["learner", "device memory"], kept + found["inference", "device memory"])
    assert lines[-1].value == most, "they take turns, but the learner keeps its weights"
    assert ", in turns; between updates the learner keeps" in lines[-1].how
    alone = Config.model_validate({**fields, "learner": {"device": "cpu"}})
    assert "learner" not in estimate(alone, gpu_of(2 * need), 15)[-1].how


def test_vllm_takes_its_share_of_the_gpu(model: str) -> None:
    def inference(size: float, **vllm: object) -> float:
        sections = {"policy": {"kind": "hub", "model": model}, "learner": {"device": "cpu"}}
        sections["inference"] = {"engine": {"kind": "vllm", **vllm}}
        return estimate(Config.model_validate(sections), gpu_of(size), 15)[-1].value

    assert inference(1e12, gpu_memory_utilization=0.3) == pytest.approx(0.3e12)
    assert 2**30 < inference(1e12, kv_cache_gb=1.0) < 2**30 + 1e7, "its weights, and the cache"
    assert inference(1.0) > 1e4, "weights need room whatever the share"


def test_the_command_labels_every_number_and_checks_its_options(model: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"policy: {{kind: hub, model: {model}}}\n")

    def told(*words: str) -> tuple[int, str]:
        result = runner.invoke(app, ["doctor", *words])
        return result.exit_code, result.stdout or result.stderr

    command = ["--estimate", str(file), "--gpu"]
    status, lines = told(*command, "RTX 4090", "--set", "inference.max_batch=3")
    assert status == 0
    assert "inference.max_batch 3 slots" in lines
    verdict, *planned = lines.splitlines()[-7:]
    assert verdict.startswith("verdict    one RTX 4090 of 24 GB")
    assert all(line.startswith("plan ") for line in planned)
    assert "bottleneck: " in planned[-1]
    for line in lines.splitlines():
        assert line.endswith("(estimate)") == ("parameters" not in line and "of these" not in line)
    found = [json.loads(line) for line in told(*command, "cpu", "--json")[1].splitlines()]
    assert {one["process"] for one in found} == {"policy", "learner", "inference", "speed", "network"}
    status, error = told(*command, "foo")
    assert (status, all(name in error for name in PEAKS)) == (2, True)
    assert "a GPU each" in told(*command, "H100", "--gpus", "4")[1]
    assert told("--set", "seed=1")[0] == told("--gpu", "H100")[0] == told("--gpus", "2")[0] == 2
    assert told(*command, "cpu", "--gpus", "2")[0] == 2
    assert "policy.kind is 'reader', but estimates need hub or autoui" in told("--estimate", "quickstart")[1]
    assert told("--config", str(file), "--estimate", str(file))[0] == 2
    assert told("--worker", "--estimate", str(file))[0] == 2
    file.write_text("policy: {kind: hub, model: nobody/no-such-model}\n")
    status, error = told(*command, "cpu")
    assert (status, error.count("\n")) == (9, 1)
