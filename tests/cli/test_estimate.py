"""`distrl doctor --estimate`: numbers are those of the real policy, and costs grow with what bounds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from autoui_models import save_autoui, save_blip2
from tiny_qwen import save_qwen25_vl
from typer.testing import CliRunner

from distrl.cli.health.estimate import (
    MAX_LOGITS,
    PEAKS,
    QUESTION,
    STEPS,
    Hardware,
    Line,
    device_bytes,
    estimate,
    hardware,
    screen_of,
)
from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.policies import build_policy, sampling
from distrl.evaluator.suites import load_suite, vocabulary
from distrl.workers.envs.two_screens import TwoScreensEnv

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
    policy: dict[str, object], steps: float = STEPS, longest: float | None = None, **sections: object
) -> dict[tuple[str, str], float]:
    config = Config.model_validate({"policy": {"device": "cpu", **policy}, **sections})
    found: list[Line] = estimate(config, CPU, steps, longest=longest)
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


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q", "v"]}])
def test_the_embedded_policy_is_counted(lora: object) -> None:
    config = Config.model_validate({"policy": {"lora": lora, "device": "cpu"}})
    policy = build_policy(config.policy, vocabulary(config.tasks.suite), config.seed)
    found = values({"lora": lora})
    assert found["policy", "trained parameters"] == sum(
        p.numel() for p in policy.parameters() if p.requires_grad
    )
    assert found["network", "a version"] == sum(one.nbytes for one in policy.published_state().values())


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
    assert found["policy", "of these for pictures"] == tower
    assert found["policy", "trained parameters"] == trained
    assert found["network", "a version"] == sum(one.nbytes for one in policy.published_state().values())


def test_logits_are_made_in_pieces_of_which_only_one_is_there(model: str) -> None:
    assert MAX_LOGITS == sampling.MAX_LOGITS
    some, many = (
        values({"kind": "hub", "model": model}, steps=1000.0, learner={"max_new_tokens": count})
        for count in (8, 4096)
    )
    assert some["learner", "logits"] < 20 * MAX_LOGITS == many["learner", "logits"]


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
EPISODE = ("policy", "tokens of an episode, at most")
TRAINING = ("policy", "computation of a training step")


def test_an_episode_that_is_one_sequence_is_trained_on_and_kept_once(model: str) -> None:
    options = {"kind": "hub", "model": model, "max_pixels": 28 * 28, "max_prompt_tokens": 64}
    sections = {"learner": {"max_new_tokens": 8, "batch_trajectories": 2}}
    one = values(options, 5, agent=INCREMENTAL, **sections)
    length = 64 + 8 + 4 * (1 + QUESTION + 8)  # a picture is one token
    assert one[EPISODE] == length
    whole = values({**options, "max_prompt_tokens": length - 8}, 5, **sections)
    assert one["inference", "KV cache of a slot"] == whole["inference", "KV cache of a slot"]
    pictures = 4 * 2.0 * one["policy", "of these for pictures"] * 4  # of four patches, four pictures more
    assert one[TRAINING] * 5 == pytest.approx(whole[TRAINING] + pictures)
    assert one["learner", "activations"] == pytest.approx(whole["learner", "activations"] / 5)
    assert one["speed", "an update"] * one["speed", "steps trained"] == pytest.approx(2 * 5)


def test_pictures_add_up_in_a_sequence_that_goes_on(model: str) -> None:
    def tokens(pixels: int, steps: float, **policy: object) -> float:
        options = {"kind": "hub", "model": model, "max_pixels": pixels, "max_prompt_tokens": 500, **policy}
        return values(options, steps, agent=INCREMENTAL)[EPISODE]

    small, large = 6 * 28 * 28, 24 * 28 * 28  # 1x3 and 3x7 tokens, for so long a screen
    assert tokens(large, 11) - tokens(small, 11) == 10 * (21 - 3)
    assert tokens(large, 11) - tokens(large, 10) == 21 + QUESTION + 32
    bounded = tokens(large, 11, max_context_tokens=900)
    assert 900 - (21 + QUESTION + 32) < bounded <= 900, "an episode whose sequence is full ends"


def test_memory_is_told_for_the_longest_episode_and_speed_for_the_mean(model: str) -> None:
    options = {"kind": "hub", "model": model}
    mean, both, longest = (values(options, *steps, agent=INCREMENTAL) for steps in ((4,), (4, 9), (9,)))
    cache = "inference", "KV cache of a slot"
    assert mean[cache] < both[cache] == longest[cache]
    assert both["speed", "an update"] == mean["speed", "an update"] < longest["speed", "an update"]


def test_what_a_server_has_read_before_it_reads_again_only_without_a_cache(model: str) -> None:
    options = {"kind": "hub", "model": model, "max_prompt_tokens": 512}

    def actions(engine: str) -> float:
        inference = {"engine": {"kind": engine}}
        return values(options, agent=INCREMENTAL, inference=inference)["speed", "actions"]

    assert actions("vllm") > actions("hf")


def test_screens_are_those_of_the_environment(model: str, tmp_path: Path) -> None:
    env = TwoScreensEnv()
    screen = env.reset(load_suite("two_screens", "test")[0]).screen
    size = screen.picture().size
    config = Config.model_validate({"env": {"kind": "two_screens"}, "tasks": {"suite": "two_screens"}})
    assert screen_of(config) == size
    file = tmp_path / "run.yaml"
    policy = f"policy: {{kind: hub, model: {model}}}"
    file.write_text(f"{policy}\nenv: {{kind: two_screens}}\ntasks: {{suite: two_screens}}\n")
    told = runner.invoke(app, ["doctor", "--estimate", str(file), "--gpu", "cpu"]).stdout
    assert f"4 steps, jpeg of {size[0]}x{size[1]}" in told
    small = Config.model_validate({"env": {"kind": "two_screens", "options": {"width": 64}}})
    assert screen_of(small) == (64, size[1])
    assert screen_of(Config.model_validate({})) == (540, 1200)
    assert screen_of(Config.model_validate({"env": {"kind": "android_world"}})) == (1080, 2400)


def test_ranks_share_what_zero_shards(model: str) -> None:
    def parts(num_processes: int, **zero: object) -> dict[str, float]:
        learner: dict[str, object] = {"num_processes": num_processes, "batch_trajectories": 8}
        if zero:
            learner |= {"engine": "deepspeed", "ds_config": {"zero_optimization": zero}}
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


def test_gpus_are_known_by_their_names() -> None:
    assert hardware("NVIDIA H100 80GB HBM3", 1).flops == PEAKS["H100"][0]
    assert hardware("NVIDIA H100 PCIe", 1).flops == PEAKS["H100 PCIe"][0]
    for known in ("L40S", "L40", "A10", "A10G", "A40", "B200", "RTX A6000"):
        assert hardware(f"NVIDIA {known}", 1).name == known
    assert hardware("NVIDIA GH200 480GB", 1).name == "GH200"
    assert hardware("NVIDIA RTX 6000 Ada Generation", 1).name == "RTX 6000 Ada"
    assert hardware("NVIDIA A100-SXM4-40GB", 1).memory == 40e9
    assert hardware("NVIDIA A100-SXM4-80GB", 1).memory == 80e9
    assert hardware("NVIDIA H200", 1, 150e9).memory == 150e9
    for other in ("NVIDIA Something", "NVIDIA L400", "NVIDIA RTX A1000"):
        assert "taken for" in hardware(other, 1).name
    assert hardware(None, 3).flops == 3 * hardware(None, 1).flops


def gpu_of(size: float) -> Hardware:
    return Hardware(1e12, 1e12, True, "some GPU", size)


def test_the_verdict_is_on_learner_and_servers_together(model: str) -> None:
    fields = {"policy": {"kind": "hub", "model": model}, "local": {"inference_servers": 7}}
    config = Config.model_validate(fields)
    need = sum(device_bytes(config, estimate(config, gpu_of(1.0)), 1.0).values())
    for size, said in (
        (2 * need, ": fits"),
        (1.02 * need, ": fits barely, because buffers"),
        (0.98 * need, ": does not fit; on a GPU of its own learner fits, each server fits; lower learner."),
        (1e3, "on a GPU of its own learner does not fit, each server does not fit; "),
    ):
        line = estimate(config, gpu_of(size))[-1]
        assert (line.process, line.value) == ("verdict", need)
        assert said in line.how
    assert estimate(config, gpu_of(2 * need))[-1].how.endswith(": fits")
    alone = Config.model_validate({**fields, "learner": {"device": "cpu"}})
    assert list(device_bytes(alone, estimate(alone, gpu_of(1.0)), 1.0)) == ["7 inference servers"]


def test_vllm_takes_its_share_of_the_gpu(model: str) -> None:
    def inference(size: float, **vllm: object) -> float:
        config = Config.model_validate(
            {"policy": {"kind": "hub", "model": model}, "inference": {"engine": {"kind": "vllm", **vllm}}}
        )
        return device_bytes(config, estimate(config, gpu_of(size)), size)["inference"]

    assert inference(1e12) == pytest.approx(0.85e12)
    assert inference(1e12, gpu_memory_utilization=0.3) == pytest.approx(0.3e12)
    assert 2**30 < inference(1e12, kv_cache_gb=1.0) < 2**30 + 1e7, "its weights, and the cache"
    assert inference(1.0) > 1e4, "weights need room whatever the share"


def test_set_and_gpu_are_checked(model: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"policy: {{kind: hub, model: {model}}}\n")

    def told(*words: str) -> tuple[int, str]:
        result = runner.invoke(app, ["doctor", *words])
        return result.exit_code, result.stdout or result.stderr

    command = ["--estimate", str(file), "--gpu"]
    status, error = told(*command, "foo")
    assert status == 2
    assert "'foo'" in error
    assert all(name in error for name in PEAKS)
    status, lines = told(*command, "RTX 4090", "--set", "inference.max_batch=3")
    assert status == 0
    assert "inference.max_batch 3 slots" in lines
    assert lines.splitlines()[-1].startswith("verdict    one RTX 4090 of 24 GB")
    assert told("--set", "seed=1")[0] == told("--gpu", "H100")[0] == 2
    assert told("--config", str(file), "--estimate", str(file))[0] == 2


def test_the_command_labels_every_number(model: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"policy: {{kind: hub, model: {model}}}\n")
    result = runner.invoke(app, ["doctor", "--estimate", str(file), "--gpu", "H100"])
    assert result.exit_code == 0
    for line in result.stdout.splitlines():
        assert line.endswith("(estimate)") == ("parameters" not in line and "of these" not in line)
    result = runner.invoke(app, ["doctor", "--estimate", str(file), "--gpu", "cpu", "--json"])
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert {one["process"] for one in told} == {"policy", "learner", "inference", "disk", "speed", "network"}
    assert all(one["value"] > 0 for one in told)
    file.write_text("policy: {kind: hub, model: nobody/no-such-model}\n")
    result = runner.invoke(app, ["doctor", "--estimate", str(file), "--gpu", "cpu"])
    assert (result.exit_code, result.stderr.count("\n")) == (9, 1)
