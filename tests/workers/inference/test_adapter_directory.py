"""A slot's directory of a published adapter: PEFT reads it, and it acts as the policy that was published."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from distrl.configs.policy import LoraConfig
from distrl.core.policies import weights_io
from distrl.core.policies.adapter_directory import ADAPTER_FILE, CONFIG_FILE, CONFIG_KEY
from distrl.core.policies.adapters import AdapterHandle, attach_adapter
from distrl.workers.inference.adapter_slots import AdapterSlots

IDS = torch.tensor([[5, 3, 8, 1]])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(str(tmp_path / "base"))
    return tmp_path / "base"


def load(base: Path) -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(str(base)).eval()


def adapt(model: LlamaForCausalLM, targets: list[str]) -> AdapterHandle:
    """An adapter that does something: PEFT's own starts as a no-op."""
    handle = attach_adapter(model, LoraConfig(rank=2, alpha=8.0, dropout=0.1, targets=targets))
    for tensor in handle.state().values():
        tensor.normal_()
    return handle


def publish(handle: AdapterHandle) -> bytearray:
    return weights_io.to_bytes(handle.state(), {CONFIG_KEY: handle.config_json()})


def written(handle: AdapterHandle, root: Path) -> Path:
    """What a server writes of the bytes that arrive."""
    arrived = weights_io.from_bytes(memoryview(publish(handle)).toreadonly())
    return AdapterSlots(root, handle.config_json(), 2).add(1, arrived).directory


@torch.no_grad()
def test_peft_loads_what_was_published_and_gives_the_same_logits(base: Path, tmp_path: Path) -> None:
    model = load(base)
    before = model(IDS).logits
    handle = adapt(model.eval(), ["q_proj", "down_proj"])
    expected = model.eval()(IDS).logits
    assert not torch.allclose(before, expected)
    loaded = PeftModel.from_pretrained(load(base), str(written(handle, tmp_path))).eval()
    assert torch.equal(loaded(IDS).logits, expected)
    torch.testing.assert_close(loaded.merge_and_unload()(IDS).logits, expected)


def test_the_files_are_those_that_peft_writes(base: Path, tmp_path: Path) -> None:
    handle = adapt(load(base), ["v_proj"])
    handle.save(tmp_path / "theirs")
    places = (written(handle, tmp_path), tmp_path / "theirs")
    ours, theirs = (json.loads((place / CONFIG_FILE).read_text()) for place in places)
    assert {**ours, "auto_mapping": theirs["auto_mapping"]} == theirs  # the class of the base model
    assert ours["base_model_name_or_path"] == str(base)
    ours, theirs = (weights_io.from_bytes((place / ADAPTER_FILE).read_bytes()) for place in places)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_same_adapter_gives_the_same_layout(base: Path) -> None:
    first, second = (publish(adapt(load(base), ["q_proj", "k_proj", "v_proj"])) for _ in range(2))
    size = 8 + int.from_bytes(first[:8], "little")
    assert first[:size] == second[:size]
    assert first != second
