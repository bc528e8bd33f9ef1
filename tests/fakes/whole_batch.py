"""An objective asked of a whole batch in one pass: slow and obvious, where the trainer goes part by part."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.outputs import Finals, Outputs, Rows
from distrl.learner.batching import TrajectoryBatch


def ask(
    algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch, is_scored: bool = True
) -> Outputs:
    """What the networks say, of the states after a cut too."""
    outputs = algorithm.read(policy, critic, Rows.of(batch, algorithm.asked(batch)), is_scored)
    finals = Finals.of(batch) if algorithm.reads_final(batch, is_fitting=not is_scored) else None
    if finals is None:
        return outputs
    return replace(outputs, final=algorithm.read_final(policy, critic, finals))


def evaluate(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
    """The losses, differentiable, and the statistics."""
    return algorithm.judge(batch, ask(algorithm, policy, critic, batch))


def critic_loss(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
    """Only the critic's loss, for its warm-up."""
    return algorithm.judge_critic(batch, ask(algorithm, policy, critic, batch, is_scored=False))


@torch.no_grad()
def prepare(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> None:
    """Notes what the networks say now, if that must not change."""
    if algorithm.takes_notes:
        algorithm.note(batch, ask(algorithm, policy, critic, batch))
