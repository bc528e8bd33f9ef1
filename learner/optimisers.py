"""Optimisers: gradients in parts, summed over ranks, clipped, one step of AdamW on float32 weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from distrl.core.policies.base import Policy
from distrl.learner.ranks import num_ranks, sum_over_ranks

COPY = "copy"  # in a parameter's state: its weight in float32, where the model has it in bfloat16


class Optimiser:
    """AdamW on every rank alike: gradients are summed over the ranks, which therefore make the same step.

    Weights in bfloat16 are trained through copies in float32 (Micikevicius et al. 2018, "Mixed precision
    training", §3.1), because most steps are smaller than the distance between two bfloat16 numbers.
    """

    def __init__(self, module: nn.Module, lr: float, weight_decay: float, clip: float) -> None:
        weights = list(trainable(module))
        self._parameters = [_copied(one) if one.dtype is torch.bfloat16 else one for one in weights]
        pairs = zip(weights, self._parameters, strict=True)
        self._copies = [(weight, copy) for weight, copy in pairs if weight is not copy]
        is_fused = all(parameter.is_cuda for parameter in self._parameters)
        self._adam = torch.optim.AdamW(
            self._parameters, lr=lr, weight_decay=weight_decay, fused=is_fused or None
        )
        self._clip = clip
        self._norm: float | None = None

    @torch.no_grad()
    def begin(self, lr: float | None = None) -> None:
        self._adam.zero_grad(set_to_none=True)
        self._norm = None
        for weight, copy in self._copies:
            weight.grad = None
            # What a checkpoint or another optimiser has set since; elsewhere the copy keeps its precision.
            copy.copy_(torch.where(copy.to(weight.dtype) == weight, copy, weight))
        if lr is not None:
            for group in self._adam.param_groups:
                group["lr"] = lr

    def backward(self, loss: Tensor, is_last: bool = True) -> None:
        """Adds the gradients of `loss`, a share of a sum."""
        loss.backward()  # type: ignore[no-untyped-call]
        for weight, copy in self._copies:
            if weight.grad is not None:  # shares add up in float32
                copy.grad = weight.grad.float() if copy.grad is None else copy.grad.add_(weight.grad)
                weight.grad = None

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
        """One step with these gradients, whose norm it returns; `norm`, if it is known, must be finite."""
        norm = self.norm() if self._norm is None else self._norm
        assert norm is not None
        self._adam.step()
        with torch.no_grad():
            for weight, copy in self._copies:
                weight.copy_(copy)
        self._norm = None
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The "state" of torch's AdamW, of whole parameters, with `COPY`. Every rank must call it."""
        copies = {id(copy): {COPY: copy.detach()} for _, copy in self._copies}
        states = {
            index: {**own, **copies.get(id(self._parameters[index]), {})}
            for index, own in self._adam.state_dict()["state"].items()
        }
        return {"state": states}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`, whatever kind of optimiser wrote it, on however many ranks."""
        states = {index: dict(own) for index, own in state["state"].items()}
        for index, own in states.items():
            if (copy := own.pop(COPY, None)) is not None:
                self._parameters[index].copy_(copy)
        self._adam.load_state_dict({**self._adam.state_dict(), "state": states})


def _copied(weight: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(weight.detach().float())


def trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that are trained, in the module's order; a policy's without its model of the world."""
    others = set(module.world.parameters()) if isinstance(module, Policy) and module.world else set()
    return (one for one in module.parameters() if one.requires_grad and one not in others)
