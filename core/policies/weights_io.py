"""Weights as bytes and files: safetensors, never pickle, and every mismatch named."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from distrl.core.errors import CheckpointError, PolicyError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Torch warns because tensors cannot be read-only. These are only copied from.
warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
_MAX_HEADER_BYTES = 100 * 2**20


class Digest(Protocol):
    """A hash of hashlib."""

    def update(self, data: Any, /) -> None: ...


def to_bytes(
    state: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    digest: Digest | None = None,
) -> memoryview:
    """The safetensors bytes of `state`. Each tensor is copied once, from its device to its place.

    Args:
        metadata: Texts besides the tensors, in the header's `__metadata__`.
        digest: Is updated with the bytes, in a thread, while later tensors are copied.
    """
    header, tensors = _layout(state, metadata)
    buffer: Any = np.empty(len(header) + sum(tensor.nbytes for tensor in tensors), np.uint8)
    buffer[: len(header)] = np.frombuffer(header, np.uint8)
    update = digest.update if digest is not None else len
    with ThreadPoolExecutor(1, "weights-hash") as hasher:
        hashed = [hasher.submit(update, header)]
        end = len(header)
        for tensor in tensors:
            place = buffer[end : end + tensor.nbytes]
            if tensor.numel():
                torch.from_numpy(place).view(tensor.dtype).view(tensor.shape).copy_(tensor)
            hashed.append(hasher.submit(update, place))
            end += tensor.nbytes
    for job in hashed:
        job.result()  # raises what went wrong there
    return memoryview(buffer)


def _layout(state: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> tuple[bytes, list[Tensor]]:
    """The header, and the tensors in the order in which their bytes follow it."""
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    tensors = {name: state[name].detach() for name in sorted(state)}
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise PolicyError(f"Tensor {name!r} has type {tensor.dtype}, which cannot be published.")
        offsets = [offset, offset + tensor.numel() * tensor.element_size()]
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        offset = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, list(tensors.values())


def layout(state: Mapping[str, Tensor]) -> tuple[dict[str, list[Any]], str]:
    """Names, types and shapes of the tensors, in the order in which they are sent, and a digest of these."""
    names = sorted(state)
    types = [str(state[name].dtype).removeprefix("torch.") for name in names]
    shapes = [list(state[name].shape) for name in names]
    columns: dict[str, list[Any]] = {"names": names, "dtype_names": types, "shapes": shapes}
    return columns, hashlib.sha256(json.dumps(columns).encode()).hexdigest()


def from_bytes(buffer: bytes | bytearray | memoryview) -> dict[str, Tensor]:
    """The tensors in safetensors bytes, read-only views where alignment allows; PolicyError if damaged."""
    try:
        return _parse(memoryview(buffer).cast("B"))
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise PolicyError(
            f"These {len(buffer)} bytes are not readable safetensors weights: {error}.",
            "Transfer or save them again.",
        ) from error


def _parse(view: memoryview) -> dict[str, Tensor]:
    start = 8 + int.from_bytes(view[:8], "little")
    if start > min(len(view), _MAX_HEADER_BYTES):
        raise ValueError("the header is longer than the data")
    header = json.loads(bytes(view[8:start]))
    header.pop("__metadata__", None)
    state: dict[str, Tensor] = {}
    end = start
    for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        dtype, shape = _DTYPES[entry["dtype"]], [int(size) for size in entry["shape"]]
        first, last = (start + int(offset) for offset in entry["data_offsets"])
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or first != end or last != first + size or last > len(view):
            raise ValueError(f"tensor {name!r} does not lie where the header says")
        data = bytearray(view[first:last]) if first % dtype.itemsize else view[first:last]
        tensor = torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        state[name] = tensor.reshape(shape)
        end = last
    if end != len(view):
        raise ValueError(f"{len(view) - end} bytes follow the last tensor")
    return state


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """What training can change of `module`: its state without parameters that are frozen, see `distinct`.

    Buffers stay: some are statistics of the data, and those that are not are small.
    """
    frozen = {name for name, x in module.named_parameters(remove_duplicate=False) if not x.requires_grad}
    return distinct({name: tensor for name, tensor in module.state_dict().items() if name not in frozen})


def distinct(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state` without second names of tensors that share memory (tied embeddings), detached."""
    seen: set[tuple[int, torch.Size]] = set()
    kept: dict[str, Tensor] = {}
    for name, tensor in state.items():
        # Tensors without data have no address, but storages that are shared all the same.
        place = tensor.untyped_storage()._cdata if tensor.is_meta else tensor.data_ptr()
        key = (place, tensor.shape)
        if tensor.numel() == 0 or key not in seen:
            kept[name] = tensor.detach()
        seen.add(key)
    return kept


def mismatch(own: Mapping[str, Tensor], state: Mapping[str, Tensor], has_types: bool = True) -> str:
    """The first tensor that is missing in `state`, unknown or of another shape or type; "" if all fit."""
    for name in sorted(own.keys() | state.keys()):
        if name not in state or name not in own:
            return f"tensor {name!r} is {'missing' if name not in state else 'unknown'}"
        mine, given = own[name], state[name]
        if mine.shape != given.shape or (has_types and mine.dtype != given.dtype):
            expected = f"{tuple(mine.shape)} {mine.dtype}"
            return f"tensor {name!r} is {tuple(given.shape)} {given.dtype} instead of {expected}"
    return ""


def copy_into(own: Mapping[str, Tensor], state: Mapping[str, Tensor], has_types: bool = True) -> None:
    """Copies `state` into `own` in place, if every tensor fits; else PolicyError names the first.

    Without `has_types`, tensors of another type are converted.
    """
    if problem := mismatch(own, state, has_types):
        raise PolicyError(
            f"The weights do not fit the policy: {problem}.",
            "Use the policy configuration that they were made with.",
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def write(
    path: Path,
    state: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    is_durable: bool = True,
) -> None:
    """Writes `state` to `path`, as `to_bytes` does, one tensor after the other.

    Args:
        is_durable: Flush it to disk; files that live no longer than their process need not be.
    """
    with path.open("wb") as file:
        header, tensors = _layout(state, metadata)
        file.write(header)
        for tensor in tensors:
            if tensor.numel():
                file.write(tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def read(path: Path) -> dict[str, Tensor]:
    """The tensors in the safetensors file `path`; CheckpointError if it is missing or truncated."""
    try:
        data = bytearray(path.stat().st_size)
        with path.open("rb") as file:
            length = file.readinto(data)
        return from_bytes(memoryview(data)[:length])
    except (OSError, PolicyError) as error:
        raise CheckpointError(f"Weights {path} cannot be loaded: {error}", "") from error


def load_into(own: Mapping[str, Tensor], *paths: Path) -> None:
    """Reads safetensors files into the tensors of `own`; CheckpointError if damaged or of another policy.

    Their type may be another one, because with `policy.dtype: auto` it depends on the machine.
    """
    state = {name: tensor for path in paths for name, tensor in read(path).items()}
    try:
        copy_into(own, state, has_types=False)
    except PolicyError as error:
        raise CheckpointError(f"Weights {paths[0]} cannot be loaded: {error}", "") from error
