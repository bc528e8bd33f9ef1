"""What an algorithm is: two losses and statistics from a batch of trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.off_policy import StepStats


@dataclass
class Evaluation:
    """One pass over a batch.

    Attributes:
        policy_loss: Scalar; its gradients reach the policy only.
        critic_loss: Scalar; its gradients reach the critic only. None without a critic.
        priorities: [B, 3] DPER's raw components: mean |δ|, mean min(ρ, 1), mean entropy. No gradients.
            Without a critic, the absolute advantage takes the place of |δ|.
        metrics: Numbers by metric name: means over the batch's steps, unless the name is listed in
            `minibatches`.
        steps: How far off-policy each step was; `metrics` has the `off_policy/*` of them.
    """

    policy_loss: Tensor
    critic_loss: Tensor | None
    priorities: Tensor
    metrics: dict[str, float]
    steps: StepStats


class Algorithm(Protocol):
    """An objective on whole trajectories.

    Attributes:
        has_critic: Whether it learns and uses the critic.
        epochs, minibatches: A batch gives `epochs` · `minibatches` gradient steps.
    """

    has_critic: bool
    epochs: int
    minibatches: int

    def prepare(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> None:
        """Called once per batch, before its first gradient step: notes in `batch` what must not change."""
        ...

    def evaluate(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
        """The losses of `batch` (differentiable unless called under no_grad) and its statistics."""
        ...

    def critic_loss(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
        """Only the critic's loss, for its warm-up: before the first policy update π = μ, so every ρ is 1."""
        ...
