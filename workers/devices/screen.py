"""Screenshots: valid or not, still or moving.

`Frames` accepts only a whole picture of more than one colour. `wait_settled` looks again until two frames are
the same or time is up; the status bar with its clock and differences as small as a blinking caret do not
count. A device with the attribute `settles_at_once`, such as a simulated phone, needs one look and no pause.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from PIL import Image, ImageChops
from pydantic import BaseModel, ConfigDict, Field

from distrl.workers.devices.device import Device, Screen
from distrl.workers.devices.errors import BlankFrame, FrameTruncated

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"IEND\xaeB`\x82"
_MAX_TALK = 4096
_BLACK = (0, 0, 0)


@dataclass(frozen=True)
class Frame:
    """A valid screenshot: its bytes, their hash, its width and height in pixels."""

    png: bytes
    digest: bytes
    size: tuple[int, int]

    def picture(self) -> Image.Image:
        """It as an RGB picture that the caller owns."""
        return _decode(self.png)

    def screen(self) -> Screen:
        """It as a screen, drawn when it is looked at; equal bytes are equal pictures."""
        return Screen(self.picture, ("png", self.digest))


class Frames:
    """Checks one device's screenshots. Bytes that are those of the last valid one are not decoded again."""

    def __init__(self, serial: str = "") -> None:
        self._serial = serial
        self._last: Frame | None = None

    def judge(self, data: bytes, is_secure: Callable[[], bool] = lambda: False) -> Frame:
        """What `screencap -p` printed, as a frame. A warning may stand before the picture.

        `is_secure` is called for a black picture: that of a secure window is valid. Raises FrameTruncated if
        it is not a whole PNG picture, and BlankFrame if every pixel is the same.
        """
        # A device with several displays, such as a foldable, warns first that it shows one of them.
        png = data[max(0, data.find(_SIGNATURE, 0, _MAX_TALK)) :]
        if not png.startswith(_SIGNATURE):
            talk = data[:300].decode("utf-8", "replace").strip()
            said = " ".join(talk.split())[:120].rstrip(".")
            raise self._truncated(f"is not a PNG picture but {len(data)} bytes{said and f': {said}'}", talk)
        if not png.endswith(_END):
            raise self._truncated(f"ends after {len(png)} bytes, in the middle", repr(png[-16:]))
        digest = hashlib.blake2b(png, digest_size=16).digest()
        if self._last is not None and self._last.digest == digest:
            return self._last
        try:
            picture = _decode(png)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            what = f"of {len(png)} bytes cannot be decoded ({error})"
            raise self._truncated(what, repr(png[:64])) from error
        frame, colours = Frame(png, digest, picture.size), picture.getcolors(1)
        if colours is None:
            self._last = frame
        elif colours[0][1] != _BLACK or not is_secure():  # a dark display looks like a secure window
            raise BlankFrame(
                f"its screenshot is of one colour, {colours[0][1]}.",
                "Wake the screen; an emulator that stays blank needs a restart.",
                serial=self._serial,
            )
        return frame

    def _truncated(self, what: str, evidence: str) -> FrameTruncated:
        return FrameTruncated(
            f"its screenshot {what}.", "If it stays so, restart it.", serial=self._serial, evidence=evidence
        )


def _decode(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png), formats=["PNG"]).convert("RGB")


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


@dataclass(frozen=True)
class Settled:
    """What a wait ended with: the last frame, and how long it took, screenshots included."""

    screen: Screen
    seconds: float = 0.0


def wait_settled(
    device: Device,
    options: Settle,
    meanwhile: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Settled:
    """The screen of `device` once it stands still, or as it is after `options.max_s`.

    `meanwhile` is called after each look that another one follows; its time counts.
    """
    if options.mode == "none" or getattr(device, "settles_at_once", False):
        return Settled(device.screen())
    started = clock()
    seen: _Look | None = None
    pause_s = options.first_s
    while True:
        sleep(pause_s)
        looked = clock()
        look = _Look(device.screen())
        is_same = seen is not None and seen.shows_as(look, options)
        if is_same or clock() - started >= options.max_s:
            return Settled(look.screen, clock() - started)
        seen = look
        meanwhile()
        pause_s = max(0.0, min(looked + options.poll_s, started + options.max_s) - clock())


class _Look:
    """A screen whose picture is decoded once, and not at all where equal keys say enough."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    @cached_property
    def picture(self) -> Image.Image:
        return self.screen.picture()

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
