"""The service `framebuffer:`: the screen as raw pixels after a header of 13 words (its first version)."""

from __future__ import annotations

import struct

from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.android import AndroidSystem

_VERSION = 1
_BITS = 32
_RED, _GREEN, _BLUE, _ALPHA = (0, 8), (8, 8), (16, 8), (24, 8)
"""Offset and length of each channel, in bits: bytes in the order red, green, blue, alpha."""


async def serve(system: AndroidSystem, stream: Stream) -> None:
    """Sends one picture."""
    image = system.screenshot().convert("RGBA")
    width, height = image.size
    size = width * height * _BITS // 8
    header = struct.pack("<13I", _VERSION, _BITS, size, width, height, *_RED, *_BLUE, *_GREEN, *_ALPHA)
    await stream.write(header)
    await stream.write(image.tobytes())
