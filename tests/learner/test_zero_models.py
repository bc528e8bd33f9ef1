"""ZeRO shards models of the hub with LoRA, and AutoUI's T5, and offloads; the numbers are those of torch."""

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

pytestmark = [pytest.mark.needs("deepspeed"), pytest.mark.timeout(900)]

CPU = {"device": "cpu"}
ALL: list[dict[str, Any]] = [
    {"stage": 1},
    {"stage": 2},
    {"stage": 3, "stage3_param_persistence_threshold": 0},
]
OFFLOADED: list[dict[str, Any]] = [
    {"stage": 2, "offload_optimizer": CPU},
    {"stage": 3, "stage3_param_persistence_threshold": 0, "offload_optimizer": CPU, "offload_param": CPU},
]


def run(size: int, directory: Path, name: str, stages: list[dict[str, Any]]) -> None:
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
        "rank_models:compare", size, directory, name, str(model), *map(json.dumps, stages), timeout_s=800
    )


@pytest.mark.parametrize(
    "name", ["hub-lora", "hub-lora-grpo", "hub-lora-checkpointed", "autoui", "autoui-lora"]
)
def test_two_ranks_have_the_losses_and_the_weights_of_one_process(name: str, tmp_path: Path) -> None:
    run(2, tmp_path, name, ALL)


@pytest.mark.parametrize("name", ["hub-lora", "hub-full"])
def test_what_is_offloaded_to_the_cpu_is_the_same(name: str, tmp_path: Path) -> None:
    """On one rank, as where there is one GPU. Without any nothing moves, but DeepSpeed takes that path."""
    run(1, tmp_path, name, OFFLOADED)


def test_adapters_of_a_half_precision_model_stay_in_full_precision(tmp_path: Path) -> None:
    """As on every GPU, where `policy.dtype` auto is bfloat16: inference servers take no others."""
    run(2, tmp_path, "hub-lora-half", ALL)
