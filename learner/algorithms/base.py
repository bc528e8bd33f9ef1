"""What an algorithm is: two losses and statistics from a batch of trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.batching import TrajectoryBatch


@dataclass
class Evaluation:
    """One pass over a batch.

    Attributes:
        policy_loss: Scalar; its gradients reach the policy only.
        critic_loss: Scalar; its gradients reach the critic only.
        priorities: [B, 3] DPER's raw components: mean |δ|, mean min(ρ, 1), mean entropy. No gradients.
        metrics: Numbers by metric name.
    """

    policy_loss: Tensor
    critic_loss: Tensor
    priorities: Tensor
    metrics: dict[str, float]


class Algorithm(Protocol):
    """An objective on whole trajectories."""

    def evaluate(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
        """The losses of `batch` (differentiable unless called under no_grad) and its statistics."""
        ...

    def critic_loss(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
        """Only the critic's loss, for its warm-up: before the first policy update π = μ, so every ρ is 1."""
        ...
