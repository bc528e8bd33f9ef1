"""Reads the text on screens: a small convolutional network with connectionist temporal classification.

    box ──► HEIGHT pixels high, light on dark ──► convolutions ──► a letter or none for every second column

It knows letters without regard to case (Graves et al. 2006). It is fitted to text drawn with the fonts of the
simulated phone, which are Android's (ocr_fitting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from distrl.core.types import Record
from distrl.evaluator.judges.local.boxes import WIDTH, Box, find_boxes, grey_of
from distrl.evaluator.judges.local.recent import Recent

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 :.,-'&$%+/!?()°@#"
HEIGHT = 20
MARGIN = 2
"""Pixels around a box that are looked at too, before scaling."""
MAX_WIDTH = 512
WIDTHS = (48, 96, 192, MAX_WIDTH)
"""Boxes are padded to the next of these widths, and read together."""
BOXES = 16384
"""So many boxes are remembered, far more than a screen can have."""
LEAST_SURE = 0.5
"""Readings that are less sure are none: icons, pictures."""


@dataclass(frozen=True)
class Line:
    """A piece of text on a screen.

    Attributes:
        text: In lower case.
        box: left, top, right, bottom in pixels of a screen that is WIDTH pixels wide.
    """

    text: str
    box: Box


class OcrSize(Record):
    """Channels of the network's convolutions over the picture and over its columns."""

    picture: tuple[int, int, int] = (12, 24, 32)
    columns: int = 64


class OcrModel(nn.Module):
    """Boxes of text to letters.

    Args:
        size: Its sizes.
    """

    def __init__(self, size: OcrSize) -> None:
        super().__init__()
        a, b, c = size.picture
        self.picture = nn.Sequential(
            *_block(nn.Conv2d(1, a, 3, padding=1, bias=False), nn.BatchNorm2d(a), nn.MaxPool2d(2)),
            *_block(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.MaxPool2d((2, 1))),
            *_block(nn.Conv2d(b, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.MaxPool2d((2, 1))),
        )
        rows = HEIGHT // 8
        self.columns = nn.Sequential(
            *_block(
                nn.Conv1d(c * rows, size.columns, 5, padding=2, bias=False), nn.BatchNorm1d(size.columns)
            ),
            *_block(
                nn.Conv1d(size.columns, size.columns, 5, padding=2, bias=False), nn.BatchNorm1d(size.columns)
            ),
            nn.Conv1d(size.columns, 1 + len(ALPHABET), 1),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """[B, HEIGHT, width] text in [0, 1] on 0 → [B, width / 2, 1 + letters] logits; 0: no letter."""
        features: Tensor = self.picture(pictures[:, None])
        found: Tensor = self.columns(features.flatten(1, 2))
        return found.transpose(1, 2)


def _block(*layers: nn.Module) -> list[nn.Module]:
    return [*layers[:2], nn.ReLU(), *layers[2:]]


def scaled(grey: NDArray[np.uint8], box: Box) -> NDArray[np.float32]:
    """[HEIGHT, width] of a box, its edge's brightness 0 and what differs most from that 1."""
    left, top, right, bottom = box
    piece = grey[max(0, top - MARGIN) : bottom + MARGIN, max(0, left - MARGIN) : right + MARGIN]
    width = min(MAX_WIDTH, max(4, round(piece.shape[1] * HEIGHT / piece.shape[0])))
    picture = Image.fromarray(piece).resize((width, HEIGHT), Image.Resampling.BILINEAR)
    return normalised(np.asarray(picture, dtype=np.float32))


def normalised(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far each pixel is from the edge's brightness, 1 for the farthest."""
    edge = np.median(np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]]))
    apart = np.abs(values - edge)
    shown: NDArray[np.float32] = apart / max(float(apart.max()), 1.0)
    return shown


def padded(pictures: Sequence[NDArray[np.float32]], width: int) -> Tensor:
    """[B, HEIGHT, width] of several boxes."""
    together = np.zeros((len(pictures), HEIGHT, width), dtype=np.float32)
    for row, picture in enumerate(pictures):
        together[row, :, : picture.shape[1]] = picture
    return torch.from_numpy(together)


def decoded(logits: Tensor) -> list[tuple[str, float]]:
    """The likeliest letters of [B, T, 1 + letters] logits, and how sure they are on average, in [0, 1]."""
    probabilities, best = logits.softmax(-1).max(-1)
    readings = []
    for ids, shares in zip(best.tolist(), probabilities.tolist(), strict=True):
        letters, sure, before = [], [], 0
        for place, share in zip(ids, shares, strict=True):
            if place and place != before:
                letters.append(ALPHABET[place - 1])
                sure.append(share)
            before = place
        readings.append(("".join(letters).strip(), sum(sure) / max(1, len(sure))))
    return readings


class TextReader:
    """Reads screenshots; what it has read it remembers. Not for several threads at once.

    Args:
        model: Fitted.
        capacity: The most screens to remember; the least recently asked for go first.
    """

    def __init__(self, model: OcrModel, capacity: int = 4096) -> None:
        self._model = model.eval()
        self._screens: Recent[list[Line]] = Recent(capacity)
        self._boxes: Recent[str] = Recent(BOXES)

    def lines(self, digest: str, picture: Callable[[], Image.Image]) -> list[Line]:
        """The text on a screenshot, from top to bottom.

        Args:
            digest: The screenshot's.
            picture: Gives it; called unless it is remembered.
        """
        return self._screens.get(digest, lambda: self._read(grey_of(picture())))

    def _read(self, grey: NDArray[np.uint8]) -> list[Line]:
        """What is in its boxes, from what looked the same or by the network."""
        boxes = find_boxes(grey)
        pictures = [scaled(grey, box) for box in boxes]
        keys = [blake2b(picture.tobytes(), digest_size=16).digest() for picture in pictures]
        new = {key: one for key, one in zip(keys, pictures, strict=True) if key not in self._boxes}
        texts = self._texts(new)
        found = [self._boxes.get(key, partial(texts.__getitem__, key)) for key in keys]
        return [Line(text, box) for text, box in zip(found, boxes, strict=True) if text]

    @torch.inference_mode()
    def _texts(self, pictures: Mapping[bytes, NDArray[np.float32]]) -> dict[bytes, str]:
        """What each says; "" if nothing, or not surely."""
        texts: dict[bytes, str] = {}
        shortest = 0
        for width in WIDTHS:
            some = {key: one for key, one in pictures.items() if shortest < one.shape[1] <= width}
            shortest = width
            if some:
                logits = self._model(padded(list(some.values()), width))
                for key, (text, sure) in zip(some, decoded(logits), strict=True):
                    texts[key] = text if sure >= LEAST_SURE else ""
        return texts


__all__ = ["ALPHABET", "HEIGHT", "WIDTH", "Line", "OcrModel", "OcrSize", "TextReader"]
