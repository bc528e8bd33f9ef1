"""Sums and maxima over all ranks of a `torch.distributed` job; in a single process, the value itself."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def num_ranks() -> int:
    """How many ranks the job has; 1 without a job."""
    return distributed.get_world_size() if _is_job() else 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """Σ of `values` over all ranks, without gradients. Every rank must call it, with the same shape."""
    if not _is_job():
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total


def most_over_ranks(count: int) -> int:
    """The largest of the ranks' counts. Every rank must call it."""
    if not _is_job():
        return count
    most = torch.tensor([count])
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    return int(most)


def _is_job() -> bool:
    return distributed.is_available() and distributed.is_initialized()
