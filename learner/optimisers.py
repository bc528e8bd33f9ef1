"""Optimisers: gradients in parts, summed over ranks, clipped, one step of AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from distrl.learner.ranks import num_ranks, sum_over_ranks


class Optimiser:
    """AdamW on every rank alike: gradients are summed over the ranks, which therefore make the same step."""

    def __init__(self, module: nn.Module, lr: float, weight_decay: float, clip: float) -> None:
        self._parameters = list(trainable(module))
        is_fused = all(parameter.is_cuda for parameter in self._parameters)
        self._adam = torch.optim.AdamW(
            self._parameters, lr=lr, weight_decay=weight_decay, fused=is_fused or None
        )
        self._clip = clip
        self._norm: float | None = None

    def begin(self, lr: float | None = None) -> None:
        self._adam.zero_grad(set_to_none=True)
        self._norm = None
        if lr is not None:
            for group in self._adam.param_groups:
                group["lr"] = lr

    def backward(self, loss: Tensor, is_last: bool = True) -> None:
        """Adds the gradients of `loss`, a share of a sum."""
        loss.backward()  # type: ignore[no-untyped-call]

    def norm(self) -> float | None:
        """Sums the gradients over the ranks and clips them; their norm before, the same on all ranks.

        None if it is only known after `step`. Without a step afterwards nothing has changed.
        """
        if num_ranks() > 1:
            parameters = self._parameters
            used = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
            for is_used, parameter in zip(sum_over_ranks(used).tolist(), parameters, strict=True):
                if is_used:  # by some rank; otherwise it has no gradient afterwards, as in a single process
                    own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    parameter.grad = sum_over_ranks(own)
        self._norm = float(nn.utils.clip_grad_norm_(self._parameters, self._clip))
        return self._norm

    def step(self) -> float:
        """One step with these gradients; none if their norm, which it returns, is not finite."""
        norm = self.norm() if self._norm is None else self._norm
        assert norm is not None
        self._adam.step()
        self._norm = None
        return norm

    def state_dict(self) -> dict[str, Any]:
        """As torch's AdamW writes it, of whole parameters. Every rank must call it."""
        return self._adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`, whatever kind of optimiser wrote it, on however many ranks."""
        self._adam.load_state_dict(state)


def trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that are trained, in the module's order."""
    return (parameter for parameter in module.parameters() if parameter.requires_grad)
