"""Screenshots in the record: encoded once, named by the digest of their bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image

from distrl.configs.schema import WorkerConfig
from distrl.core.types import Observation, image_digest
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame

QUALITY = 85  # of JPEG screenshots
CAPACITY = 1024  # encoded screens with a key that are kept; one of the simulated phone takes about 0.1 MB


@dataclass(frozen=True)
class Screenshot:
    """An encoded picture, its digest and its size in pixels."""

    data: bytes
    digest: str
    size: tuple[int, int]


class _Shot:
    """A screen to encode, and its format. Equal to another with the same key and format.

    The hash is computed once, because hashing the tree of a simulated screen is slow.
    """

    __slots__ = ("_hash", "_key", "picture")

    def __init__(self, screen: Screen, image_format: str) -> None:
        self.picture = screen.picture
        self._key = screen.key, image_format
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shot) and self._hash == other._hash and self._key == other._key


@lru_cache(CAPACITY)
def _encoded(shot: _Shot) -> Screenshot:
    image = shot.picture()
    del shot.picture  # the cache keeps the shot; its screen may hold a picture
    data = encode(image, shot._key[1])
    return Screenshot(data, image_digest(data), image.size)


def observe(frame: Frame, config: WorkerConfig) -> tuple[Observation, bytes]:
    """The observation of a frame, and the encoded bytes that its digest names.

    Identical pixels give identical bytes. A screen with a key that was seen before is not drawn again.
    """
    take = _encoded if frame.screen.key is not None else _encoded.__wrapped__
    shot = take(_Shot(frame.screen, config.screenshot_format))
    width, height = shot.size
    return Observation(image=shot.digest, width=width, height=height, app=frame.app), shot.data


def encode(image: Image.Image, image_format: str) -> bytes:
    """The bytes of `image` as RGB "jpeg" or (lossless) "png"."""
    buffer = io.BytesIO()
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if image_format == "png":
        rgb.save(buffer, "PNG", compress_level=1)  # level 1: a third of the time for a few percent more bytes
    else:
        rgb.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
