"""The table of families in docs/models.md: what each row says of a tiny random model of that family."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hub_models import FAMILIES, MORE
from policy_fakes import chat, check_agreement, png, swap

from distrl.configs.policy import policy_config
from distrl.core.errors import PolicyError
from distrl.core.policies import build_policy

if TYPE_CHECKING:
    from distrl.core.policies.hub import HubPolicy

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
ALL = {**FAMILIES, **MORE}
ATTENTION = "q_proj k_proj v_proj o_proj"
FEED_FORWARD = "gate_proj up_proj down_proj"
MIXERS = "in_proj_qkv in_proj_z in_proj_a in_proj_b out_proj"
LORA = {
    "qwen2": f"{ATTENTION} {FEED_FORWARD}",
    "llava": f"{ATTENTION} {FEED_FORWARD}",
    "qwen": f"{ATTENTION} {FEED_FORWARD}",
    "qwen3": f"{ATTENTION} {FEED_FORWARD}",
    "qwen3-moe": ATTENTION,
    "qwen3.5": f"{ATTENTION} {MIXERS} {FEED_FORWARD}",
    "qwen3.5-moe": f"{ATTENTION} {MIXERS}",
    "glm": f"{ATTENTION} gate_up_proj down_proj",
    "glm-4.1": f"{ATTENTION} gate_up_proj down_proj",
    "glm-4.5": ATTENTION,
}
"""Families that load, and the layers that have adapters by default."""

REFUSED = {
    "internvl": "does more than resizing, normalising and cutting into patches",
    "gemma3": r"also gives \['num_crops'\], which is not supported",
}
ROWS = {
    "qwen2": "Qwen2-VL",
    "qwen": "Qwen2.5-VL",
    "qwen3": "Qwen3-VL",
    "qwen3-moe": "Qwen3-VL, mixtures (30B-A3B)",
    "qwen3.5": "Qwen3.5",
    "qwen3.5-moe": "Qwen3.5, mixtures (35B-A3B)",
    "glm-4.1": "GLM-4.1V (`glm4v`)",
    "glm-4.5": "GLM-4.5V (`glm4v_moe`), a mixture",
    "glm": "GLM-4.6V (`glm46v`)",
    "llava": "LLaVA and others of one fixed size",
    "internvl": "InternVL",
    "gemma3": "Gemma 3",
}
MIXTURES = [name for name in LORA if name.endswith(("moe", "4.5"))]
SIZES = [(54, 120), (80, 40), (33, 31)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directories = {name: tmp_path_factory.mktemp(name) for name in ALL}
    for name, save in ALL.items():
        save(directories[name])
    return directories


def make(directory: Path, **options: Any) -> HubPolicy:
    found = build_policy(policy_config(kind="hub", model=str(directory), device="cpu", **options), [], 0)
    return found  # type: ignore[return-value]


def agree(policy: HubPolicy) -> None:
    """Sampling and scoring, of prompts of several lengths and pictures, also after a swap."""
    images = [[policy.image(png(number, size))] for number, size in enumerate(SIZES)]
    goals = ("red", "open settings", "turn on the alarm at 7:20")
    prompts = [policy.prompt_ids(chat(goal), row) for goal, row in zip(goals, images, strict=True)]
    batch = policy.collate(prompts, images)
    for _ in range(2):
        check_agreement(policy, batch)
        swap(policy)


def adapted(policy: HubPolicy) -> set[str]:
    """Last names of the layers with an adapter; "experts" stands for those of a mixture."""
    parts = [name.split(".lora_A")[0].split(".") for name in policy.published_state() if ".lora_A" in name]
    return {next((part for part in names if part == "experts"), names[-1]) for names in parts}


@pytest.mark.parametrize("name", LORA)
@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_what_is_sampled_is_what_is_scored(name: str, lora: Any, models: dict[str, Path]) -> None:
    policy = make(models[name], lora=lora)
    agree(policy)
    assert adapted(policy) == (set(LORA[name].split()) if lora else set())


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_is_not_supported_is_refused_with_the_reason(
    name: str, models: dict[str, Path]
) -> None:
    with pytest.raises(PolicyError, match=REFUSED[name]):
        make(models[name])


@pytest.mark.parametrize("name", MIXTURES)
def test_adapters_in_experts(
    name: str, models: dict[str, Path], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING):
        make(models[name], lora={"rank": 2})
    assert "leave out the model's experts (experts.down_proj, experts.gate_up_proj)" in caplog.text
    caplog.clear()
    policy = make(models[name], lora={"rank": 2, "experts": True})
    assert "experts" not in caplog.text
    assert adapted(policy) >= {"experts", *ATTENTION.split()}
    answer = policy.completion_ids("tap")
    picture = [policy.image(png(0))]

    batch, tokens = (
        policy.collate([policy.prompt_ids(chat("red"), picture)], [picture]),
        torch.tensor([answer]),
    )
    before = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(1)).logprobs
    experts = [tensor for key, tensor in policy.published_state().items() if "experts" in key]
    for tensor in experts:
        tensor.add_(0.2 * torch.randn_like(tensor))
    after = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(1)).logprobs
    assert not torch.allclose(before, after)
    agree(policy)
    last = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(1)).logprobs
    last.sum().backward()
    trained = [p for key, p in policy.named_parameters() if "experts" in key and p.requires_grad]
    assert trained
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)
    policy.export(tmp_path)
    merged = make(tmp_path).score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(1)).logprobs
    torch.testing.assert_close(merged, last, atol=1e-4, rtol=0)


def test_adapters_in_experts_need_experts(models: dict[str, Path]) -> None:
    with pytest.raises(PolicyError, match=r"policy\.lora\.experts needs a model with experts"):
        make(models["qwen3"], lora={"experts": True})


def test_the_table_says_what_is_tested() -> None:
    """A row for each family; a reason instead of layers where it is refused."""
    text = DOCS.read_text(encoding="utf-8").partition("| family |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    found = {row[0]: row[1:] for row in rows}
    assert found.keys() == set(ROWS.values())
    assert ROWS.keys() == ALL.keys()
    for name, (loads, scores, lora, vllm, _) in ((name, found[row]) for name, row in ROWS.items()):
        if name in REFUSED:
            assert (loads.startswith("no: "), scores, lora, vllm) == (True, "no", "no", "no")
            continue
        words = {"attention": ATTENTION, "feed-forward": FEED_FORWARD, "linear attention": MIXERS}
        layers = set(" ".join(words[word] for word in lora.split(", ")).split())
        fused = {"gate_up_proj": "gate_proj up_proj"}
        expected = {part for layer in LORA[name].split() for part in fused.get(layer, layer).split()}
        assert (loads, scores, layers) == ("yes", "yes", expected)
        assert vllm in ("yes", "no ¹", "not run here")
