"""Weights as safetensors bytes."""

import json
import tracemalloc
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from distrl.core.errors import PolicyError
from distrl.core.policies.weights_io import (
    copy_into,
    distinct,
    from_bytes,
    load_into,
    read,
    to_bytes,
    trained_state,
    write,
)


def example() -> dict[str, torch.Tensor]:
    return {
        "w": torch.randn(3, 5),
        "half": torch.randn(7).bfloat16(),
        "transposed": torch.randn(4, 2).t(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(7),
        "flag": torch.tensor([True, False, True]),
        "odd": torch.arange(3, dtype=torch.int16),
    }


def test_the_bytes_are_what_safetensors_reads_and_writes(tmp_path: Path) -> None:
    state = example()
    theirs = safetensors.torch.load(bytes(to_bytes(state)))
    write(tmp_path / "w", state, {"a": "b"})
    assert (tmp_path / "w").read_bytes() == bytes(to_bytes(state, {"a": "b"}))
    ours = from_bytes(safetensors.torch.save({k: v.contiguous() for k, v in state.items()}))
    for name, tensor in state.items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(ours[name], tensor)
        assert ours[name].dtype == tensor.dtype


def test_files_are_written_and_read_without_a_second_copy(tmp_path: Path) -> None:
    state, size = {f"{number}": torch.randn(2**18) for number in range(8)}, 8 * 2**20
    file = tmp_path / "w.safetensors"
    tracemalloc.start()
    try:
        write(file, {**example(), **state}, {"a": "b"})
        _, written = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        found = read(file)
        _, both = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert torch.equal(found["7"], state["7"])
    assert file.stat().st_size < both < 1.5 * size
    assert written < size / 2, "tensor by tensor"


def test_every_truncation_is_refused() -> None:
    data = bytes(to_bytes(example()))
    for length in range(len(data)):
        with pytest.raises(PolicyError, match="safetensors"):
            from_bytes(data[:length])
    with pytest.raises(PolicyError):
        from_bytes(data + b"x")


@given(offset=st.integers(8, 200), value=st.integers(0, 255))
def test_a_changed_header_never_reads_outside(offset: int, value: int) -> None:
    data = to_bytes({"a": torch.ones(2, 3), "b": torch.ones(4)})
    data[min(offset, len(data) - 1)] = value
    try:
        state = from_bytes(data)
    except PolicyError:
        return
    assert sum(tensor.nbytes for tensor in state.values()) <= len(data)


def test_an_overlapping_header_is_refused() -> None:
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}
    text = json.dumps(header).encode()
    with pytest.raises(PolicyError, match="does not lie"):
        from_bytes(len(text).to_bytes(8, "little") + text + bytes(4))


def test_tied_tensors_are_published_once() -> None:
    shared = torch.zeros(4)
    assert sorted(distinct({"a": shared, "b": shared, "c": torch.zeros(4)})) == ["a", "c"]


def test_texts_travel_in_the_header(tmp_path: Path) -> None:
    data = to_bytes({"w": torch.ones(2)}, {"b": "2", "a": "1"})
    (tmp_path / "file").write_bytes(data)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"a": "1", "b": "2"}
    assert torch.equal(from_bytes(data)["w"], torch.ones(2))


def test_what_is_frozen_is_not_published() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    module[0].requires_grad_(False)
    module[2].weight = module[0].weight
    state = trained_state(module)
    assert sorted(state) == [
        "1.bias",
        "1.num_batches_tracked",
        "1.running_mean",
        "1.running_var",
        "1.weight",
        "2.bias",
    ]
    module[0].weight.requires_grad_(True)
    assert {"0.weight", "2.weight"} & trained_state(module).keys() == {"0.weight"}  # one of the tied names


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"b": torch.ones(2)}, "tensor 'a' is missing"),
        ({"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(2)}, "tensor 'c' is unknown"),
        ({"a": torch.ones(3), "b": torch.ones(2)}, r"'a' is \(3,\) torch.float32 instead of \(2,\)"),
        ({"a": torch.ones(2), "b": torch.ones(2).half()}, "'b' is .* torch.float16 instead of"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_change_nothing(
    state: dict[str, torch.Tensor], problem: str
) -> None:
    own = {"a": torch.zeros(2), "b": torch.zeros(2)}
    with pytest.raises(PolicyError, match=problem):
        copy_into(own, state)
    assert not any(tensor.any() for tensor in own.values())


def test_a_file_s_weights_may_be_of_another_type_as_on_another_machine(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": torch.full((2,), 1.5, dtype=torch.bfloat16)})
    own = {"a": torch.zeros(2)}
    load_into(own, tmp_path / "w")
    assert own["a"].tolist() == [1.5, 1.5]
    assert own["a"].dtype == torch.float32
