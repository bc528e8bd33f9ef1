"""The training engine: what an update is made of; the gradient steps themselves are a `Team`'s."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from distrl.configs.schema import LearnerConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.values import Values
from distrl.learner.batching import StepBatch, TrajectoryBatch
from distrl.learner.minibatches import merge, minibatches
from distrl.learner.trainer import Team, Trainer


class Engine:
    """Makes updates, and counts them for the learning rate.

    Args:
        policy, critic: The networks, on their device.
        algorithm: The objective.
        config: Learning rates, clipping, memory.
        team: Who makes the gradient steps; None: this process alone.
    """

    def __init__(
        self,
        policy: Policy,
        critic: Critic,
        algorithm: Algorithm,
        config: LearnerConfig,
        team: Team | None = None,
    ) -> None:
        self.policy, self.critic, self.algorithm = policy, critic, algorithm
        self.team: Team = Trainer(policy, critic, algorithm, config) if team is None else team
        self._optim = config.optim
        self._num_steps = 0

    @property
    def num_updates(self) -> int:
        """Updates of the policy, but for cloning."""
        return self._num_steps

    def clone(self, batch: StepBatch) -> float:
        """One behaviour-cloning update. Its optimiser is apart, so that the online phase starts afresh."""
        return self.team.clone(batch)

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """One update of the critic alone, on episodes of the present policy."""
        return self.team.fit_critic(batch)

    def update(self, batch: TrajectoryBatch, progress: float = 0.0) -> Evaluation | None:
        """One update of policy and critic: as many gradient steps as the algorithm takes from a batch.

        The metrics, of all those steps, gain the gradient norms (before clipping).

        Args:
            progress: The share of the run that is over, for the learning rate.

        Returns:
            None if no loss and gradient was finite: the batch is skipped, and nothing has changed. Of several
            gradient steps only those that are not finite are skipped.
        """
        lr = self._learning_rate(progress)
        self.team.prepare(batch)
        passes = [
            (rows, result)
            for rows, part in minibatches(batch, self.algorithm.epochs, self.algorithm.minibatches)
            if (result := self.team.learn(part, lr)) is not None
        ]
        if not passes:
            return None
        result = merge(passes, len(batch.ids))
        result.metrics["policy/lr"] = lr
        self._num_steps += 1
        return result

    def _learning_rate(self, progress: float) -> float:
        warm_up = min(1.0, (self._num_steps + 1) / max(1, self._optim.warmup_updates))
        left = 1.0 - min(1.0, max(0.0, progress))
        final = self._optim.final_lr_fraction
        return self._optim.lr * warm_up * (final + (1.0 - final) * left)

    def measure(self, batch: TrajectoryBatch) -> Evaluation:
        """The same pass without any update."""
        return self.team.measure(batch)

    def values(self, batch: TrajectoryBatch) -> Values:
        """What the critic says of the states of `batch` now."""
        return self.team.values(batch)

    def logprobs(self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """[N, L] log π of the tokens of `batch`, on the CPU; see `Team.logprobs`."""
        return self.team.logprobs(batch, weights)

    def gathered(self, is_full: bool) -> AbstractContextManager[None]:
        """A block within which the policy has its weights in one piece.

        Args:
            is_full: All of them, or only those that are trained.
        """
        return self.team.gathered(is_full)

    def tend(self) -> None:
        """To be called every few seconds between updates.

        Raises:
            RankError: A rank has ended.
        """
        self.team.tend()

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, update count, torch's random state; `torch.load(weights_only=True)` can read it."""
        return {
            **self.team.state_dict(),
            "num_steps": self._num_steps,
            "torch_rng": torch.get_rng_state(),
            **({"cuda_rng": torch.cuda.get_rng_state(self.policy.device)} if self._is_on_cuda else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self.team.load_state_dict({"actor": state["actor"], "value": state["value"]})
        self._num_steps = int(state["num_steps"])
        torch.set_rng_state(state["torch_rng"])
        if self._is_on_cuda and "cuda_rng" in state:  # absent if the checkpoint was written on a CPU
            torch.cuda.set_rng_state(state["cuda_rng"], self.policy.device)

    @property
    def _is_on_cuda(self) -> bool:
        return self.policy.device.type == "cuda"
