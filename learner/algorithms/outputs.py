"""What the networks say of steps, one row per step: all that objectives are computed from.

A row depends on its own step only. So the networks may see the steps of a batch in parts, as many tokens at a
time as there is memory for, and an objective sees the rows of all of them at once (`passes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from distrl.learner.batching import StepBatch, TrajectoryBatch
from distrl.learner.packing import trimmed


@dataclass(frozen=True)
class Rows:
    """N steps, and what the networks are asked about them.

    Attributes:
        steps: The steps.
        times: [N] int64, the step index t of each.
        asked: [N] bool, at which of them V_traj is read.
    """

    steps: StepBatch
    times: Tensor
    asked: Tensor

    @classmethod
    def of(cls, batch: TrajectoryBatch, asked: Tensor) -> Rows:
        """All steps of `batch`; V_traj is read at those that `asked`, [B] int64, names."""
        marks = torch.zeros_like(batch.row, dtype=torch.bool)
        marks[asked] = True
        return cls(batch.steps, batch.col, marks)

    def __getitem__(self, at: Tensor) -> Rows:
        """Some of the rows, without the padding that only others need; `at`: [n] int64."""
        at = at.to(self.times.device)
        return Rows(trimmed(self.steps[at]), self.times[at], self.asked[at])


@dataclass(frozen=True)
class Finals:
    """The F states after a cut: where a value is wanted of a state in which nothing was done.

    Attributes:
        steps: The states, as steps whose actions have no tokens.
        times: [F] int64, the step index given to the critic.
    """

    steps: StepBatch
    times: Tensor

    @classmethod
    def of(cls, batch: TrajectoryBatch) -> Finals | None:
        """Those of `batch`; None if every episode ended by itself."""
        if batch.final_prompts is None:
            return None
        before = batch.steps[batch.last[batch.final_row]]
        steps = replace(
            before,
            prompts=batch.final_prompts,
            completions=before.completions[:, :0],
            token_mask=before.token_mask[:, :0],
            behaviour_logprobs=before.behaviour_logprobs[:, :0],
            proximal_logprobs=None,
        )
        return cls(steps, batch.final_step)

    def __getitem__(self, at: Tensor) -> Finals:
        """Some of the states, without the padding that only others need; `at`: [n] int64."""
        at = at.to(self.times.device)
        return Finals(trimmed(self.steps[at]), self.times[at])


@dataclass(frozen=True)
class Outputs:
    """What the networks say of N steps, and of the F states after a cut; None is what nobody asked for.

    Attributes:
        logprobs, entropy: [N, L] of tokens, with the policy's gradients.
        values: [N] logits of V(s_t) or Q(s_t, a_t), with the critic's gradients.
        trajectory: [N] logits of V_traj where it was asked for, 0 elsewhere, with the critic's gradients.
        expected: [N] E_{a~π} Q(s_t, a), no gradients.
        final: [F] the value of the states after a cut, as a probability; no gradients.
    """

    logprobs: Tensor | None = None
    entropy: Tensor | None = None
    values: Tensor | None = None
    trajectory: Tensor | None = None
    expected: Tensor | None = None
    final: Tensor | None = None

    @property
    def policys(self) -> list[Tensor | None]:
        """What has the policy's gradients."""
        return [self.logprobs, self.entropy]

    @property
    def critics(self) -> list[Tensor | None]:
        """What has the critic's gradients."""
        return [self.values, self.trajectory]

    def leaves(self) -> Outputs:
        """The same numbers, where gradients begin."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("logprobs", "entropy", "values", "trajectory"):
            if found[name] is not None:
                found[name] = found[name].detach().requires_grad_()
        return replace(self, **found)

    @classmethod
    def join(cls, parts: Sequence[tuple[Tensor, Outputs]], num_steps: int, num_tokens: int) -> Outputs:
        """The rows of all parts in their places; `final` is left out.

        Args:
            parts: Which steps, [n] int64, and what the networks said of them.
            num_steps, num_tokens: N and L.
        """
        found = {}
        for name in ("logprobs", "entropy", "values", "trajectory", "expected"):
            pieces = [(rows, getattr(outputs, name)) for rows, outputs in parts]
            if pieces[0][1] is None:
                continue
            first = pieces[0][1]
            whole = first.new_zeros((num_steps, num_tokens) if first.dim() == 2 else (num_steps,))
            for rows, piece in pieces:
                if piece.dim() == 2:
                    whole[rows, : piece.shape[1]] = piece
                else:
                    whole[rows] = piece
            found[name] = whole
        return cls(**found)
