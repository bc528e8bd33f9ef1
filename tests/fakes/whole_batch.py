"""An objective on a whole batch in one pass: slow and obvious, where `TrainStep` goes part by part."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.base import Algorithm, Inputs, Loss, NetworkOutputs
from distrl.learner.batching import TrajectoryBatch


def ask(
    algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch, is_scored: bool = True
) -> NetworkOutputs:
    """What the networks say, of the states after a cut too."""
    outputs = algorithm.forward(policy, critic, Inputs.of(batch, algorithm.value_index(batch), is_scored))
    finals = (
        Inputs.of_final_states(batch)
        if algorithm.needs_final_values(batch, is_fitting=not is_scored)
        else None
    )
    if finals is None:
        return outputs
    return replace(outputs, final=algorithm.final_values(policy, critic, finals))


def evaluate(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Loss:
    """The losses, differentiable, and the statistics."""
    return algorithm.loss(batch, ask(algorithm, policy, critic, batch))


def critic_loss(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
    """Only the critic's loss, for its warm-up."""
    return algorithm.critic_loss(batch, ask(algorithm, policy, critic, batch, is_scored=False))


@torch.no_grad()
def prepare(algorithm: Algorithm, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> None:
    """Notes what the networks say now, if that must not change; the base model is the policy of now."""
    if algorithm.has_reference:
        batch.steps.reference_logprobs = ask(algorithm, policy, critic, batch).logprobs
    if algorithm.has_snapshot:
        algorithm.before_update(batch, ask(algorithm, policy, critic, batch))
