"""Screenshots in the record: encoded once, named by the digest of their bytes."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock

from PIL import Image

from distrl.configs.schema import WorkerConfig
from distrl.core.types import Observation, image_digest
from distrl.workers.envs.base import Frame

CAPACITY = 1024
QUALITY = 85  # of JPEG screenshots


@dataclass(frozen=True)
class Screenshot:
    """An encoded picture, its digest and its size in pixels."""

    data: bytes
    digest: str
    size: tuple[int, int]


class Key:
    """A key that caches its hash, because hashing and comparing the tree of a screen is slow.

    Args:
        parts: The parts of the key.
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts


class ScreenshotCache:
    """Encoded screenshots by the key of their screen; the least recently used are dropped first.

    Args:
        capacity: The largest number of screenshots; one of the simulated phone takes about 0.1 MB.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._kept: OrderedDict[Key, tuple[Key, Screenshot]] = OrderedDict()

    def get(self, key: Key) -> Screenshot | None:
        """The screenshot under `key`, if cached."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(found[0])  # the same object: nothing is compared again
            return found[1]

    def put(self, key: Key, screenshot: Screenshot) -> None:
        """Caches `screenshot`."""
        with self._lock:
            self._kept[key] = key, screenshot
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)


_SEEN = ScreenshotCache()


def observe(frame: Frame, config: WorkerConfig, cache: ScreenshotCache = _SEEN) -> tuple[Observation, bytes]:
    """Encodes a frame. Identical pixels give identical bytes, hence identical digests.

    Args:
        frame: The screen.
        config: `screenshot_format`.
        cache: The cache of screens with a key; by default shared by the whole process.

    Returns:
        The observation, and the encoded bytes that its digest names.
    """
    key = None
    if frame.screen.key is not None:
        key = Key(frame.screen.key, config.screenshot_format, QUALITY)
    shot = None if key is None else cache.get(key)
    if shot is None:
        image = frame.image
        data = encode(image, config.screenshot_format, QUALITY)
        shot = Screenshot(data, image_digest(data), image.size)
        if key is not None:
            cache.put(key, shot)
    width, height = shot.size
    return Observation(image=shot.digest, width=width, height=height, app=frame.app), shot.data


def encode(image: Image.Image, image_format: str, quality: int) -> bytes:
    """The bytes of `image` as RGB "jpeg" or (lossless, `quality` ignored) "png"."""
    buffer = io.BytesIO()
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if image_format == "png":
        rgb.save(buffer, "PNG", compress_level=1)  # level 1: a third of the time for a few percent more bytes
    else:
        rgb.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
