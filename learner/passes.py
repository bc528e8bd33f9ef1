"""Passes over a batch: the networks see it in parts that memory has room for, the objective sees all of it.

A batch that fits is one pass, forward and backward. One that does not takes two, with the same gradients:

    1. without gradients, part by part: what the networks say of each step, y (`Outputs`, a few numbers per
       token); the objective judges all of it, and its losses are differentiated by these numbers, g = ∂L/∂y
    2. with gradients, part by part: L' = Σ g · y, which has the gradient of L with respect to the weights

(Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup", §3.) Returns,
normalisation and ranks over trajectories need whole trajectories, which this way need not fit into one pass.

With weights that are sharded over ranks, all ranks must make equally many passes: whoever has fewer parts
repeats its last one, to no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from distrl.core.policies.base import Critic, Policy
from distrl.learner.algorithms.base import Algorithm
from distrl.learner.algorithms.outputs import Finals, Outputs, Rows
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.packing import pack
from distrl.learner.ranks import most_over_ranks

Backward = Callable[[Tensor, bool], None]
"""Adds a loss's gradients to a network's; told whether it is the last loss before the step."""


@dataclass(frozen=True)
class Losses:
    """What a batch came to.

    Attributes:
        policy, critic: Scalars; None where there is nothing to learn.
    """

    policy: Tensor | None
    critic: Tensor | None


class Passes:
    """Asks the networks about batches.

    Args:
        policy, critic: The networks; `policy` is what objectives call, see `optimisers.Optimiser.policy`.
        algorithm: What asks.
        max_tokens: Of one forward pass, see `packing.pack`; None: any number.
        is_sharded: Whether the policy's weights are spread over ranks, which then must keep in step.
    """

    def __init__(
        self,
        policy: Policy,
        critic: Critic,
        algorithm: Algorithm,
        max_tokens: int | None = None,
        is_sharded: bool = False,
    ) -> None:
        self._policy, self._critic, self._algorithm = policy, critic, algorithm
        self._max_tokens, self._is_sharded = max_tokens, is_sharded

    @torch.no_grad()
    def look(self, batch: TrajectoryBatch, is_scored: bool = True) -> Outputs:
        """What the networks say of `batch`, without gradients.

        Args:
            is_scored: Whether the policy is asked for log-probabilities.
        """
        rows = Rows.of(batch, self._algorithm.asked(batch))
        parts, _ = self._in_step(pack(batch.steps, self._max_tokens))
        found = [(at, self._read(rows[at], is_scored)) for at in parts]
        outputs = Outputs.join(found, len(batch.steps), batch.steps.completions.shape[1])
        return replace(outputs, final=self._final(batch, is_fitting=not is_scored))

    def learn(
        self,
        batch: TrajectoryBatch,
        judge: Callable[[Outputs], Losses],
        backward_policy: Backward,
        backward_critic: Backward,
        is_scored: bool = True,
    ) -> bool:
        """Judges `batch` and lets both networks have the gradients of their losses.

        Args:
            judge: The losses, from what the networks say of the whole batch. Called once. With none there is
                nothing to learn, on all ranks alike.
            is_scored: As in `look`.

        Returns:
            Whether there was a loss.
        """
        parts, num_real = self._in_step(pack(batch.steps, self._max_tokens))
        if len(parts) == 1:
            rows = Rows.of(batch, self._algorithm.asked(batch))
            outputs = self._read(rows, is_scored)
            losses = judge(replace(outputs, final=self._final(batch, is_fitting=not is_scored)))
            _backward(backward_policy, losses.policy, is_last=True)
            _backward(backward_critic, losses.critic, is_last=True)
            return losses.policy is not None or losses.critic is not None
        outputs = self.look(batch, is_scored).leaves()
        losses = judge(outputs)
        if losses.policy is None and losses.critic is None:
            return False
        policy_slopes = _slopes(losses.policy, outputs.policys)
        critic_slopes = _slopes(losses.critic, outputs.critics)
        rows = Rows.of(batch, self._algorithm.asked(batch))
        for number, at in enumerate(parts):
            said, scale = self._read(rows[at], is_scored, is_drawn=False), float(number < num_real)
            is_last = number == len(parts) - 1
            _backward(backward_policy, _chain(said.policys, policy_slopes, at, scale), is_last)
            _backward(backward_critic, _chain(said.critics, critic_slopes, at, scale), is_last)
        return True

    def _read(self, rows: Rows, is_scored: bool, is_drawn: bool = True) -> Outputs:
        return self._algorithm.read(self._policy, self._critic, rows, is_scored, is_drawn)

    @torch.no_grad()
    def _final(self, batch: TrajectoryBatch, is_fitting: bool) -> Tensor | None:
        """[F] the values of the states after a cut, if they are wanted and there are any."""
        is_wanted = self._algorithm.reads_final(batch, is_fitting)
        finals = Finals.of(batch) if is_wanted else None
        parts = [] if finals is None else pack(finals.steps, self._max_tokens)
        idle = most_over_ranks(len(parts)) - len(parts) if self._is_sharded and is_wanted else 0
        for _ in range(idle):
            self._policy.states(batch.steps[batch.last[:1]].prompts)
        if finals is None:
            return None
        pieces = [self._algorithm.read_final(self._policy, self._critic, finals[at]) for at in parts]
        whole = pieces[0].new_zeros(len(finals.times))
        for at, piece in zip(parts, pieces, strict=True):
            whole[at] = piece
        return whole

    def _in_step(self, parts: list[Tensor]) -> tuple[list[Tensor], int]:
        """`parts`, with repetitions if other ranks have more, and how many of them are no repetition."""
        most = most_over_ranks(len(parts)) if self._is_sharded else len(parts)
        return parts + parts[-1:] * (most - len(parts)), len(parts)


def _backward(backward: Backward, loss: Tensor | None, is_last: bool) -> None:
    if loss is not None:
        backward(loss, is_last)


def _slopes(loss: Tensor | None, outputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """∂ loss / ∂ each of `outputs`; None where there is none."""
    given = [output for output in outputs if output is not None]
    if loss is None or not given:
        return [None] * len(outputs)
    found = iter(torch.autograd.grad(loss, given, allow_unused=True))
    return [None if output is None else next(found) for output in outputs]


def _chain(
    outputs: Sequence[Tensor | None], slopes: Sequence[Tensor | None], at: Tensor, scale: float
) -> Tensor | None:
    """Σ slope · output over the steps `at`, times `scale`; None where nothing has a slope."""
    terms = [
        (output * (slope[at, : output.shape[1]] if output.dim() == 2 else slope[at])).sum()
        for output, slope in zip(outputs, slopes, strict=True)
        if output is not None and slope is not None
    ]
    return scale * torch.stack(terms).sum() if terms else None
