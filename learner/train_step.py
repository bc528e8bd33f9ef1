"""One update: prepare, forward, loss, backward, step.

    update ── once per batch ──► before_update          what must not change during the update is stored
           └─ per minibatch ──► step: forward ► loss ► backward ► step of both optimisers

A batch that fits into one forward pass takes one pass, forward and backward. With `micro_batch_tokens` so
does a larger one, part by part, if the loss is separable (`Algorithm.is_separable`): each part's outputs have
the same gradients whatever those of the others are. Any other loss takes two passes, with the same gradients
(Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup", §3):

    1. without gradients, part by part: what the networks say of each step, y (`NetworkOutputs`, a few numbers
       per token); the loss L is computed from all of it and differentiated by these numbers, g = ∂L/∂y
    2. with gradients, part by part: L' = Σ g · y, which has the gradient of L with respect to the weights

Returns, normalisation and rankings over trajectories need whole trajectories, which this way need not fit
into one pass. If weights are sharded over ranks, all ranks must make equally many passes: a rank with fewer
parts repeats its last one without effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Critic, Policy
from distrl.learner import off_policy
from distrl.learner.algorithms.actor_critic import ActorCritic
from distrl.learner.algorithms.base import Algorithm, Inputs, Loss, NetworkOutputs, score
from distrl.learner.algorithms.bc import cloning_loss
from distrl.learner.batching import StepBatch, TrajectoryBatch, pack, to_device, trimmed
from distrl.learner.off_policy import StepStats
from distrl.learner.optimisers import Optimiser
from distrl.learner.ranks import most_over_ranks, num_ranks, sum_over_ranks
from distrl.learner.sharding import ShardedPolicy

PER_TRAJECTORY = frozenset(
    {"batch/imagined", "batch/without_spread", "loss/trajectory", "value/trajectory_accuracy"}
)
PER_UPDATE = frozenset({"policy/grad_norm", "policy/rehearsal", "value/grad_norm"})


@dataclass(frozen=True)
class Forward:
    """A forward pass over a batch.

    Attributes:
        parts: The steps of each part, [n] int64. After `num_real` of them come repetitions, see the module.
        outputs: Of the whole batch. With several parts they are leaves of the graph of the loss.
    """

    inputs: Inputs
    parts: list[Tensor]
    num_real: int
    outputs: NetworkOutputs


class TrainStep:
    """Makes updates of one process's networks, and counts them for the learning rate.

    Networks stay in eval mode: dropout would falsify the ratios. `distributed.RankGroup` is the same for all
    ranks of a job.

    Args:
        sharded: The policy under an engine that shards it; None: every rank has all of it.

    Attributes:
        num_updates: Policy updates, cloning not counted.
        sharded: As given.
        load_images: Encoded pictures by digest, for other ranks; raises `NotStored`.
    """

    def __init__(
        self,
        policy: Policy,
        critic: Critic,
        algorithm: Algorithm[Any],
        config: LearnerConfig,
        sharded: ShardedPolicy | None = None,
    ) -> None:
        self.policy, self.critic, self.algorithm = policy.eval(), critic.eval(), algorithm
        self.num_updates = 0
        self.load_images: Callable[[Sequence[str]], Mapping[str, bytes]] | None = None
        self._config, self.sharded = config, sharded
        self._view = policy if sharded is None else sharded.view  # what objectives call
        optim = config.optim
        self._policy_optimiser = self._optimiser(optim.lr)
        self._critic_optimiser = Optimiser(critic, optim.critic_lr, optim.weight_decay, optim.grad_clip)
        self._cloner: Optimiser | None = None
        self._world = Optimiser(policy.world, optim.lr, 0.0, optim.grad_clip) if policy.world else None

    def _optimiser(self, lr: float) -> Optimiser:
        if self.sharded is not None:
            return self.sharded.optimiser(lr)
        optim = self._config.optim
        return Optimiser(self.policy, lr, optim.weight_decay, optim.grad_clip)

    # ---- an update ----

    def update(self, batch: TrajectoryBatch, progress: float = 0.0) -> Loss | None:
        """One update of policy and critic: as many gradient steps as the objective takes from a batch.

        The metrics, over all those steps, gain the gradient norms (before clipping).

        Args:
            progress: The share of the run that is over, for the learning rate.

        Returns:
            None if no loss and gradient was finite: the batch is skipped, and nothing has changed. Of several
            gradient steps only those that are not finite are skipped.
        """
        lr = self._learning_rate(progress)
        if self.algorithm.has_snapshot or self.algorithm.has_reference:
            self.before_update(batch)
        results = [
            (rows, result)
            for rows, part in minibatches(batch, self.algorithm.epochs, self.algorithm.minibatches)
            if (result := self.step(part, lr)) is not None
        ]
        if not results:
            return None
        result = merge(results, len(batch.ids))
        result.metrics["policy/lr"] = lr
        self.num_updates += 1
        return result

    def _learning_rate(self, progress: float) -> float:
        optim = self._config.optim
        warm_up = min(1.0, (self.num_updates + 1) / max(1, optim.warmup_updates))
        left = 1.0 - min(1.0, max(0.0, progress))
        final = optim.final_lr_fraction
        return optim.lr * warm_up * (final + (1.0 - final) * left)

    @torch.no_grad()
    def before_update(self, batch: TrajectoryBatch) -> None:
        """Stores in `batch` what must not change while it is trained on."""
        self._add_reference(batch)
        if self.algorithm.has_snapshot:
            self.algorithm.before_update(batch, self._forward(batch).outputs)

    def _add_reference(self, batch: TrajectoryBatch) -> None:
        """Moves `batch` to the device, and adds the base model's log-probabilities if they are used."""
        to_device(batch, self._view.device)
        if self.algorithm.has_reference:
            with self.policy.without_adapter():
                batch.steps.reference_logprobs = self._forward(batch).outputs.logprobs

    def step(self, batch: TrajectoryBatch, lr: float) -> Loss | None:
        """One gradient step of policy and critic; None, without any change, if something is not finite."""
        self._cloner = None  # on every rank
        to_device(batch, self._view.device)
        self._policy_optimiser.begin(lr)
        self._critic_optimiser.begin()
        result = self._learn(batch)
        if result is None:
            return None
        if batch.demonstrated is not None:  # of which all ranks have the same
            weight = self._config.demonstrations.rehearsal / num_ranks()
            cloning = self._add_cloning(self._policy_optimiser, batch.demonstrated, weight)
            result.metrics["policy/rehearsal"] = cloning / weight
        has_critic = result.critic_loss is not None
        norms = _step([self._policy_optimiser, *([self._critic_optimiser] if has_critic else [])])
        if norms is None:
            return None
        result.metrics.update(zip(("policy/grad_norm", "value/grad_norm"), norms, strict=False))
        return result

    def _learn(self, batch: TrajectoryBatch) -> Loss | None:
        """Adds the gradients of the losses of `batch`; None if a loss is not finite."""
        if self.algorithm.is_separable:
            parts, num_real = self._parts(batch.steps)
            if len(parts) > 1:
                return self._learn_by_parts(batch, parts, num_real)
        forward = self._forward(batch)
        result = self.algorithm.loss(batch, forward.outputs)
        if not _are_finite(result.policy_loss, result.critic_loss):
            return None
        self._backward(batch, forward, result.policy_loss, result.critic_loss)
        return result

    def _learn_by_parts(self, batch: TrajectoryBatch, parts: list[Tensor], num_real: int) -> Loss | None:
        """`_learn` of a separable loss: the gradients of each part follow its forward pass at once."""
        inputs, final = Inputs.of(batch, self.algorithm.value_index(batch)), self._final_values(batch, False)
        size, is_all = batch.steps.completions.shape, batch.demonstrated is None
        done: list[tuple[Tensor, NetworkOutputs]] = []
        for number, at in enumerate(parts):
            part = self.algorithm.forward(self._view, self.critic, inputs[at])
            alone = replace(NetworkOutputs.join([(at, part)], *size), final=final)
            result = self.algorithm.loss(batch, alone)
            scale = float(number < num_real and not batch.is_idle)
            is_last = is_all and number == len(parts) - 1
            self._add(result.policy_loss, result.critic_loss, scale, is_last)
            done.append((at, part.detached()))
        with torch.no_grad():
            result = self.algorithm.loss(batch, replace(NetworkOutputs.join(done, *size), final=final))
        return result if _are_finite(result.policy_loss, result.critic_loss) else None

    def _add(
        self, policy_loss: Tensor | None, critic_loss: Tensor | None, scale: float, is_last: bool
    ) -> None:
        """Adds `scale` times the gradients of the losses."""
        optimisers = (self._policy_optimiser, self._critic_optimiser)
        for optimiser, loss in zip(optimisers, (policy_loss, critic_loss), strict=True):
            if loss is not None:
                optimiser.backward(loss * scale, is_last)

    def _forward(self, batch: TrajectoryBatch, with_logprobs: bool = True) -> Forward:
        """What the networks say of `batch`: in one pass, or part by part without gradients."""
        inputs = Inputs.of(batch, self.algorithm.value_index(batch), with_logprobs)
        parts, num_real = self._parts(batch.steps)
        if len(parts) == 1:
            outputs = self.algorithm.forward(self._view, self.critic, inputs)
        else:
            with torch.no_grad():
                found = [(at, self.algorithm.forward(self._view, self.critic, inputs[at])) for at in parts]
            outputs = NetworkOutputs.join(found, len(batch.steps), batch.steps.completions.shape[1])
        final = self._final_values(batch, is_fitting=not with_logprobs)
        return Forward(inputs, parts, num_real, replace(outputs, final=final))

    def _backward(
        self, batch: TrajectoryBatch, forward: Forward, policy_loss: Tensor | None, critic_loss: Tensor | None
    ) -> None:
        is_all = batch.demonstrated is None
        weight = 0.0 if batch.is_idle else 1.0  # a stand-in computes along and adds nothing
        if len(forward.parts) == 1:
            self._add(policy_loss, critic_loss, weight, is_all)
            return
        losses = (policy_loss, critic_loss)
        slopes = [_slopes(*pair) for pair in zip(losses, _sides(forward.outputs), strict=True)]
        for number, at in enumerate(forward.parts):
            inputs = replace(forward.inputs[at], with_expected=False)
            part = self.algorithm.forward(self._view, self.critic, inputs)
            scale = weight * (number < forward.num_real)
            is_last = is_all and number == len(forward.parts) - 1
            chains = [_chain(own, slope, at) for own, slope in zip(_sides(part), slopes, strict=True)]
            self._add(chains[0], chains[1], scale, is_last)

    @torch.no_grad()
    def _final_values(self, batch: TrajectoryBatch, is_fitting: bool) -> Tensor | None:
        """[F] the values of the states after a cut, if they are wanted and there are any."""
        is_wanted = self.algorithm.needs_final_values(batch, is_fitting)
        inputs = Inputs.of_final_states(batch) if is_wanted else None
        parts = [] if inputs is None else pack(inputs.steps, self._config.micro_batch_tokens)
        idle = most_over_ranks(len(parts)) - len(parts) if self.sharded is not None and is_wanted else 0
        for _ in range(idle):
            self._view.states(batch.steps[batch.last[:1]].prompts)
        if inputs is None:
            return None
        pieces = [self.algorithm.final_values(self._view, self.critic, inputs[at]) for at in parts]
        whole = pieces[0].new_zeros(len(inputs.times))
        for at, piece in zip(parts, pieces, strict=True):
            whole[at] = piece
        return whole

    def _parts(self, steps: StepBatch) -> tuple[list[Tensor], int]:
        """The parts of `steps`, with repetitions if other ranks have more, and how many are real."""
        parts = pack(steps, self._config.micro_batch_tokens)
        most = most_over_ranks(len(parts)) if self.sharded is not None else len(parts)
        return parts + parts[-1:] * (most - len(parts)), len(parts)

    # ---- the critic alone, and cloning ----

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """One gradient step of the critic alone, on episodes of the present policy, if all is finite."""
        to_device(batch, self._view.device)
        self._critic_optimiser.begin()
        forward = self._forward(batch, with_logprobs=False)
        loss = self.algorithm.critic_loss(batch, forward.outputs)
        if _are_finite(loss):
            self._backward(batch, forward, None, loss)
            if _step([self._critic_optimiser]) is None:
                return math.nan
        return float(loss.detach())

    def clone(self, batch: StepBatch, count: int | None = None, is_idle: bool = False) -> float:
        """One step of behaviour cloning, if all is finite.

        Its optimiser is a separate one, so that the online phase starts without its moments.

        Args:
            count: How many steps the whole batch has, if this is a rank's share of it.
            is_idle: Whether the share is a stand-in that adds nothing.
        """
        if self._cloner is None:
            self._cloner = self._optimiser(self._config.demonstrations.lr)
        to_device(batch, self._view.device)
        self._cloner.begin()
        share = len(batch) / (len(batch) if count is None else count)
        total = self._add_cloning(self._cloner, batch, 0.0 if is_idle else share)
        return total if _step([self._cloner]) is not None else math.nan

    def learn_world(self, batch: StepBatch, lr: float) -> float:
        """One step of the model of the world, if all is finite. Returns −log p of what came, per step."""
        assert self._world is not None
        to_device(batch, self._view.device)
        self._world.begin(lr)
        loss = cloning_loss(self._view, batch, len(batch))
        self._world.backward(loss)
        return float(loss.detach()) if _step([self._world]) is not None else math.nan

    def _add_cloning(self, optimiser: Optimiser, batch: StepBatch, weight: float) -> float:
        """Adds the gradients of `weight` times the cloning loss, part by part. Returns that product."""
        total = 0.0
        parts, num_real = self._parts(batch)
        for number, at in enumerate(parts):
            part = batch if len(parts) == 1 else trimmed(batch[at.to(batch.completions.device)])
            with self.policy.augmented():
                loss = cloning_loss(self._view, part, len(batch)) * (weight if number < num_real else 0.0)
            optimiser.backward(loss, is_last=number == len(parts) - 1)
            total += float(loss.detach())
        return total

    # ---- without a step ----

    @torch.no_grad()
    def measure(self, batch: TrajectoryBatch) -> Loss:
        """The losses and statistics of `batch`."""
        self._add_reference(batch)
        return self.algorithm.loss(batch, self._forward(batch).outputs)

    @torch.no_grad()
    def values(self, batch: TrajectoryBatch) -> tuple[Tensor, Tensor]:
        """The present critic's values: [N] of the states of `batch`, and [B] of those after a cut."""
        to_device(batch, self._view.device)
        assert isinstance(self.algorithm, ActorCritic)
        outputs = self._forward(batch, with_logprobs=False).outputs
        found = self.algorithm.values(batch, outputs, recompute=True)
        return found.baseline, found.bootstrap

    @torch.no_grad()
    def logprobs(
        self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None, is_lent: bool | None = None
    ) -> Tensor:
        """[N, L] log π of the tokens of `batch`, on the CPU, 0 at padding.

        Args:
            weights: Weights to score with, as `Policy.published_state` gives them; the policy has its own
                back afterwards, to the bit. None: its own.
            is_lent: Whether rank 0 lends weights, where they are sharded; by default, whether there are some.
        """
        # Sharded weights are gathered where an engine sees a call. Others need no call of all ranks together.
        view = self._view if self.is_sharded else self.policy
        found = torch.zeros_like(batch.behaviour_logprobs)
        to_device(batch, self._view.device)
        is_lent = weights is not None if is_lent is None else is_lent
        with self._lent(weights) if is_lent else nullcontext():
            for at in pack(batch, self._config.micro_batch_tokens):
                part = trimmed(batch[at.to(batch.completions.device)])
                scores = score(view, part).logprobs
                found[at, : scores.shape[1]] = torch.where(part.token_mask, scores, 0.0).cpu().to(found.dtype)
        return found

    @contextmanager
    def _lent(self, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
        """A block within which the policy has other weights. Its own wait in the main memory."""
        if self.sharded is not None and self.is_sharded:
            with self.sharded.lent(weights):
                yield
            return
        assert weights is not None
        state = self.policy.published_state()
        own = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
        self.policy.load_published(dict(weights))
        try:
            yield
        finally:
            self.policy.load_published(own)

    # ---- weights and states ----

    @property
    def is_sharded(self) -> bool:
        """Whether ranks hold parts of the weights, so that all of them take part in each pass."""
        return self.sharded is not None and self.sharded.is_sharded

    def gathered(self) -> AbstractContextManager[object]:
        """A block within which rank 0's policy has what is trained in one piece; see `ShardedPolicy`."""
        return nullcontext() if self.sharded is None else self.sharded.gathered()

    def poll(self) -> None:
        """To be called every few seconds between updates; raises `RankError` if a rank has ended."""

    def optimiser_states(self) -> dict[str, Any]:
        """The optimisers' states, under "actor" and "value"; while cloning is under way also "cloner",
        and "world" with a model of the world."""
        return {
            "actor": self._policy_optimiser.state_dict(),
            "value": self._critic_optimiser.state_dict(),
            **({"cloner": self._cloner.state_dict()} if self._cloner is not None else {}),
            **({"world": self._world.state_dict()} if self._world is not None else {}),
        }

    def load_optimisers(self, states: Mapping[str, Any]) -> None:
        self._policy_optimiser.load_state_dict(states["actor"])
        self._critic_optimiser.load_state_dict(states["value"])
        if self._world is not None:
            self._world.load_state_dict(states["world"])
        if "cloner" in states:
            self._cloner = self._optimiser(self._config.demonstrations.lr)
            self._cloner.load_state_dict(states["cloner"])

    def state_dict(self) -> dict[str, Any]:
        """Optimisers, update count, torch's random state; `torch.load(weights_only=True)` can read it."""
        device = self._view.device
        return {
            **self.optimiser_states(),
            "num_steps": self.num_updates,
            "torch_rng": torch.get_rng_state(),
            **({"cuda_rng": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.load_optimisers(state)
        self.num_updates = int(state["num_steps"])
        torch.set_rng_state(state["torch_rng"])
        device = self._view.device
        if device.type == "cuda" and "cuda_rng" in state:  # absent if written on a CPU
            torch.cuda.set_rng_state(state["cuda_rng"], device)


def _are_finite(*losses: Tensor | None) -> bool:
    """Whether they are finite on all ranks, which must skip a batch together."""
    given = torch.stack([loss.detach().float() for loss in losses if loss is not None])
    return float(sum_over_ranks(1.0 - torch.isfinite(given).all().float())) == 0.0


def _step(optimisers: Sequence[Optimiser]) -> list[float] | None:
    """One step of each, and the norms of their gradients; no step at all if one of these is not finite."""
    norms = [optimiser.norm() for optimiser in optimisers]
    if not all(norm is None or math.isfinite(norm) for norm in norms):
        return None
    found: list[float] = []
    for optimiser in optimisers:  # one whose norm is only known after its step comes first
        found.append(optimiser.step())
        if not math.isfinite(found[-1]):
            return None
    return found


def _sides(outputs: NetworkOutputs) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """The tensors with the policy's gradients, and those with the critic's."""
    return [outputs.logprobs, outputs.entropy], [outputs.values, outputs.trajectory]


def _slopes(loss: Tensor | None, outputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """∂ loss / ∂ each of `outputs`; None where there is none."""
    given = [output for output in outputs if output is not None]
    if loss is None or not given:
        return [None] * len(outputs)
    found = iter(torch.autograd.grad(loss, given, allow_unused=True))
    return [None if output is None else next(found) for output in outputs]


def _chain(outputs: Sequence[Tensor | None], slopes: Sequence[Tensor | None], at: Tensor) -> Tensor | None:
    """Σ slope · output over the steps `at`; None where nothing has a slope."""
    terms = [
        (output * (slope[at, : output.shape[1]] if output.dim() == 2 else slope[at])).sum()
        for output, slope in zip(outputs, slopes, strict=True)
        if output is not None and slope is not None
    ]
    return torch.stack(terms).sum() if terms else None


# ---- several gradient steps on one batch ----


def minibatches(
    batch: TrajectoryBatch, epochs: int, parts: int
) -> Iterator[tuple[Tensor | None, TrajectoryBatch]]:
    """Per epoch `parts` minibatches (fewer when there are fewer trajectories), shuffled by torch's generator.

    Yields:
        [b] the rows of the minibatch, None for the whole batch, and the minibatch.
    """
    size = len(batch.ids)
    for _ in range(epochs):
        if parts == 1:
            yield None, batch
            continue
        order = torch.randperm(size).to(batch.mask.device)
        for rows in order.tensor_split(min(parts, size)):
            yield rows, batch.part(rows)


def merge(parts: Sequence[tuple[Tensor | None, Loss]], size: int, are_shares: bool = False) -> Loss:
    """One result for the whole batch: its metrics, each trajectory's last priorities, the last losses.

    The priorities of a trajectory whose minibatches were all skipped are NaN.

    Metrics are means weighed by what they are means of: steps, trajectories (`PER_TRAJECTORY`) or gradient
    steps (`PER_UPDATE`). Those of ratios are computed from all steps; a maximum is their maximum.

    Args:
        parts: The rows of each minibatch, as `minibatches` gives them, and its result.
        size: Number of trajectories.
        are_shares: Whether these are the shares of several ranks in one gradient step: their losses add up.
    """
    results = [result for _, result in parts]
    if len(parts) == 1 and parts[0][0] is None:
        return results[0]
    last = results[-1]
    priorities = last.priorities.new_full((size, last.priorities.shape[1]), math.nan)
    for rows, result in parts:
        priorities[slice(None) if rows is None else rows] = result.priorities.to(priorities.device)
    stats = StepStats.join([(rows, result.steps) for rows, result in parts])
    num_trajectories = [len(result.priorities) for result in results]
    metrics = {
        **_means(results, num_trajectories),
        **off_policy.metrics(stats),
        "batch/steps": len(stats) * size / sum(num_trajectories),
    }
    if not are_shares:
        return Loss(last.policy_loss, last.critic_loss, priorities, metrics, stats)
    for name in last.metrics:
        if name.startswith("loss/"):
            metrics[name] = sum(result.metrics[name] for result in results)
    metrics["advantage/std"] = _deviation(results)
    policy_loss = torch.stack([result.policy_loss.cpu() for result in results]).sum()
    critic = [result.critic_loss.cpu() for result in results if result.critic_loss is not None]
    return Loss(policy_loss, torch.stack(critic).sum() if critic else None, priorities, metrics, stats)


def _deviation(results: Sequence[Loss]) -> float:
    """Of all advantages, from the deviations and the means of those of each of `results`."""
    pairs = [(r.metrics["advantage/mean"], r.metrics["advantage/std"]) for r in results]
    counts = [len(result.steps) for result in results]
    mean, square = np.average([(m, s * s + m * m) for m, s in pairs], axis=0, weights=counts)
    return math.sqrt(max(0.0, square - mean * mean))


def _means(results: Sequence[Loss], num_trajectories: Sequence[int]) -> dict[str, float]:
    """The metrics that all `results` have, each weighed by what it is a mean of; see `merge`."""
    num_steps = [len(result.steps) for result in results]
    found = {}
    for name in results[0].metrics:
        if any(name not in result.metrics for result in results):
            continue  # as token_ess where each action is one token; ratios' metrics are recomputed anyway
        counts: Sequence[int] = num_steps
        if name in PER_TRAJECTORY:
            counts = num_trajectories
        elif name in PER_UPDATE:
            counts = [1] * len(results)
        values = [result.metrics[name] for result in results]
        found[name] = sum(n * x for n, x in zip(counts, values, strict=True)) / sum(counts)
    return found
