"""The phone's screen in the formats and sizes that gRPC clients ask for."""

from __future__ import annotations

from PIL import Image

from distrl.simulator.adb.android import AndroidSystem

MAX_SIDE = 8192
"""Longest side of a picture, in pixels."""


def fitted(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """The size of the picture, as the emulator computes it.

    Args:
        size: The screen's width and height.
        width, height: What is asked for; the screen's own size if one of them is 0.

    Returns:
        The largest size of the screen's shape within `width` and `height`.
    """
    if not width or not height:
        return size
    shape = size[0] / size[1]
    if width / height > shape:
        return max(1, int(height * shape)), height
    return width, max(1, int(width / shape))


def screen(system: AndroidSystem, kind: str, size: tuple[int, int]) -> bytes:
    """The screen's pixels, row by row from the top, or a PNG file of them.

    Args:
        system: The phone.
        kind: "PNG", "RGB888" or "RGBA8888".
        size: Width and height of the picture.
    """
    is_scaled = size != system.device.size
    if kind == "PNG" and not is_scaled:
        return system.screenshot_png()
    picture = system.screenshot()
    if is_scaled:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    if kind == "PNG":
        return system.encode_png(picture)
    return picture.convert("RGBA" if kind == "RGBA8888" else "RGB").tobytes()
