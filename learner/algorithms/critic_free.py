"""What the objectives without a critic share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms import shared
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.algorithms.shared import Pass
from distrl.learner.batching import TrajectoryBatch

C = TypeVar("C", bound=ObjectiveConfig)


class CriticFree(ABC, Generic[C]):
    """L_π = policy term − β·entropy + λ_inv·validity.

    Args:
        config: The objective's section.
    """

    has_critic = False
    epochs = 1
    minibatches = 1

    def __init__(self, config: C) -> None:
        self.config = config

    def prepare(self, policy: Policy, batch: TrajectoryBatch) -> None:
        """See `Algorithm.prepare`: nothing."""

    @abstractmethod
    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] of whole trajectories."""

    @abstractmethod
    def policy_term(
        self, batch: TrajectoryBatch, run: Pass, advantages: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """The objective's own term, a scalar to be minimised, and its metrics."""

    def evaluate(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
        """See `Algorithm.evaluate`."""
        c = self.config
        run = shared.run_policy(c, policy, batch)
        advantages = self.advantages(batch)
        term, metrics = self.policy_term(batch, run, advantages)
        terms = shared.policy_terms(c, batch, run, term)
        return Evaluation(
            policy_loss=shared.policy_loss(c, terms),
            critic_loss=None,
            priorities=shared.priorities(batch, advantages.abs()[:, None] * batch.mask, run),
            metrics={
                **{f"loss/{name}": float(term.detach()) for name, term in terms.items()},
                **shared.policy_metrics(c, batch, run),
                "advantage/mean": float(advantages.mean()),
                "advantage/std": float(advantages.std(unbiased=False)),
                **metrics,
            },
        )

    def critic_loss(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
        """There is none: `has_critic` says so."""
        raise AssertionError("this objective has no critic to fit")
