"""Versions of an adapter beside each other: slots, files, and what is unloaded when."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.core.errors import PolicyError
from distrl.core.policies import weights_io
from distrl.workers.inference.adapter_slots import AdapterSlots

STATE = {"w": torch.arange(3.0)}
WAIT_S = 30.0


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


def test_before_the_first_adapter_a_request_takes_none(slots: AdapterSlots) -> None:
    assert slots.acquire() is None
    first = slots.add(1, STATE)
    assert slots.acquire() is None, "not before it is loaded"
    slots.activate(first)
    assert slots.acquire() is first
    assert not slots.release(first)


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
    assert slots.has_room(WAIT_S)
    held = [slots.add(version, STATE) for version in (1, 2)]
    assert not slots.has_room(WAIT_S)
    with pytest.raises(PolicyError, match=r"All 2 adapter slots.*max_adapters"):
        slots.has_room(0.0)
    slots.drop(held[0])
    assert slots.has_room(0.0)
    assert slots.add(3, STATE).version == 3
    assert not slots.has_room(WAIT_S), "it waits anew"
    assert len(slots) == 2


def test_files_that_go_with_the_process_are_not_flushed_to_disk(
    slots: AdapterSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    adapter = slots.add(7, STATE)
    assert torch.equal(weights_io.read(adapter.directory / "adapter_model.safetensors")["w"], STATE["w"])
    assert not flushed
