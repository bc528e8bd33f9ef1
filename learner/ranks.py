"""Sums over all ranks of a job that `torch.distributed` runs; in a single process, the value itself."""

from __future__ import annotations

from torch import Tensor, distributed


def sum_over_ranks(values: Tensor) -> Tensor:
    """Σ of `values` over all ranks, without gradients. Every rank must call it, with the same shape."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total
