"""All parameters of a module in one vector, and all gradients in another: a step is then a few calls."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FlatParameters:
    """Moves the parameters of `module` into one vector, of which they become views, and likewise gradients.

    The module keeps working as before; it must not be moved to another device or type afterwards.

    Attributes:
        vector, grad: [P] parameters and gradients, in the order of `module.named_parameters()`.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self._shapes = {name: parameter.shape for name, parameter in named.items()}
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in named.values()])
        self.grad = torch.zeros_like(self.vector)
        vectors, grads = self.views(self.vector), self.views(self.grad)
        for name, parameter in named.items():
            parameter.data, parameter.grad = vectors[name], grads[name]

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """`vector`, [P], cut up into tensors by name: views of its memory."""
        parts = torch.split(vector, [math.prod(shape) for shape in self._shapes.values()])
        return {name: part.view(self._shapes[name]) for name, part in zip(self._shapes, parts, strict=True)}
