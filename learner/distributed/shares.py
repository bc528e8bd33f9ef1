"""Who gets which trajectories of a batch, and one evaluation from those of all shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from distrl.learner import off_policy
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.minibatches import means
from distrl.learner.off_policy import StepStats


def split(lengths: Sequence[int], num_ranks: int) -> list[Tensor]:
    """The places of each rank's trajectories, ascending, [b] int64; about equally many steps for each.

    The longest first, each to whoever has least. With fewer trajectories than ranks, some have none.

    Args:
        lengths: Of the trajectories, in steps.
    """
    places: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [0] * num_ranks
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        rank = loads.index(min(loads))
        places[rank].append(index)
        loads[rank] += lengths[index]
    return [torch.tensor(sorted(some), dtype=torch.int64) for some in places]


def join(shares: Sequence[tuple[Tensor, Evaluation]], size: int) -> Evaluation:
    """The evaluation of the whole batch: losses add up, the rest is as if one process had seen all of it.

    Args:
        shares: The places of each share's trajectories, and its evaluation.
        size: Number of trajectories.
    """
    results = [result for _, result in shares]
    first = results[0]
    priorities = first.priorities.new_zeros(size, first.priorities.shape[1])
    for places, result in shares:
        priorities[places] = result.priorities.to(priorities.device)
    steps = StepStats.join([(places, result.steps) for places, result in shares])
    metrics = {
        **means(results, [len(result.priorities) for result in results]),
        **{
            name: sum(result.metrics[name] for result in results)
            for name in first.metrics
            if name.startswith("loss/")
        },
        **_spread(results),
        **off_policy.metrics(steps),
        "batch/steps": float(len(steps)),
    }
    policy_loss = torch.stack([result.policy_loss.detach().cpu() for result in results]).sum()
    critic = [result.critic_loss.detach().cpu() for result in results if result.critic_loss is not None]
    critic_loss = torch.stack(critic).sum() if critic else None
    return Evaluation(policy_loss, critic_loss, priorities, metrics, steps)


def _spread(results: Sequence[Evaluation]) -> dict[str, float]:
    """The deviation of all advantages, from those of the shares and their means."""
    counts = [len(result.steps) for result in results]
    pairs = [(result.metrics["advantage/mean"], result.metrics["advantage/std"]) for result in results]
    mean = sum(n * m for n, (m, _) in zip(counts, pairs, strict=True)) / sum(counts)
    square = sum(n * (s * s + m * m) for n, (m, s) in zip(counts, pairs, strict=True)) / sum(counts)
    return {"advantage/std": math.sqrt(max(0.0, square - mean * mean))}
