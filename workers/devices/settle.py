"""Waiting until a screen stands still: look again until two frames are the same, or time is up.

What never stands still does not count: a region such as the status bar with its clock, and differences as
small as a blinking caret. A device that has the attribute `settles_at_once`, as a simulated phone does, is
still when it has acted: one look, no pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from PIL import Image, ImageChops
from pydantic import BaseModel, ConfigDict, Field

from distrl.core.fields import read_fields
from distrl.workers.devices.base import Device, Screen

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Box = tuple[Share, Share, Share, Share]

STATUS_BAR: Box = (0.0, 0.0, 1.0, 0.04)
"""Where phones show the clock and the signal: the upper 4% of the screen."""


class Settle(BaseModel):
    """How to wait for a still screen.

    Attributes:
        mode: "frames" compares screenshots; "none" takes the first one.
        max_s: No further look is begun after so many seconds; the last frame is then used as it is.
        first_s: The pause before the first look: a screen that has not begun to change looks still.
        poll_s: Seconds from one look to the next.
        ignore: Regions that do not count, as (left, top, right, bottom) shares of the screen.
        tolerance: The share of all pixels that may differ; a blinking caret has some 0.0002.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["frames", "none"] = "frames"
    max_s: float = Field(3.0, gt=0.0, le=120.0)
    first_s: float = Field(0.1, ge=0.0, le=60.0)
    poll_s: float = Field(0.15, ge=0.01, le=60.0)
    ignore: tuple[Box, ...] = (STATUS_BAR,)
    tolerance: Share = 0.0004

    @classmethod
    def of(cls, fields: Mapping[str, object] | Settle | None) -> Settle:
        """The options in a configuration's `settle`; the defaults for None.

        Raises:
            ConfigError: A field is unknown or wrong.
        """
        return read_fields(cls, fields, "settle")


@dataclass(frozen=True)
class Settled:
    """What a wait ended with.

    Attributes:
        screen: The last frame.
        seconds: How long it took, screenshots included.
        is_still: Whether two frames were the same; False when time was up first.
        num_frames: How many frames were looked at.
    """

    screen: Screen
    seconds: float = 0.0
    is_still: bool = True
    num_frames: int = 1


class Settler:
    """Waits for still screens.

    Args:
        options: How.
        clock, sleep: Seconds that never go back, and a pause of so many.
    """

    def __init__(
        self,
        options: Settle,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self._clock = clock
        self._sleep = sleep

    def wait(self, device: Device, meanwhile: Callable[[], object] = lambda: None) -> Settled:
        """The screen of `device` once it stands still, or as it is after `max_s`.

        Args:
            device: What is looked at.
            meanwhile: Called after each look that another one follows; its time counts.

        Raises:
            DeviceError: A screenshot failed; each has the device's own deadline. And what `meanwhile` raises.
        """
        options = self.options
        if options.mode == "none" or getattr(device, "settles_at_once", False):
            return Settled(device.screen())
        started = self._clock()
        seen: _Look | None = None
        frames = 0
        pause_s = options.first_s
        while True:
            self._sleep(pause_s)
            looked = self._clock()
            look = _Look(device.screen())
            frames += 1
            is_same = seen is not None and seen.shows_as(look, options)
            now = self._clock()
            if is_same or now - started >= options.max_s:
                return Settled(look.screen, now - started, is_same, frames)
            seen = look
            meanwhile()
            now = self._clock()
            pause_s = min(
                max(0.0, options.poll_s - (now - looked)), max(0.0, options.max_s - (now - started))
            )


class _Look:
    """A screen whose picture is decoded once, and not at all where equal keys say enough."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._picture: Image.Image | None = None

    @property
    def picture(self) -> Image.Image:
        if self._picture is None:
            self._picture = self.screen.picture()
        return self._picture

    def shows_as(self, other: _Look, options: Settle) -> bool:
        if self.screen.key is not None and self.screen.key == other.screen.key:
            return True
        return is_still(self.picture, other.picture, options)


def is_still(first: Image.Image, second: Image.Image, options: Settle) -> bool:
    """Whether two frames show the same, but for what does not count."""
    if first.size != second.size:
        return False
    width, height = first.size
    difference = ImageChops.difference(first, second)
    for left, top, right, bottom in options.ignore:
        box = (int(left * width), int(top * height), round(right * width), round(bottom * height))
        difference.paste(0, box)
    box_of_change = difference.getbbox()
    if box_of_change is None:
        return True
    changed = np.asarray(difference.crop(box_of_change))
    count = int(np.count_nonzero(changed.reshape(*changed.shape[:2], -1).any(axis=2)))
    return count <= options.tolerance * width * height
