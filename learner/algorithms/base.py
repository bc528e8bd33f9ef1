"""What an algorithm is: questions to the networks, and from their answers two losses and statistics.

Every loss is a sum over steps or trajectories divided by the count of the whole batch, so that the losses and
gradients of the shares of several ranks add up to those of the whole (`TrajectoryBatch.whole`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.outputs import Finals, Outputs, Rows
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


class Algorithm(ABC):
    """An objective on whole trajectories: `read` asks the networks, step by step; `judge` is arithmetic.

    Attributes:
        has_critic: Whether it learns and uses the critic.
        draws: Whether it draws actions from the policy.
        epochs, minibatches: A batch gives `epochs` · `minibatches` gradient steps.
    """

    has_critic = False
    draws = False
    epochs = 1
    minibatches = 1

    @property
    def takes_notes(self) -> bool:
        """Whether `note` has something to do."""
        return False

    @abstractmethod
    def read(
        self, policy: Policy, critic: Critic, rows: Rows, is_scored: bool = True, is_drawn: bool = True
    ) -> Outputs:
        """What the networks say of `rows`, each from itself alone; with gradients unless under no_grad.

        Args:
            is_scored: Whether the policy is asked for log-probabilities; the critic's warm-up needs none.
            is_drawn: Whether expectations over actions are wanted, which have no gradients.
        """

    def read_final(self, policy: Policy, critic: Critic, finals: Finals) -> Tensor:
        """[F] the value of states after a cut, as a probability, without gradients."""
        raise AssertionError("this objective has no values")

    def reads_final(self, batch: TrajectoryBatch, is_fitting: bool = False) -> bool:
        """Whether it wants the values of the states after a cut of `batch`.

        Args:
            is_fitting: Whether the critic alone is fitted.
        """
        return False

    def asked(self, batch: TrajectoryBatch) -> Tensor:
        """[B] int64, the step of each trajectory at which V_traj is read."""
        return batch.last

    @abstractmethod
    def judge(self, batch: TrajectoryBatch, outputs: Outputs) -> Evaluation:
        """The losses of `batch`, differentiable in `outputs`, and its statistics."""

    def judge_critic(self, batch: TrajectoryBatch, outputs: Outputs) -> Tensor:
        """Only the critic's loss, for its warm-up: before the first policy update π = μ, so every ρ is 1."""
        raise AssertionError("this objective has no critic to fit")

    def note(self, batch: TrajectoryBatch, outputs: Outputs) -> None:
        """Called once per batch, before its first gradient step: notes in `batch` what must not change."""
        raise AssertionError("this objective takes no notes")
