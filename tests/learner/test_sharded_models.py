"""Models of the hub with LoRA and without, and AutoUI's T5, sharded: the numbers are those of torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

from autoui_models import save_autoui, save_blip2, save_t5
from rank_world import run_ranks
from tiny_qwen import save_qwen25_vl

pytestmark = pytest.mark.timeout(900)


def zero(stage: int, **options: Any) -> dict[str, Any]:
    keys = {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {}), **options}
    return {"engine": "deepspeed", "ds_config": {"zero_optimization": keys}}


CPU = {"device": "cpu"}
OFFLOADED = [zero(2, offload_optimizer=CPU), zero(3, offload_optimizer=CPU, offload_param=CPU)]
ENGINES = pytest.mark.parametrize(
    "engines",
    [
        pytest.param([{"engine": "fsdp"}], id="fsdp"),
        pytest.param([zero(1), zero(2), zero(3)], id="zero", marks=pytest.mark.needs("deepspeed")),
    ],
)


def run(size: int, directory: Path, name: str, engines: list[dict[str, Any]], what: str = "compare") -> None:
    model = directory / "model"
    model.mkdir()
    if name == "autoui":
        save_autoui(model)
        save_blip2(directory / "blip2")
    elif name == "autoui-lora":
        save_t5(model)
    else:
        save_qwen25_vl(model)
    run_ranks(
        f"rank_models:{what}", size, directory, name, str(model), *map(json.dumps, engines), timeout_s=800
    )


@pytest.mark.parametrize(
    "name", ["hub-full", "hub-lora-grpo", "hub-lora-checkpointed", "autoui", "autoui-lora"]
)
@ENGINES
def test_two_ranks_have_the_losses_and_the_weights_of_one_process(
    name: str, engines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Logits in pieces, of which ranks have different numbers, and a rank without pictures, too."""
    run(2, tmp_path, name, engines)


@pytest.mark.needs("deepspeed")
@pytest.mark.parametrize("name", ["hub-lora", "hub-full"])
def test_what_is_offloaded_to_the_cpu_is_the_same(name: str, tmp_path: Path) -> None:
    """On one rank, as where there is one GPU. Without any nothing moves, but DeepSpeed takes that path."""
    run(1, tmp_path, name, OFFLOADED)


@pytest.mark.parametrize("name", ["hub-lora-half", "hub-full-half"])
@ENGINES
def test_a_half_precision_model_is_published_as_it_is(
    name: str, engines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """As on every GPU, where `policy.dtype` auto is bfloat16: adapters stay in float32, weights do not."""
    run(2, tmp_path, name, engines)


@ENGINES
def test_a_checkpoint_has_the_float32_weights_of_a_half_precision_model(
    engines: list[dict[str, Any]], tmp_path: Path
) -> None:
    run(2, tmp_path, "hub-full-half", engines, "resume")
