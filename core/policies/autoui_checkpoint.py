"""Tensors of a model's files, by name: the checkpoints of T5, AutoUI and DigiRL, and parts of larger models.

A directory or a hub id has one of model.safetensors and pytorch_model.bin, or an index of several such files.
Only the files that hold a wanted tensor are fetched and read; pickled code is never run.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.hub_cache import WEIGHTS

WRAPPER = "module."
"""What data-parallel training puts before every name."""


def read_tensors(key: str, model: str, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of `model` whose names begin with `prefix`, which is cut off.

    Args:
        key: The configuration's key that names the model, for errors.
        model: A directory, or a hub id.
        prefix: E.g. "vision_model.".

    Raises:
        PolicyError: There are no such files, or they cannot be read.
    """
    tensors: dict[str, Tensor] = {}
    try:
        for file in _files(model, prefix):
            tensors |= _read(file, prefix)
    except (OSError, ValueError, KeyError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise PolicyError(
            f"{key} {model!r} cannot be read: {(str(error).strip() or repr(error)).splitlines()[0]}",
            "Name a directory or a hub id with model.safetensors or pytorch_model.bin that this machine "
            "can reach.",
        ) from error
    return tensors


def _files(model: str, prefix: str) -> Iterator[Path]:
    for name in WEIGHTS:
        if (index := _find(model, f"{name}.index.json")) is not None:
            where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted({file for tensor, file in where.items() if tensor.startswith(prefix)})
        else:
            names = [name]
        found = [_find(model, one) for one in names]
        if found and None not in found:
            yield from (file for file in found if file is not None)
            return
    raise FileNotFoundError(f"there is neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or in parts")


def _find(model: str, name: str) -> Path | None:
    from transformers.utils import cached_file

    found = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)


def _read(file: Path, prefix: str) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(file), framework="pt") as opened:
                names = [name for name in opened.keys() if name.startswith(prefix)]  # noqa: SIM118
                return {name.removeprefix(prefix): opened.get_tensor(name) for name in names}
        except SafetensorError as error:
            raise ValueError(f"{file}: {error}") from error
    state: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    if not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"{file} holds more than tensors by name")
    return {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names as the model itself has them."""
    if all(name.startswith(WRAPPER) for name in tensors):
        return {name.removeprefix(WRAPPER): tensor for name, tensor in tensors.items()}
    return dict(tensors)


def require_same(
    key: str, model: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor], remedy: str
) -> None:
    """Refuses a checkpoint that has not exactly the tensors that a network has.

    Raises:
        PolicyError: Naming the first ones that are missing, unknown or of another shape.
    """
    missing, unknown = expected.keys() - found.keys(), found.keys() - expected.keys()
    shared = sorted(expected.keys() & found.keys())
    other = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in shared
        if found[name].shape != expected[name].shape
    ]
    problems = [
        f"{what} {_listed(names)}"
        for what, names in (("lacks", missing), ("has the unknown", unknown), ("has", other))
        if names
    ]
    if problems:
        raise PolicyError(f"{key} {model!r} does not fit: it {'; it '.join(problems)}.", remedy)


def _listed(names: Collection[str]) -> str:
    first = sorted(names)[:3]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")
