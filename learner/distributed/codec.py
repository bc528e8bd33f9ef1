"""What ranks tell each other, as bytes: a JSON tree whose tensors follow as safetensors. No pickle.

    8 bytes: length of the tree · the tree · safetensors of its tensors by number

A tensor that occurs several times, such as a picture that several steps show, is sent once and is one tensor
on the other side too.

Only the kinds of records listed in `KINDS` are made from bytes.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.base import Pictures, PromptBatch
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.algorithms.values import Values
from distrl.learner.batching import StepBatch, TrajectoryBatch, Whole
from distrl.learner.losses import Moments
from distrl.learner.off_policy import StepStats

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Evaluation,
        Moments,
        Pictures,
        PromptBatch,
        StepBatch,
        StepStats,
        TrajectoryBatch,
        Values,
        Whole,
    )
}


def to_bytes(value: Any) -> bytearray:
    """`value`: numbers, texts, None, lists, tuples, maps, tensors, arrays and records of `KINDS`.

    Raises:
        TypeError: There is something else in it.
    """
    tensors: dict[int, tuple[str, Tensor]] = {}
    tree = json.dumps(_tree(value, tensors), separators=(",", ":")).encode()
    tree += b" " * (-len(tree) % 8)
    return bytearray(len(tree).to_bytes(8, "little")) + tree + weights_io.to_bytes(dict(tensors.values()))


def from_bytes(data: bytearray) -> Any:
    """What `to_bytes` was given; its tensors share the memory of `data`.

    Raises:
        PolicyError: It is damaged.
    """
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise PolicyError("A message between ranks is cut off.")
    return _value(json.loads(data[8 : 8 + length]), weights_io.from_bytes(memoryview(data)[8 + length :]))


def _tree(value: Any, tensors: dict[int, tuple[str, Tensor]]) -> Any:
    """`value` with names in place of tensors and arrays, which `tensors` gains by their identity."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor | np.ndarray):
        form = "tensor" if isinstance(value, Tensor) else "array"
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        name, _ = tensors.setdefault(id(value), (f"{len(tensors):06d}", tensor.detach()))
        return {form: name}
    kind = type(value).__name__
    if KINDS.get(kind) is type(value):
        names = [f.name for f in fields(value)] if is_dataclass(value) else list(value._fields)
        return {"kind": kind, "is": {name: _tree(getattr(value, name), tensors) for name in names}}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_tree(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"map": [[_tree(k, tensors), _tree(v, tensors)] for k, v in value.items()]}
    raise TypeError(f"{kind} cannot be sent to another rank")


def _value(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "kind" in tree:
        return KINDS[tree["kind"]](**{name: _value(item, tensors) for name, item in tree["is"].items()})
    ((form, content),) = tree.items()
    if form == "tensor":
        return tensors[content]
    if form == "array":
        return tensors[content].numpy()
    if form == "map":
        return {_value(key, tensors): _value(item, tensors) for key, item in content}
    items = [_value(item, tensors) for item in content]
    return items if form == "list" else tuple(items)
