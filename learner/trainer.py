"""What one process does with batches: passes, gradients, steps; for the policy and for the critic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from distrl.configs.schema import LearnerConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.actor_critic import ActorCritic
from distrl.learner.algorithms.base import Algorithm, Evaluation
from distrl.learner.algorithms.bc import cloning_loss
from distrl.learner.algorithms.outputs import Outputs
from distrl.learner.algorithms.shared import score
from distrl.learner.algorithms.values import Values
from distrl.learner.batching import StepBatch, TrajectoryBatch, to_device
from distrl.learner.distributed.states import spread, spread_adam, spread_weights
from distrl.learner.distributed.zero import ZeroPolicy
from distrl.learner.optimisers import Optimiser, TorchOptimiser
from distrl.learner.packing import pack, trimmed
from distrl.learner.passes import Losses, Passes
from distrl.learner.ranks import most_over_ranks, sum_over_ranks


class Team(Protocol):
    """Whoever trains on batches for the `Engine`: this process alone, or all ranks of a job."""

    def prepare(self, batch: TrajectoryBatch) -> None:
        """Before the first step on `batch`: notes in it what must not change."""
        ...

    def learn(self, batch: TrajectoryBatch, lr: float) -> Evaluation | None:
        """One gradient step of policy and critic; the metrics gain the gradients' norms.

        None if a loss or a gradient is not finite on any rank: then nothing has changed.
        """
        ...

    def measure(self, batch: TrajectoryBatch) -> Evaluation:
        """The same pass without any step."""
        ...

    def values(self, batch: TrajectoryBatch) -> Values:
        """What the critic says of the states of `batch` now."""
        ...

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """One gradient step of the critic alone, if all is finite. Returns the loss."""
        ...

    def clone(self, batch: StepBatch) -> float:
        """One step of behaviour cloning, if all is finite. Returns the loss."""
        ...

    def logprobs(self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """[N, L] log π of the tokens of `batch`, on the CPU, 0 at padding.

        Args:
            weights: Under which, as `Policy.published_state` gives them; the policy has its own back
                afterwards, to the bit. None: its own.
        """
        ...

    def gathered(self, is_full: bool) -> AbstractContextManager[None]:
        """A block within which the policy has its weights in one piece: all, or the trained ones only."""
        ...

    def tend(self) -> None:
        """To be called now and then.

        Raises:
            RankError: A rank has ended.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The optimisers' states, under "actor" and "value"."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        ...


class Trainer:
    """Networks and optimisers of one process. Networks stay in eval mode: dropout would falsify the ratios.

    Args:
        policy, critic: The networks, on their device.
        algorithm: The objective.
        config: Learning rates, clipping, memory.
        zero: What shards the policy over ranks; None: every rank has all of it.
    """

    def __init__(
        self,
        policy: Policy,
        critic: Critic,
        algorithm: Algorithm,
        config: LearnerConfig,
        zero: ZeroPolicy | None = None,
    ) -> None:
        self.policy, self.critic, self.algorithm = policy.eval(), critic.eval(), algorithm
        self._config, self._zero = config, zero
        self._asked = policy if zero is None else zero.view  # what objectives ask
        self._actor = self._policys(config.optim.lr)
        self._value = self._adam(critic, config.optim.critic_lr)
        self._cloner: Optimiser | None = None
        self._passes = Passes(self._asked, critic, algorithm, config.micro_batch_tokens, zero is not None)

    def _policys(self, lr: float) -> Optimiser:
        return self._adam(self.policy, lr) if self._zero is None else self._zero.optimiser(lr)

    def _adam(self, network: Policy | Critic, lr: float) -> Optimiser:
        optim = self._config.optim
        return TorchOptimiser(network, lr, optim.weight_decay, optim.grad_clip)

    def prepare(self, batch: TrajectoryBatch) -> None:
        """See `Team.prepare`."""
        if self.algorithm.takes_notes:
            to_device(batch, self.policy.device)
            self.algorithm.note(batch, self._passes.look(batch))

    def learn(self, batch: TrajectoryBatch, lr: float) -> Evaluation | None:
        """See `Team.learn`."""
        to_device(batch, self.policy.device)
        found: list[Evaluation] = []

        def judge(outputs: Outputs) -> Losses:
            found.append(self.algorithm.judge(batch, outputs))
            return _if_finite(Losses(found[0].policy_loss, found[0].critic_loss))

        self._actor.begin(lr)
        self._value.begin()
        is_judged = self._passes.learn(batch, judge, self._actor.backward, self._value.backward)
        (result,) = found
        optimisers = [self._actor] if result.critic_loss is None else [self._actor, self._value]
        norms = _step(optimisers) if is_judged else None
        if norms is None:
            return None
        result.metrics.update(zip(("policy/grad_norm", "value/grad_norm"), norms, strict=False))
        return result

    @torch.no_grad()
    def measure(self, batch: TrajectoryBatch) -> Evaluation:
        """See `Team.measure`."""
        to_device(batch, self.policy.device)
        return self.algorithm.judge(batch, self._passes.look(batch))

    @torch.no_grad()
    def values(self, batch: TrajectoryBatch) -> Values:
        """See `Team.values`."""
        to_device(batch, self.policy.device)
        assert isinstance(self.algorithm, ActorCritic)
        return self.algorithm.values(batch, self._passes.look(batch, is_scored=False), recompute=True)

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """See `Team.fit_critic`."""
        to_device(batch, self.policy.device)
        found: list[float] = []

        def judge(outputs: Outputs) -> Losses:
            loss = self.algorithm.judge_critic(batch, outputs)
            found.append(float(loss.detach()))
            return _if_finite(Losses(None, loss))

        self._value.begin()
        backward = self._actor.backward, self._value.backward
        if self._passes.learn(batch, judge, *backward, is_scored=False) and _step([self._value]) is None:
            return math.nan
        return found[0]

    def notes(self, share: TrajectoryBatch) -> dict[str, Any]:
        """What `prepare` notes in a rank's share."""
        self.prepare(share)
        return {"moments": share.advantage_moments, "proximal": share.steps.proximal_logprobs}

    def clone(self, batch: StepBatch) -> float:
        """See `Team.clone`."""
        return self.clone_share(batch, len(batch))

    def clone_share(self, batch: StepBatch, count: int, is_idle: bool = False) -> float:
        """One step of behaviour cloning. Its optimiser is apart, so that the online phase starts afresh.

        Args:
            count: How many steps the whole batch has, of which this is a rank's share.
            is_idle: Whether the share is a stand-in that adds nothing.
        """
        if self._cloner is None:
            self._cloner = self._policys(self._config.demonstrations.lr)
        to_device(batch, self.policy.device)
        self._cloner.begin()
        total, parts = 0.0, pack(batch, self._config.micro_batch_tokens)
        num_real = len(parts)
        if self._zero is not None:  # which needs equally many passes of all ranks
            parts += parts[-1:] * (most_over_ranks(num_real) - num_real)
        for number, at in enumerate(parts):
            part = batch if len(parts) == 1 else trimmed(batch[at.to(batch.completions.device)])
            is_counted = number < num_real and not is_idle
            loss = cloning_loss(self._asked, part, count) * float(is_counted)
            self._cloner.backward(loss, is_last=number == len(parts) - 1)
            total += float(loss.detach())
        return total if _step([self._cloner]) is not None else math.nan

    def logprobs(self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """See `Team.logprobs`."""
        return self.logprobs_share(batch, weights, weights is not None)

    @torch.no_grad()
    def logprobs_share(self, batch: StepBatch, weights: Mapping[str, Tensor] | None, is_lent: bool) -> Tensor:
        """`logprobs`, with sharded weights of all ranks together, on the same batch.

        Args:
            weights: What rank 0 lends; None on the others.
            is_lent: Whether rank 0 lends some.
        """
        # Sharded weights are gathered where DeepSpeed sees a call. Others need no call of all ranks together.
        asked = self._asked if self.is_sharded else self.policy
        found = torch.zeros_like(batch.behaviour_logprobs)
        to_device(batch, self.policy.device)
        with self._lent(weights) if is_lent else nullcontext():
            for at in pack(batch, self._config.micro_batch_tokens):
                part = trimmed(batch[at.to(batch.completions.device)])
                scores = score(asked, part).logprobs
                found[at, : scores.shape[1]] = torch.where(part.token_mask, scores, 0.0).cpu().to(found.dtype)
        return found

    @contextmanager
    def _lent(self, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
        """A block within which the policy has other weights. Its own wait in the main memory."""
        own: dict[str, Tensor] = {}
        with self._changed():
            if weights is not None:
                state = self.policy.published_state()
                own = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
                self.policy.load_published(dict(weights))
        try:
            yield
        finally:
            with self._changed():
                if own:
                    self.policy.load_published(own)

    def _changed(self) -> AbstractContextManager[None]:
        is_full = self.policy.published_kind() == "full"
        return nullcontext() if self._zero is None else self._zero.changed(is_full)

    @property
    def is_sharded(self) -> bool:
        """Whether ranks hold parts of the weights at the moment."""
        return self._zero is not None and self._zero.is_sharded

    def gathered(self, is_full: bool) -> AbstractContextManager[None]:
        """See `Team.gathered`."""
        return nullcontext() if self._zero is None else self._zero.gathered(is_full)

    def tend(self) -> None:
        """See `Team.tend`: nothing."""

    def load_everywhere(self, state: dict[str, Any] | None) -> None:
        """Every rank gets rank 0's weights, and its optimisers' `state` if it has any. All must call it."""
        assert not self.is_sharded, "weights are loaded before the first update"
        spread_weights([self.policy, self.critic])
        if spread(state is not None):
            names = ("actor", "value")
            self.load_state_dict({name: spread_adam(state[name] if state else None) for name in names})

    def state_dict(self) -> dict[str, Any]:
        """See `Team.state_dict`."""
        return {"actor": self._actor.state_dict(), "value": self._value.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Team.load_state_dict`."""
        self._actor.load_state_dict(state["actor"])
        self._value.load_state_dict(state["value"])


def _if_finite(losses: Losses) -> Losses:
    """`losses`; none if one is not finite on any rank, for ranks must skip a batch together."""
    given = torch.stack(
        [loss.detach().float() for loss in (losses.policy, losses.critic) if loss is not None]
    )
    is_bad = 1.0 - torch.isfinite(given).all().float()
    return losses if float(sum_over_ranks(is_bad)) == 0.0 else Losses(None, None)


def _step(optimisers: Sequence[Optimiser]) -> list[float] | None:
    """One step of each, and the norms of their gradients; no step at all if one of these is not finite."""
    norms = [optimiser.norm() for optimiser in optimisers]
    if not all(norm is None or math.isfinite(norm) for norm in norms):
        return None
    found: list[float] = []
    for optimiser in optimisers:  # one that can only now tell its norm comes first
        found.append(optimiser.step())
        if not math.isfinite(found[-1]):
            return None
    return found
