"""Fast PNG: the same pixels come back, whichever encoder is there."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from distrl.simulator.adb import png


def picture(mode: str, width: int, height: int) -> Image.Image:
    """Noise: the hardest case."""
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    values = np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values, mode)


@pytest.mark.needs("isal")
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 7), (64, 1), (33, 65)])
def test_every_pixel_comes_back(mode: str, width: int, height: int) -> None:
    image = picture(mode, width, height)
    decoded = Image.open(io.BytesIO(png.encode(image)))
    assert (decoded.format, decoded.mode) == ("PNG", mode)
    assert decoded.tobytes() == image.tobytes()


def test_without_isal_pillow_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "isal_zlib", None)
    image = picture("RGB", 20, 30)
    assert Image.open(io.BytesIO(png.encode(image))).tobytes() == image.tobytes()
