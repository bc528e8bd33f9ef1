"""Where a model's points lie: on 0 to 999, or on the pixels of the picture as its processor resizes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distrl.core.image_sizes import Resize
from distrl.core.types import Observation
from distrl.workers.agents.notation import Grid

Coordinates = Literal["relative", "absolute"]

RELATIVE = Grid(1000, 1000)


@dataclass(frozen=True)
class ModelSpace:
    """The whole numbers that a model writes for a point on a screen.

    Attributes:
        coordinates: "relative", 0 to 999 on any screen (Qwen3-VL); "absolute", pixels of the resized picture
            (Qwen2.5-VL).
        resize: What resizes the picture, for "absolute".
    """

    coordinates: Coordinates = "relative"
    resize: Resize = field(default_factory=Resize)

    def grid(self, screen: Observation) -> Grid:
        """The grid that points on `screen` are written on."""
        if self.coordinates == "relative":
            return RELATIVE
        return Grid(*self.resize.size(screen.width, screen.height))
