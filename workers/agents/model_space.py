"""Where a model's points lie: on 0 to 999, or on the pixels of the picture as its processor resizes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from distrl.core.image_sizes import smart_resize
from distrl.core.types import Observation
from distrl.workers.agents.notation import Grid

Coordinates = Literal["relative", "absolute"]

RELATIVE = Grid(1000, 1000)


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

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) that a picture of `width` × `height` pixels is resized to."""
        factor = self.patch_size * self.merge_size
        return smart_resize(width, height, factor, self.min_pixels, self.max_pixels)


@dataclass(frozen=True)
class ModelSpace:
    """The whole numbers that a model writes for a point on a screen.

    Attributes:
        coordinates: "relative", 0 to 999 on any screen (Qwen3-VL); "absolute", pixels of the resized picture
            (Qwen2.5-VL).
        resize: What resizes the picture, for "absolute".
    """

    coordinates: Coordinates = "relative"
    resize: Resize = Resize()

    def grid(self, screen: Observation) -> Grid:
        """The grid that points on `screen` are written on."""
        if self.coordinates == "relative":
            return RELATIVE
        return Grid(*self.resize.size(screen.width, screen.height))
