"""Encoded screenshots to the uint8 tensors that policies read, and a small encoder of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.model_points import MAX_PIXELS, MAX_TOTAL_PIXELS

SEND = "Send JPEG, PNG or WebP screenshots."


@contextmanager
def opened(data: bytes) -> Iterator[Image.Image]:
    """The picture that JPEG, PNG or WebP bytes encode; what is done with it may raise PIL's errors.

    Raises:
        PolicyError: `data` is not an image, or has more than `MAX_PIXELS`.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise PolicyError(
                    f"The image has {image.width}x{image.height} pixels; the limit is {MAX_PIXELS:,}.",
                    "Send smaller screenshots.",
                )
            yield image
    except UnidentifiedImageError as error:  # its own text names an object of Python's
        raise PolicyError("These bytes are not a readable image.", SEND) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PolicyError(f"These bytes are not a readable image: {error}.", SEND) from error


def check_total(pictures: Iterable[bytes], so_far: int = 0) -> int:
    """Refuses pictures that have too many pixels together. Reads their headers only.

    Args:
        pictures: Encoded.
        so_far: The pixels of those that belong to them and were counted before.

    Returns:
        The pixels of all.

    Raises:
        PolicyError: These are more than `MAX_TOTAL_PIXELS`, or `opened` refuses one.
    """
    total = so_far
    for data in pictures:
        with opened(data) as image:
            total += image.width * image.height
    if total > MAX_TOTAL_PIXELS:
        raise PolicyError(
            f"The images have {total:,} pixels together; the limit is {MAX_TOTAL_PIXELS:,}.",
            "Send fewer or smaller screenshots.",
        )
    return total


def decode_image(data: bytes, size: tuple[int, int]) -> Tensor:
    """Decodes JPEG, PNG or WebP bytes and resizes them.

    JPEG is decoded at the smallest of its built-in scales that is still 1.5 times the target, much faster
    than in full. The same bytes always give the same tensor.

    Args:
        data: Encoded image.
        size: Target (width, height) in pixels.

    Returns:
        [3, height, width] uint8.

    Raises:
        PolicyError: `data` is not an image, or has more than `MAX_PIXELS`.
    """
    with opened(data) as image:
        image.draft("RGB", (3 * size[0] // 2, 3 * size[1] // 2))
        return to_tensor(image.convert("RGB").resize(size, Image.Resampling.BOX))


def to_tensor(image: Image.Image) -> Tensor:
    """[3, H, W] uint8 of an RGB picture."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()


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
