"""Several gradient steps on one batch: epochs over minibatches of whole trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from distrl.learner.algorithms.base import Evaluation
from distrl.learner.batching import TrajectoryBatch


def minibatches(
    batch: TrajectoryBatch, epochs: int, parts: int
) -> Iterator[tuple[Tensor | None, TrajectoryBatch]]:
    """Per epoch `parts` minibatches (fewer when there are fewer trajectories), shuffled by torch's generator.

    Yields:
        [b] the rows of the minibatch, None for the whole batch, and the minibatch.
    """
    size = len(batch.ids)
    for _ in range(epochs):
        if parts == 1:
            yield None, batch
            continue
        order = torch.randperm(size).to(batch.mask.device)
        for rows in order.tensor_split(min(parts, size)):
            yield rows, batch.part(rows)


def merge(passes: Sequence[tuple[Tensor | None, Evaluation]], size: int) -> Evaluation:
    """One evaluation of the whole batch: mean metrics, each trajectory's last priorities, the last losses.

    Args:
        passes: Rows, as `minibatches` gives them, and what each step's pass said.
        size: Number of trajectories.
    """
    last = passes[-1][1]
    if len(passes) == 1:
        return last
    priorities = last.priorities.new_zeros(size, last.priorities.shape[1])
    for rows, result in passes:
        priorities[slice(None) if rows is None else rows] = result.priorities
    names = dict.fromkeys(name for _, result in passes for name in result.metrics)
    metrics = {name: sum(result.metrics[name] for _, result in passes) / len(passes) for name in names}
    return Evaluation(last.policy_loss, last.critic_loss, priorities, metrics)
