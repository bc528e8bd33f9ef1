"""Versions of an adapter beside each other: slots, files, and what is unloaded when."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import json
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from distrl.configs.policy import LoraConfig
from distrl.core.policies import weights_io
from distrl.core.policies.adapters import AdapterHandle, attach_adapter
from distrl.workers.inference.adapter_slots import AdapterSlots

STATE = {"w": torch.arange(3.0)}


@pytest.fixture
def slots(tmp_path: Path) -> AdapterSlots:
    return AdapterSlots(tmp_path, '{"r": 4}', capacity=2)


def test_requests_keep_the_adapter_that_they_began_with(slots: AdapterSlots) -> None:
    first = slots.add(7, STATE)
    assert slots.activate(first) is None
    mine = [slots.acquire(), slots.acquire()]
    second = slots.add(8, STATE)
    assert slots.acquire() is first, "not before it is loaded"
    assert slots.activate(second) is None, "the first still has users"
    assert slots.acquire() is second
    assert [slots.release(one) for one in (*mine, first)] == [False, False, True]
    assert not slots.release(second), "the newest stays"


def test_an_adapter_without_users_goes_at_once(slots: AdapterSlots) -> None:
    first, second = slots.add(1, STATE), slots.add(1, STATE)
    assert first.id != second.id, "a version's number may come again with other weights"
    assert slots.activate(first) is None
    assert slots.activate(second) is first


def test_files_live_as_long_as_the_slot(slots: AdapterSlots, tmp_path: Path) -> None:
    adapter = slots.add(3, STATE)
    assert json.loads((adapter.directory / "adapter_config.json").read_text()) == {"r": 4}
    written = weights_io.read(adapter.directory / "adapter_model.safetensors")
    assert torch.equal(written["w"], STATE["w"])
    slots.drop(adapter)
    assert list(tmp_path.iterdir()) == []
    assert len(slots) == 0


def test_a_full_engine_has_room_again_when_an_adapter_is_dropped(slots: AdapterSlots) -> None:
    assert slots.has_room
    held = [slots.add(version, STATE) for version in (1, 2)]
    assert not slots.has_room
    slots.drop(held[0])
    assert slots.add(3, STATE).version == 3
    assert len(slots) == 2


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
    handle = attach_adapter(model, LoraConfig(rank=2, alpha=8.0, targets=targets))
    for tensor in handle.state().values():
        tensor.normal_()
    return handle


def written(handle: AdapterHandle, root: Path) -> Path:
    """What a server writes of the bytes that arrive."""
    arrived = weights_io.from_bytes(memoryview(weights_io.to_bytes(handle.state())).toreadonly())
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
