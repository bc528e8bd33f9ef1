"""How a run would use GPUs that this machine does not have: a pure function of the configuration."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="needs torch: not installed")

from distrl.cli.health.estimate import Hardware, estimate, hardware, screen_of
from distrl.cli.local import gpus, plan
from distrl.cli.local.plan import Plan, Planner, plan_here
from distrl.cli.local.run import LocalRun
from distrl.cli.main import app
from distrl.cli.train import STOPPED
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import PolicyError
from distrl.core.model_points import ImageShape
from distrl.core.policies.model_shapes import ModelShape, TextShape

# hidden, feed-forward, layers, heads, of these of keys, parameters of the tower
SIZES = {
    "2B": (2048, 6144, 28, 16, 8, 4e8),
    "7B": (3584, 18_944, 28, 28, 4, 6.7e8),
    "32B": (5120, 27_648, 64, 40, 8, 6.7e8),
}
SLOTS = "worker.slots=64"
SHARDED = ("learner.engine=deepspeed", "learner.ds_config={zero_optimization: {stage: 3}}")


def shape(size: str) -> ModelShape:
    """That of a Qwen-VL model of about this size."""
    hidden, inner, layers, heads, kv_heads, tower = SIZES[size]
    vocabulary, width = 151_936, 128
    sizes = {
        "self_attn.q_proj": (heads * width, hidden),
        "self_attn.k_proj": (kv_heads * width, hidden),
        "self_attn.v_proj": (kv_heads * width, hidden),
        "self_attn.o_proj": (hidden, heads * width),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"model.language_model.layers.{layer}.{name}.weight": one
        for layer in range(layers)
        for name, one in sizes.items()
    }
    shapes["model.language_model.embed_tokens.weight"] = (vocabulary, hidden)
    if size != "2B":  # whose output layer is the embedding
        shapes["lm_head.weight"] = (vocabulary, hidden)
    shapes["model.visual.all"] = (int(tower),)
    text = TextShape(hidden, layers, heads, kv_heads, width, inner, vocabulary)
    return ModelShape(shapes, text, ImageShape(16, 2, 12_845_056, is_fixed=False))


def planned(size: str, num_gpus: int, gpu: str, *settings: str, has_vllm: bool = True) -> Plan:
    config = load_config("qwen-vl", [SLOTS, *settings])
    return Planner(config, hardware(gpu, 1), num_gpus, 15, has_vllm, shape(size)).plan()


def on_80(size: str, num_gpus: int, *settings: str, **options: bool) -> Plan:
    return planned(size, num_gpus, "H100", *settings, **options)


def num_used(config: Config) -> int:
    return config.learner.num_ranks + config.num_servers * gpus.width_of(config)


def value(config: Config, where: Hardware, size: str, *line: str) -> float:
    lines = estimate(config, where, 15, screen_of(config), shape(size))
    return next(one.value for one in lines if (one.process, one.what) == line)


@pytest.mark.parametrize("size", ["2B", "7B"])
def test_eight_gpus_are_all_used_and_no_other_split_is_faster(size: str) -> None:
    found = on_80(size, 8)
    assert num_used(found.config) == 8
    assert not found.too_large
    assert not found.is_shared
    assert found.config.inference.engine.kind == "vllm"
    slower = min(found.per_s.values())
    for ranks in range(1, 8):
        other = on_80(size, 8, f"learner.num_processes={ranks}", f"local.inference_servers={8 - ranks}")
        assert min(other.per_s.values()) <= slower
    places = gpus.for_training(found.config, [str(index) for index in range(8)])
    assert sorted(name for mine in places.values() for name in mine) == [str(index) for index in range(8)]


def test_servers_take_their_slots_and_more_if_there_is_room_for_them() -> None:
    config = on_80("7B", 8).config
    share = math.ceil(64 / config.num_servers)
    assert config.inference.num_rows == math.ceil(1.5 * share)
    assert config.inference.num_rows * config.num_servers >= 64
    assert on_80("7B", 8, "inference.max_batch=5").config.inference.max_batch == 5
    few = on_80("2B", 8, "worker.slots=2").config
    assert few.num_servers <= 2, "a slot stays with one server"
    elsewhere = on_80("2B", 8, "local.workers=0", "policy.max_context_tokens=4400").config
    assert elsewhere.inference.num_rows == 96
    crowded = on_80("7B", 8, "worker.slots=2000")
    row = value(crowded.config, hardware("H100", 1), "7B", "inference", "KV cache of a slot")
    assert crowded.config.inference.num_rows * row < 80e9


@pytest.mark.parametrize(
    ("gpu", "size", "fits"), [("L4", "2B", True), ("L4", "7B", False), ("H100", "7B", True)]
)
def test_on_one_gpu_vllm_leaves_room_for_the_learner(gpu: str, size: str, fits: bool) -> None:
    found, where = planned(size, 1, gpu), hardware(gpu, 1)
    config = found.config
    assert (config.learner.num_ranks, config.num_servers, found.is_shared) == (1, 1, True)
    assert found.actions_per_s < min(found.per_s.values()), "they take turns"
    assert (found.too_large == {}) == fits
    learner = value(config, where, size, "learner", "device memory")
    share = config.inference.vllm.gpu_memory_utilization * where.memory
    assert (learner + share <= where.memory) == fits
    assert any(line.what.startswith("too large") for line in found.lines()) != fits


@pytest.mark.parametrize(("gpu", "size"), [("RTX 4090", "2B"), ("H100", "7B")])
def test_in_turns_vllm_has_what_the_learner_does_not_keep(gpu: str, size: str) -> None:
    apart, found = planned(size, 1, gpu), planned(size, 1, gpu, "local.gpus=colocated")
    where = hardware(gpu, 1)
    assert not found.too_large
    shares = [one.config.inference.vllm.gpu_memory_utilization for one in (apart, found)]
    kept = value(found.config, where, size, "learner", "device memory") - sum(
        value(found.config, where, size, "learner", what) for what in ("activations", "logits")
    )
    assert shares[0] < shares[1]
    assert kept + shares[1] * where.memory <= where.memory
    assert found.actions_per_s >= apart.actions_per_s
    several = on_80("2B", 8, "local.gpus=colocated")
    assert num_used(several.config) == 2
    assert any("taking turns on a GPU" in line.how for line in several.lines())


def test_a_model_that_needs_several_gpus_gets_them_or_says_what_is_missing() -> None:
    whole = on_80("32B", 8)
    assert gpus.width_of(whole.config) == 2
    assert list(whole.too_large) == ["learner"]
    assert "learner.engine fsdp" in whole.lines()[-1].how
    sharded = on_80("32B", 8, *SHARDED)
    assert not sharded.too_large
    assert num_used(sharded.config) <= 8
    assert sharded.config.learner.num_ranks > 1
    assert not on_80("32B", 8, "learner.engine=fsdp").too_large
    given = on_80("32B", 8, *SHARDED, "inference.engine={kind: vllm, tensor_parallel_size: 4}")
    assert (gpus.width_of(given.config), given.config.num_servers) == (4, 1)
    assert set(on_80("32B", 1).too_large) == {"learner", "servers"}


def test_the_bottleneck_is_the_slowest_of_learner_servers_and_devices() -> None:
    def bottleneck(*settings: str) -> str:
        found = on_80("2B", 8, *settings)
        assert found.actions_per_s == min(found.per_s.values())
        return found.lines()[-1].how.rpartition(" ")[2]

    assert bottleneck("learner.updates_per_episode=10") == "learner"
    assert bottleneck("learner.num_processes=7", "learner.updates_per_episode=0.0001") == "servers"
    assert bottleneck("simulate.latency={median_s: 500}") == "devices"


def test_what_is_given_stays_and_without_vllm_transformers_serves() -> None:
    found = on_80("2B", 4, "learner.num_processes=2", "inference.max_batch=7")
    assert (found.config.learner.num_ranks, found.config.num_servers) == (2, 2)
    assert found.config.inference.num_rows == 7
    plain = on_80("2B", 4, has_vllm=False)
    assert plain.config.inference.engine.kind == "hf"
    server = value(plain.config, hardware("H100", 1), "2B", "inference", "device memory")
    assert 0.3 * 80e9 < server <= 0.9 * 80e9, "a batch that fits"
    crowded = on_80("2B", 2, "learner.num_processes=2", "local.inference_servers=2")
    assert crowded.is_shared


def test_servers_for_which_no_gpu_is_left_divide_those_of_the_others() -> None:
    alone, found = (on_80("2B", 2, f"local.inference_servers={count}") for count in (1, 3))
    places = gpus.for_training(found.config, ["0", "1"])
    assert [places[f"inference-{i}"] for i in range(3)] == [("1",)] * 3
    assert (found.crowd, found.is_shared, found.too_large) == (3, False, {})
    shares = [one.config.inference.vllm.gpu_memory_utilization for one in (alone, found)]
    assert 3 * shares[1] <= 1.0 < 3 * shares[0]
    assert found.per_s["servers"] <= alone.per_s["servers"], "they have one GPU together"
    assert found.actions_per_s == min(found.per_s.values()), "the learner's is its own"
    rows = {line.what: line.how for line in found.lines()}
    assert rows["ranks of the learner"] == "a GPU each"
    assert rows["inference servers"].startswith("3 on a GPU, vllm")
    assert list(on_80("7B", 2, "local.inference_servers=8").too_large) == ["servers"]


def test_servers_that_are_given_more_memory_than_there_is_are_too_large() -> None:
    engine = "inference.engine={{kind: vllm, gpu_memory_utilization: {}}}"
    for share, too_large in ((0.85, ["servers"]), (0.4, [])):
        found = on_80("2B", 2, "local.inference_servers=2", engine.format(share))
        assert list(found.too_large) == too_large
        assert found.config.inference.vllm.gpu_memory_utilization == share
    assert list(on_80("7B", 1, engine.format(0.85)).too_large) == ["servers"], "beside the learner"


def test_a_machine_without_a_gpu_keeps_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "")
    config = load_config("qwen-vl")
    assert plan_here(config) is None
    assert (config.num_servers, config.learner.num_ranks, config.inference.num_rows) == (1, 1, 16)
    assert config.engine_for(has_vllm=False).kind == "hf"


@pytest.mark.needs("transformers", "peft", "jinja2")
def test_a_run_shows_its_plan_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_qwen import save_qwen3_vl

    save_qwen3_vl(tmp_path / "model")
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "NVIDIA L4, 23034 MiB"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv(gpus.VISIBLE, "0,1,2")
    monkeypatch.setattr(LocalRun, "train", lambda self: False)  # as if it was stopped
    settings = [f"policy.model={tmp_path / 'model'}", f"runs_dir={tmp_path}"]
    sets = [f"--set={one}" for one in settings]
    result = CliRunner().invoke(app, ["train", "qwen-vl", *sets])
    assert result.exit_code == STOPPED, result.output
    assert "inference servers" in result.stdout
    assert "bottleneck: " in result.stdout
    config = load_config(tmp_path / "qwen-vl")
    assert num_used(config) == 3
    assert "auto" not in (config.inference.engine.kind, config.inference.max_batch)
    assert plan_here(load_config("qwen-vl", [*settings, "learner.device=cuda:1"])) is None, "by the user"
    assert plan_here(load_config("quickstart")) is None, "a small policy"


def test_a_run_starts_without_a_plan_if_the_model_s_sizes_cannot_be_read(tmp_path, monkeypatch) -> None:
    def unreadable(config: Config) -> None:
        raise PolicyError("its sizes are per layer.", "")

    monkeypatch.setattr(plan, "plan_here", unreadable)
    monkeypatch.setattr(LocalRun, "train", lambda self: False)  # as if it was stopped
    result = CliRunner().invoke(app, ["train", "quickstart", f"--set=runs_dir={tmp_path}"])
    assert result.exit_code == STOPPED, result.output
    assert "cannot plan the use of the GPUs: its sizes are per layer." in result.stderr
