"""Convolutional eyes of the embedded policy: small images to a grid of features."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvStem(nn.Module):
    """Strided convolutions from uint8 images to a feature grid, with learned 2-D position embeddings.

    Args:
        image_size: (width, height) of the input in pixels.
        channels: Output channels of each convolution.
        strides: Their strides; the grid is the image divided by the product, rounded up.
    """

    def __init__(
        self, image_size: tuple[int, int], channels: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        super().__init__()
        width, height = image_size
        layers: list[nn.Module] = []
        previous = 3
        for channel, stride in zip(channels, strides, strict=True):
            kernel = stride + 1 if stride > 1 else 3
            layers += [nn.Conv2d(previous, channel, kernel, stride=stride, padding=max(1, stride // 2))]
            layers += [nn.ReLU()]
            previous = channel
            width, height = -(-width // stride), -(-height // stride)
        self.layers = nn.Sequential(*layers[:-1])
        self.column_embedding = nn.Parameter(torch.randn(previous, 1, width) * 0.5)
        self.row_embedding = nn.Parameter(torch.randn(previous, height, 1) * 0.5)

    def forward(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] uint8 images → [B, C, rows, columns] features."""
        pixels = images.to(self.row_embedding.dtype)  # a copy, which is scaled in place
        features: Tensor = self.layers(pixels.div_(127.5).sub_(1.0))
        return features + self.column_embedding + self.row_embedding
