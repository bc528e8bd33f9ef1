"""How large pictures may be, and at what size a vision-language model sees them. No torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

MAX_ASPECT = 200
MAX_PIXELS = 16 * 2**20
"""Of one picture. A phone's screenshot has up to 5 M; a small file can decode to any number."""
MAX_TOTAL_PIXELS = 32 * MAX_PIXELS
"""Of all pictures that must be decoded for one request or episode."""


def smart_resize(width: int, height: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The (width, height) at which Qwen-VL and its relatives read a picture of `width` x `height` pixels.

    Both are multiples of `factor`, their product lies between the two bounds where such a size exists, and
    the shape is kept as nearly as that allows (`smart_resize` of Qwen2-VL's image processor).

    Args:
        factor: Pixels of a side that become one token: 28 for Qwen2.5-VL, 32 for Qwen3-VL.
        min_pixels, max_pixels: Bounds of width times height.

    Raises:
        ValueError: One side is more than 200 times the other.
    """
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ValueError(f"a picture of {width}x{height} pixels is longer than {MAX_ASPECT} times its width")
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    if wide * high > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        wide = max(factor, math.floor(width / scale / factor) * factor)
        high = max(factor, math.floor(height / scale / factor) * factor)
    elif wide * high < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        wide = math.ceil(width * scale / factor) * factor
        high = math.ceil(height * scale / factor) * factor
    return wide, high


@dataclass(frozen=True)
class Resize:
    """The size that a Qwen-VL image processor gives to a picture, without the processor.

    It is `smart_resize` with the values of the model's `preprocessor_config.json`.

    Attributes:
        patch_size, merge_size: Pixels of a patch's side, and patches of a token's side.
        min_pixels, max_pixels: Bounds of width · height (`size.shortest_edge` and `size.longest_edge` there).
    """

    patch_size: int = 14
    merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280

    def __post_init__(self) -> None:
        for name in ("patch_size", "merge_size", "min_pixels", "max_pixels"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is more than max_pixels {self.max_pixels}")

    def keys(self) -> str:
        """The values as they stand in a configuration."""
        return ", ".join(f"{name}: {value}" for name, value in asdict(self).items())

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) that a picture of `width` × `height` pixels is resized to."""
        factor = self.patch_size * self.merge_size
        return smart_resize(width, height, factor, self.min_pixels, self.max_pixels)
