"""Encoded screenshots to the uint8 tensors that policies read, caches of these, and a small encoder."""

from __future__ import annotations

import hashlib
import io
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from distrl.core.errors import NotStored, PolicyError
from distrl.core.model_points import MAX_PIXELS, MAX_TOTAL_PIXELS

Value = TypeVar("Value")
MAX_CACHED_BYTES = 2**30
IMAGES_SHARE = 1 / 16  # of the main memory, for the decoded screenshots of a learner's rank
DECODERS = min(16, max(4, (os.cpu_count() or 4) // 4))
"""Threads. Pillow lets others run while it decodes and resizes; other processes need cores too."""
ENCODED = 64  # encoded pictures that are in memory at a time
SEND = "Send JPEG, PNG or WebP screenshots."


@contextmanager
def opened(data: bytes) -> Iterator[Image.Image]:
    """The picture in JPEG, PNG or WebP bytes; PolicyError if it is none, or has over `MAX_PIXELS`."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise PolicyError(
                    f"The image has {image.width}x{image.height} pixels; the limit is {MAX_PIXELS:,}.",
                    "Send smaller screenshots.",
                )
            yield image
    except (UnidentifiedImageError, AssertionError) as error:  # whose texts tell a user nothing
        raise PolicyError("These bytes are not a readable image.", SEND) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PolicyError(f"These bytes are not a readable image: {error}.", SEND) from error


def check_total(pictures: Iterable[bytes], so_far: int = 0) -> int:
    """Refuses pictures that have too many pixels together. Reads their headers only.

    Args:
        so_far: The pixels of those that belong to them and were counted before.

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


def pixel_key(picture: Tensor) -> bytes:
    """A digest of decoded pixels, where that of the encoded picture is not known."""
    return hashlib.blake2b(picture.cpu().contiguous().numpy().data, digest_size=16).digest()


def memory_share(share: float) -> int:
    """That share of the main memory of this machine, or of this container's, in bytes; at least 1 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no control group, or "max"
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(2**30, int(total * share))


class Recent(Generic[Value]):
    """Values by key, of at most `max_bytes` together; the least recently used leave first. Any thread.

    Args:
        max_bytes: A larger value is not kept at all.
    """

    def __init__(self, max_bytes: int, size: Callable[[Value], int]) -> None:
        self.max_bytes, self._size = max_bytes, size
        self.num_bytes = 0
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def has_room(self, count: int) -> bool:
        """Whether so many values of the mean size would fill half of `max_bytes` at most."""
        with self._lock:
            return count * self.num_bytes <= len(self._values) * self.max_bytes / 2

    def get(self, keys: Iterable[Hashable]) -> dict[Hashable, Value]:
        """The values of those keys that are kept."""
        with self._lock:
            found = {key: self._values[key] for key in keys if key in self._values}
            for key in found:
                self._values.move_to_end(key)
            return found

    def keep(self, key: Hashable, value: Value) -> None:
        """Keeps a value, instead of old ones if there is no room."""
        with self._lock:
            if key in self._values or self._size(value) > self.max_bytes:
                return
            self._values[key] = value
            self.num_bytes += self._size(value)
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= self._size(self._values.popitem(last=False)[1])


class ImageCache:
    """Decoded images (uint8 tensors of the policy's input size) by digest; the newest are kept. Any thread.

    Several are decoded at a time: a batch of whole episodes shows hundreds, of which each takes some 50 ms.

    Args:
        decode: `Policy.image`; called by several threads at once.
        load: Encoded bytes by digest, e.g. `TrajectoryStore.images`; where each call of `get` brings its own,
            none.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Tensor],
        load: Callable[[Sequence[str]], Mapping[str, bytes | memoryview]] = lambda digests: {},
        max_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._decode, self._load = decode, load
        self._kept: Recent[Tensor] = Recent(max_bytes, lambda image: image.nbytes)
        self._decoders = ThreadPoolExecutor(DECODERS, "decode")
        self._announced = ThreadPoolExecutor(1, "announced")

    @property
    def size_bytes(self) -> int:
        """Bytes of the images that are kept."""
        return self._kept.num_bytes

    def has_room(self, count: int) -> bool:
        """Whether so many images take half of the cache at most."""
        return self._kept.has_room(count)

    def announce(self, digests: Sequence[str]) -> None:
        """Starts to decode the images of an episode that will be asked for; errors are left to `get`."""
        with suppress(RuntimeError):  # closed already
            self._announced.submit(self.get, digests, True)

    def close(self) -> None:
        """Forgets what was announced."""
        self._announced.shutdown(cancel_futures=True)

    def get(
        self,
        digests: Sequence[str],
        is_one_episode: bool = False,
        load: Callable[[Sequence[str]], Mapping[str, bytes | memoryview]] | None = None,
    ) -> dict[str, Tensor]:
        """The images of `digests`, decoding what is not kept.

        Args:
            is_one_episode: Whether they are of one episode or request, whose pixels are bounded. Those of a
                batch have been accepted, episode by episode.

        Raises:
            StoreError: An image is not in the store.
            PolicyError: One is unreadable, the first of those that are; or they have too many pixels.
        """
        kept = self._kept.get(digests)
        found = {digest: kept[digest] for digest in digests if digest in kept}
        missing = [digest for digest in dict.fromkeys(digests) if digest not in found]
        num_pixels = 0
        for start in range(0, len(missing), ENCODED):
            part = missing[start : start + ENCODED]
            given = (load or self._load)(part)
            if absent := [digest for digest in part if digest not in given]:
                raise NotStored(f"The screenshot {absent[0]} is not in the store.")
            encoded = [bytes(given[digest]) for digest in part]
            if is_one_episode and len(missing) > 1:  # a single one is checked when it is decoded
                num_pixels = check_total(encoded, num_pixels)
            decode_all = self._decoders.map if len(part) > 1 else map
            for digest, image in zip(part, decode_all(self._decode, encoded), strict=True):
                found[digest] = image
                self._kept.keep(digest, image)
        return found


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
