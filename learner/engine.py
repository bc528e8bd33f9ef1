"""The training engine: forward, backward, clip, step; for the policy and, apart from it, for the critic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from distrl.configs.schema import LearnerConfig
from distrl.core.errors import PolicyError
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.actor_critic import ActorCritic
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.bc import cloning_loss
from distrl.learner.algorithms.values import Values
from distrl.learner.batching import StepBatch, TrajectoryBatch, to_device
from distrl.learner.minibatches import merge, minibatches


class Engine:
    """Owns the optimisers. Networks stay in eval mode: dropout would falsify the importance ratios.

    Args:
        policy, critic: The networks, on their device.
        algorithm: The objective.
        config: Learning rates and clipping.
    """

    def __init__(self, policy: Policy, critic: Critic, algorithm: Algorithm, config: LearnerConfig) -> None:
        self.policy, self.critic, self.algorithm = policy.eval(), critic.eval(), algorithm
        self._optim, self._clone_lr = config.optim, config.demonstrations.lr
        self._actor = self._adam(policy, config.optim.lr)
        self._value = self._adam(critic, config.optim.critic_lr)
        self._cloner: torch.optim.Optimizer | None = None
        self._num_steps = 0

    def clone(self, batch: StepBatch) -> float:
        """One behaviour-cloning update. Its optimiser is apart, so that the online phase starts afresh."""
        if self._cloner is None:
            self._cloner = self._adam(self.policy, self._clone_lr)
        to_device(batch, self.policy.device)
        loss = cloning_loss(self.policy, batch)
        self._step(self._cloner, loss, self.policy)
        return float(loss.detach())

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """One update of the critic alone, on episodes of the present policy."""
        to_device(batch, self.policy.device)
        loss = self.algorithm.critic_loss(self.policy, self.critic, batch)
        self._step(self._value, loss, self.critic)
        return float(loss.detach())

    def update(self, batch: TrajectoryBatch, progress: float = 0.0) -> Evaluation:
        """One update of policy and critic: as many gradient steps as the algorithm takes from a batch.

        The metrics, of all those steps, gain the gradient norms (before clipping).

        Args:
            progress: The share of the run that is over, for the learning rate.
        """
        to_device(batch, self.policy.device)
        lr = self._learning_rate(progress)
        for group in self._actor.param_groups:
            group["lr"] = lr
        self.algorithm.prepare(self.policy, self.critic, batch)
        passes = [
            (rows, self._update_on(part))
            for rows, part in minibatches(batch, self.algorithm.epochs, self.algorithm.minibatches)
        ]
        result = merge(passes, len(batch.ids))
        result.metrics["policy/lr"] = lr
        self._num_steps += 1
        return result

    def _update_on(self, batch: TrajectoryBatch) -> Evaluation:
        """One gradient step."""
        result = self.algorithm.evaluate(self.policy, self.critic, batch)
        result.metrics["policy/grad_norm"] = self._step(self._actor, result.policy_loss, self.policy)
        if result.critic_loss is not None:
            result.metrics["value/grad_norm"] = self._step(self._value, result.critic_loss, self.critic)
        return result

    def _learning_rate(self, progress: float) -> float:
        warm_up = min(1.0, (self._num_steps + 1) / max(1, self._optim.warmup_updates))
        left = 1.0 - min(1.0, max(0.0, progress))
        final = self._optim.final_lr_fraction
        return self._optim.lr * warm_up * (final + (1.0 - final) * left)

    def measure(self, batch: TrajectoryBatch) -> Evaluation:
        """The same pass without any update."""
        to_device(batch, self.policy.device)
        with torch.no_grad():
            return self.algorithm.evaluate(self.policy, self.critic, batch)

    @torch.no_grad()
    def values(self, batch: TrajectoryBatch) -> Values:
        """What the critic says of the states of `batch` now."""
        to_device(batch, self.policy.device)
        assert isinstance(self.algorithm, ActorCritic)
        outputs = self.algorithm.ask(self.policy, self.critic, batch, is_scored=False)
        return self.algorithm.values(batch, outputs, recompute=True)

    def _adam(self, module: nn.Module, lr: float) -> torch.optim.AdamW:
        return torch.optim.AdamW(_trainable(module), lr=lr, weight_decay=self._optim.weight_decay)

    def _step(self, optimiser: torch.optim.Optimizer, loss: Tensor, module: nn.Module) -> float:
        if not bool(torch.isfinite(loss.detach())):
            raise PolicyError(f"The loss became {float(loss.detach())}.", "Lower learner.optim.lr.")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(list(_trainable(module)), self._optim.grad_clip)
        optimiser.step()
        return float(norm)

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, update count, torch's random state; `torch.load(weights_only=True)` can read it."""
        return {
            "actor": self._actor.state_dict(),
            "value": self._value.state_dict(),
            "num_steps": self._num_steps,
            "torch_rng": torch.get_rng_state(),
            **({"cuda_rng": torch.cuda.get_rng_state(self.policy.device)} if self._is_on_cuda else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._actor.load_state_dict(state["actor"])
        self._value.load_state_dict(state["value"])
        self._num_steps = int(state["num_steps"])
        torch.set_rng_state(state["torch_rng"])
        if self._is_on_cuda and "cuda_rng" in state:  # absent if the checkpoint was written on a CPU
            torch.cuda.set_rng_state(state["cuda_rng"], self.policy.device)

    @property
    def _is_on_cuda(self) -> bool:
        return self.policy.device.type == "cuda"


def _trainable(module: nn.Module) -> Iterable[nn.Parameter]:
    return (parameter for parameter in module.parameters() if parameter.requires_grad)
