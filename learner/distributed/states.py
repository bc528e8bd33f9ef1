"""Rank 0's weights and optimiser states on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from distrl.learner.distributed.link import receive, send


def spread_weights(modules: Iterable[nn.Module]) -> None:
    """Copies rank 0's parameters and buffers to all ranks. Every rank must call it with equal modules."""
    with torch.no_grad():
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.copy_(_spread(tensor))


def spread_adam(state: dict[str, Any] | None) -> dict[str, Any]:
    """Rank 0's state of an AdamW, as `state_dict` gives it, on all ranks; the others pass None."""
    tree = spread(None if state is None else _without_tensors(state))
    for index, entry in tree["state"].items():
        for name, (shape, dtype) in entry.items():
            mine = None if state is None else state["state"][index][name]
            empty = torch.zeros(tuple(shape), dtype=getattr(torch, dtype))
            entry[name] = _spread(empty if mine is None else mine.cpu())
    found: dict[str, Any] = tree
    return found


def spread(value: Any) -> Any:
    """Rank 0's `value`, which must not be None, on all ranks; see `codec` for what it may be."""
    if distributed.get_rank() > 0:
        return receive(0)
    for rank in range(1, distributed.get_world_size()):
        send(value, rank)
    return value


def _without_tensors(state: dict[str, Any]) -> dict[str, Any]:
    entries = {
        index: {name: (tuple(x.shape), str(x.dtype).partition(".")[2]) for name, x in entry.items()}
        for index, entry in state["state"].items()
    }
    return {"state": entries, "param_groups": state["param_groups"]}


def _spread(tensor: Tensor) -> Tensor:
    """Rank 0's numbers; for every rank, in the memory of `tensor` if that is of one piece."""
    whole = tensor.detach().contiguous()
    distributed.broadcast(whole, 0)
    return whole
