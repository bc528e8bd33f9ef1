"""Several gradient steps on one batch: epochs over minibatches of whole trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from distrl.learner import off_policy
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.off_policy import StepStats

PER_TRAJECTORY = frozenset(
    {"batch/success", "batch/without_spread", "loss/trajectory", "value/trajectory_accuracy"}
)
PER_UPDATE = frozenset({"policy/grad_norm", "value/grad_norm"})


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
    """One evaluation of the whole batch: its metrics, each trajectory's last priorities, the last losses.

    Metrics are means weighed by what they are means of: steps, trajectories (`PER_TRAJECTORY`) or gradient
    steps (`PER_UPDATE`). Those of ratios are taken anew from all steps, a maximum being their maximum.

    Args:
        passes: Rows, as `minibatches` gives them, and what each step's pass said.
        size: Number of trajectories.
    """
    last = passes[-1][1]
    if len(passes) == 1 and passes[0][0] is None:
        return last
    priorities = last.priorities.new_zeros(size, last.priorities.shape[1])
    for rows, result in passes:
        priorities[slice(None) if rows is None else rows] = result.priorities
    results = [result for _, result in passes]
    steps = StepStats.join([(rows, result.steps) for rows, result in passes])
    num_trajectories = [len(result.priorities) for result in results]
    num_epochs = sum(num_trajectories) / size
    metrics = {
        **means(results, num_trajectories),
        **off_policy.metrics(steps),
        "batch/steps": len(steps) / num_epochs,
    }
    return Evaluation(last.policy_loss, last.critic_loss, priorities, metrics, steps)


def means(results: Sequence[Evaluation], num_trajectories: Sequence[int]) -> dict[str, float]:
    """The metrics that several evaluations all have, each weighed by what it is a mean of; see `merge`."""
    num_steps = [len(result.steps) for result in results]
    found = {}
    for name in results[0].metrics:
        if any(name not in result.metrics for result in results):
            continue  # as token_ess where each action is one token; ratios' metrics are taken anew anyway
        counts: Sequence[int] = num_steps
        if name in PER_TRAJECTORY:
            counts = num_trajectories
        elif name in PER_UPDATE:
            counts = [1] * len(results)
        values = [result.metrics[name] for result in results]
        found[name] = sum(n * x for n, x in zip(counts, values, strict=True)) / sum(counts)
    return found
