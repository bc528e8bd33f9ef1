"""A screenshot's bytes, judged before they are an observation: whole, a picture, and not of one colour."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from distrl.workers.devices.base import Screen
from distrl.workers.devices.errors import BlankFrame, FrameTruncated

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"IEND\xaeB`\x82"
_MAX_TALK = 4096
_BLACK = (0, 0, 0)
_REMEMBERED = 256


@dataclass(frozen=True)
class Frame:
    """A screenshot that has been found good.

    Attributes:
        png: Its bytes.
        digest: Names them.
        size: Width and height in pixels.
    """

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
    """The judge of one device's screenshots. One that it has passed already is not decoded to pass again.

    Args:
        serial: The device, for the errors.
    """

    def __init__(self, serial: str = "") -> None:
        self._serial = serial
        self._passed: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def judge(self, data: bytes, is_secure: Callable[[], bool] = lambda: False) -> Frame:
        """What `screencap -p` printed, as a frame. A warning may stand before the picture.

        Args:
            data: What was printed.
            is_secure: Asked of a black picture: whether it is that of a secure window, which passes.

        Raises:
            FrameTruncated: If it is not a whole PNG picture.
            BlankFrame: If every pixel is the same.
        """
        png = picture_in(data)
        if not png.startswith(_SIGNATURE):
            talk = data[:300].decode("utf-8", "replace").strip()
            said = " ".join(talk.split())[:120].rstrip(".")
            raise self._truncated(f"is not a PNG picture but {len(data)} bytes{said and f': {said}'}", talk)
        if not png.endswith(_END):
            raise self._truncated(f"ends after {len(png)} bytes, in the middle", repr(png[-16:]))
        digest = hashlib.blake2b(png, digest_size=16).digest()
        if digest in self._passed:
            self._passed.move_to_end(digest)
        else:
            picture = self._picture(png)
            colours = picture.getcolors(1)
            if colours is not None:
                if colours[0][1] == _BLACK and is_secure():
                    return Frame(png, digest, picture.size)  # passes once: a display that is off looks alike
                raise self._blank(colours[0][1])
            self._passed[digest] = picture.size
            if len(self._passed) > _REMEMBERED:
                self._passed.popitem(last=False)
        return Frame(png, digest, self._passed[digest])

    def _picture(self, png: bytes) -> Image.Image:
        try:
            return _decode(png)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            what = f"of {len(png)} bytes cannot be decoded ({error})"
            raise self._truncated(what, repr(png[:64])) from error

    def _blank(self, colour: object) -> BlankFrame:
        return BlankFrame(
            f"its screenshot is of one colour, {colour}.",
            "Wake the screen; an emulator that stays blank needs a restart.",
            serial=self._serial,
        )

    def _truncated(self, what: str, evidence: str) -> FrameTruncated:
        return FrameTruncated(
            f"its screenshot {what}.", "If it stays so, restart it.", serial=self._serial, evidence=evidence
        )


def picture_in(data: bytes) -> bytes:
    """What `screencap -p` printed without the warnings before the picture; as it is if there is no picture.

    A device with several displays, such as a foldable, warns that it shows one of them.
    """
    start = data.find(_SIGNATURE, 0, _MAX_TALK)
    return data[start:] if start > 0 else data


def _decode(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png), formats=["PNG"]).convert("RGB")
