"""What the objectives without a critic share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms import shared
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.algorithms.shared import Pass, Term
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

    def prepare(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> None:
        """See `Algorithm.prepare`: nothing."""

    @abstractmethod
    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] of whole trajectories."""

    @abstractmethod
    def policy_term(self, batch: TrajectoryBatch, run: Pass, advantages: Tensor) -> Term:
        """The objective's own term."""

    def evaluate(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Evaluation:
        """See `Algorithm.evaluate`."""
        c = self.config
        run = shared.run_policy(c, policy, batch)
        advantages = self.advantages(batch)
        term = self.policy_term(batch, run, advantages)
        terms = shared.policy_terms(c, batch, run, term.loss)
        steps, a = shared.step_stats(batch, run, term), advantages[batch.row]
        return Evaluation(
            policy_loss=shared.policy_loss(c, terms),
            critic_loss=None,
            priorities=shared.priorities(batch, advantages.abs()[:, None] * batch.mask, run),
            metrics={
                **{f"loss/{name}": float(loss.detach()) for name, loss in terms.items()},
                **shared.policy_metrics(batch, run, steps),
                "advantage/mean": float(a.mean()),
                "advantage/std": float(a.std(unbiased=False)),
                **term.metrics,
            },
            steps=steps,
        )

    def critic_loss(self, policy: Policy, critic: Critic, batch: TrajectoryBatch) -> Tensor:
        """There is none: `has_critic` says so."""
        raise AssertionError("this objective has no critic to fit")
