"""Screenshots as the record keeps them: encoded once, named by the digest of their bytes."""

from __future__ import annotations

import io

from PIL import Image

from distrl.configs.schema import WorkerConfig
from distrl.core.types import Observation, image_digest
from distrl.workers.envs.base import Frame


def observe(frame: Frame, config: WorkerConfig) -> tuple[Observation, bytes]:
    """Encodes what a frame shows. Identical pixels give identical bytes, hence identical digests.

    Args:
        frame: The screen.
        config: `screenshot_format` and, for JPEG, `screenshot_quality`.

    Returns:
        The observation, and the encoded bytes that its digest names.
    """
    data = encode(frame.image, config.screenshot_format, config.screenshot_quality)
    width, height = frame.image.size
    return Observation(image=image_digest(data), width=width, height=height, app=frame.app), data


def encode(image: Image.Image, image_format: str, quality: int) -> bytes:
    """The bytes of `image` as RGB "jpeg" or (lossless, `quality` ignored) "png"."""
    buffer = io.BytesIO()
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if image_format == "png":
        rgb.save(buffer, "PNG", compress_level=1)  # level 1: a third of the time for a few percent more bytes
    else:
        rgb.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
