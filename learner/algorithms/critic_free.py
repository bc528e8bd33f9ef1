"""What the objectives without a critic share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.configs.mismatch import MismatchConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms import shared
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.outputs import Outputs, Rows
from distrl.learner.algorithms.shared import Pass, Term
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.bounds import NO_BOUND

C = TypeVar("C", bound=ObjectiveConfig)


class CriticFree(Algorithm, Generic[C]):
    """L_π = policy term − β·entropy + λ_inv·validity.

    Args:
        config: The objective's section.
        bound: What bounds single ratios.
    """

    def __init__(self, config: C, bound: MismatchConfig = NO_BOUND) -> None:
        self.config, self.bound = config, bound

    def read(
        self, policy: Policy, critic: Critic, rows: Rows, is_scored: bool = True, is_drawn: bool = True
    ) -> Outputs:
        """See `Algorithm.read`: log-probabilities and entropies."""
        scores = shared.score(policy, rows.steps)
        return Outputs(scores.logprobs, scores.entropy)

    @abstractmethod
    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] of whole trajectories."""

    @abstractmethod
    def policy_term(self, batch: TrajectoryBatch, run: Pass, advantages: Tensor) -> Term:
        """The objective's own term."""

    def judge(self, batch: TrajectoryBatch, outputs: Outputs) -> Evaluation:
        """See `Algorithm.judge`."""
        c = self.config
        run = shared.pass_of(c, batch, outputs, self.bound)
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
