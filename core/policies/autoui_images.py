"""Screenshots as AutoUI reads them: features of a large frozen model, or of a small one that learns.

    bytes ─ read ─► uint8 pixels ─ look ─► what batches hold ─ features ─► [pictures, cells, F]
                    (cached by digest)     (when a batch is made)          (in the forward pass)

With BLIP-2 the middle step is the expensive one, and nothing of it is ever trained: it is done once for each
picture, for many at once, and in the learner while another batch trains.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.policies.autoui_checkpoint import read_tensors, require_same
from distrl.core.policies.hub_images import ImageReader
from distrl.core.policies.images import decode_image
from distrl.core.policies.vision import ConvStem

KEY = "policy.image_features"
VISION_PREFIX = "vision_model."
BATCH = 16
"""Pictures that go through BLIP-2 at once."""
MAX_CACHED_BYTES = 256 * 2**20
"""Of features: some 45,000 screenshots of 1408 float32 numbers."""
STEM_CHANNELS, STEM_STRIDES = (32, 64, 128), (4, 2, 2)


class Eyes(Protocol):
    """What turns pictures into features.

    Attributes:
        num_features: F.
    """

    num_features: int

    def read(self, data: bytes) -> Tensor:
        """Decodes a picture, [3, H, W] uint8; the same bytes always give the same tensor.

        Raises:
            PolicyError: If `data` is no image.
        """
        ...

    def look(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """What batches hold of pictures. Any thread."""
        ...

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """[pictures, cells, F] of what `look` gave, on its device."""
        ...


class FrozenEyes:
    """The vision tower of BLIP-2: the pooled state of each picture, as in AutoUI and DigiRL.

    It is no part of the policy's weights: nobody trains, publishes or saves it.

    Args:
        model: A directory or hub id of a BLIP-2, of which the vision tower is loaded, in float32.
        device: Where it computes.
        max_cached_bytes: Bound of the features that are kept, by the digest of the pixels; the least recently
            used go first.

    Raises:
        PolicyError: It cannot be loaded, or is no BLIP-2.
    """

    def __init__(self, model: str, device: str, max_cached_bytes: int = MAX_CACHED_BYTES) -> None:
        self._reader, self._tower = _load_tower(model)
        self._tower.requires_grad_(False).eval()
        self._device = device
        self.num_features = int(self._tower.config.hidden_size)
        self._max_bytes = max_cached_bytes
        self._cache: OrderedDict[bytes, Tensor] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    @property
    def cached_bytes(self) -> int:
        """Bytes of the features that are kept."""
        return self._num_bytes

    def read(self, data: bytes) -> Tensor:
        """As BLIP-2's own processor resizes it."""
        return self._reader.read(data)

    def look(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """[F] float32 each, on the CPU. What is not kept is computed, each picture once."""
        keys = [_digest(picture) for picture in pictures]
        with self._lock:
            found = {key: self._cache[key] for key in keys if key in self._cache}
            for key in found:
                self._cache.move_to_end(key)
            missing = {key: one for key, one in zip(keys, pictures, strict=True) if key not in found}
            found |= dict(zip(missing, self._computed(list(missing.values())), strict=True))
            for key in missing:
                self._keep(key, found[key])
        return [found[key] for key in keys]

    @torch.no_grad()
    def _computed(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        rows: list[Tensor] = []
        self._tower.to(self._device)  # not before: ranks that are sent batches never look at a picture
        for start in range(0, len(pictures), BATCH):
            inputs = self._reader.inputs(pictures[start : start + BATCH])["pixel_values"]
            pooled = self._tower(pixel_values=inputs.to(self._device)).pooler_output
            rows += [row.clone() for row in pooled.float().cpu()]
        return rows

    def _keep(self, key: bytes, features: Tensor) -> None:
        self._cache[key] = features
        self._num_bytes += features.nbytes
        while self._num_bytes > self._max_bytes and len(self._cache) > 1:
            self._num_bytes -= self._cache.popitem(last=False)[1].nbytes

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """[pictures, 1, F]: a picture is one cell."""
        return torch.stack(list(seen))[:, None]


class LearningEyes(nn.Module):
    """A few convolutions that are trained with the policy; a picture is a grid of cells.

    Args:
        image_size: (width, height) of what it reads, in pixels.
        seed: Seed of its weights.
    """

    def __init__(self, image_size: tuple[int, int], seed: int) -> None:
        super().__init__()
        self._image_size = image_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.stem = ConvStem(image_size, STEM_CHANNELS, STEM_STRIDES)
        self.num_features = STEM_CHANNELS[-1]

    def read(self, data: bytes) -> Tensor:
        """At the configured size."""
        return decode_image(data, self._image_size)

    def look(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """The pixels themselves."""
        return list(pictures)

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """[pictures, rows · columns, F]."""
        grid: Tensor = self.stem(torch.stack(list(seen)))
        return grid.flatten(2).transpose(1, 2)


def _digest(picture: Tensor) -> bytes:
    return hashlib.blake2b(picture.cpu().contiguous().numpy().data, digest_size=16).digest()


def _load_tower(model: str) -> tuple[ImageReader, Any]:
    """The image processor and the vision tower of a BLIP-2; its language model is not read."""
    from transformers import AutoConfig, AutoImageProcessor, Blip2VisionModel

    try:
        config = AutoConfig.from_pretrained(model)
        processor = AutoImageProcessor.from_pretrained(model, backend="pil")
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise PolicyError(
            f"{KEY} {model!r} cannot be loaded: {str(error).strip().splitlines()[0]}",
            "Name a BLIP-2 that this machine can reach, such as Salesforce/blip2-opt-2.7b, or its directory.",
        ) from error
    if config.model_type != "blip-2":
        raise PolicyError(
            f"{KEY} {model!r} is a {config.model_type}, not a BLIP-2.",
            "Name Salesforce/blip2-opt-2.7b, or leave the key out for a small encoder that learns.",
        )
    with torch.device("meta"):
        tower = Blip2VisionModel(config.vision_config)
    tensors = {name: x.float() for name, x in read_tensors(KEY, model, VISION_PREFIX).items()}
    require_same(KEY, model, tower.state_dict(), tensors, "Name a whole BLIP-2: its vision tower is read.")
    tower.load_state_dict(tensors, assign=True)
    return ImageReader(processor), tower
