"""Anti-aliased coverage masks (rounded boxes, rings, shadows, lines), cached, for colours to go through."""

from __future__ import annotations

import math
from functools import lru_cache

from PIL import Image, ImageChops, ImageDraw, ImageFilter

_AA = 4
"""Supersampling factor of curved edges."""


@lru_cache(maxsize=256)
def corner(radius: int, is_right: bool, is_lower: bool) -> Image.Image:
    """One quarter of a disc: the upper left one, or another."""
    if is_lower:
        return corner(radius, is_right, False).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    if is_right:
        return corner(radius, False, False).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    big = Image.new("L", (radius * _AA, radius * _AA), 0)
    ImageDraw.Draw(big).ellipse((0, 0, 2 * radius * _AA - 1, 2 * radius * _AA - 1), fill=255)
    return big.resize((radius, radius), Image.Resampling.BOX)


@lru_cache(maxsize=512)
def rounded(width: int, height: int, radius: int) -> Image.Image:
    """A box with quarter-circle corners."""
    mask = Image.new("L", (width, height), 255)
    radius = min(radius, width // 2, height // 2)
    if radius > 0:
        for x, is_right in ((0, False), (width - radius, True)):
            for y, is_lower in ((0, False), (height - radius, True)):
                mask.paste(corner(radius, is_right, is_lower), (x, y))
    return mask


@lru_cache(maxsize=256)
def outline(width: int, height: int, radius: int, stroke: int) -> Image.Image:
    """The edge of a rounded box, `stroke` pixels wide, inside the bounds."""
    outer = rounded(width, height, radius)
    inner = Image.new("L", (width, height), 0)
    if width > 2 * stroke and height > 2 * stroke:
        hole = rounded(width - 2 * stroke, height - 2 * stroke, max(0, radius - stroke))
        inner.paste(hole, (stroke, stroke))
    return ImageChops.subtract(outer, inner)


@lru_cache(maxsize=128)
def shadow(width: int, height: int, radius: int, blur: int) -> Image.Image:
    """A soft shadow: the box blurred, on a canvas `2 * blur` larger on every side."""
    canvas = Image.new("L", (width + 4 * blur, height + 4 * blur), 0)
    canvas.paste(rounded(width, height, radius), (2 * blur, 2 * blur))
    return canvas.filter(ImageFilter.GaussianBlur(blur)).point(lambda v: v * 0.32)


@lru_cache(maxsize=256)
def hand(size: int, angle: float, length: float, stroke: float) -> Image.Image:
    """A line from the centre of a `size` square: `angle` in degrees clockwise from 12, lengths in pixels."""
    return polyline(
        size,
        size,
        (
            (size / 2, size / 2),
            (
                size / 2 + length * math.sin(math.radians(angle)),
                size / 2 - length * math.cos(math.radians(angle)),
            ),
        ),
        stroke,
    )


@lru_cache(maxsize=128)
def polyline(width: int, height: int, points: tuple[tuple[float, float], ...], stroke: float) -> Image.Image:
    """A line through `points` in pixels."""
    big = Image.new("L", (width * 2, height * 2), 0)
    draw = ImageDraw.Draw(big)
    doubled = [(x * 2, y * 2) for x, y in points]
    draw.line(doubled, fill=255, width=max(1, round(stroke * 2)), joint="curve")
    return big.resize((width, height), Image.Resampling.BOX)


@lru_cache(maxsize=512)
def polygon(width: int, height: int, points: tuple[tuple[float, float], ...]) -> Image.Image:
    """A filled polygon with `points` as fractions of the box."""
    big = Image.new("L", (width * _AA, height * _AA), 0)
    scaled = [(x * width * _AA, y * height * _AA) for x, y in points]
    ImageDraw.Draw(big).polygon(scaled, fill=255)
    return big.resize((width, height), Image.Resampling.BOX)


@lru_cache(maxsize=128)
def arc(size: int, start: float, end: float, stroke: float) -> Image.Image:
    """An arc on the edge of a `size` square, degrees clockwise from 12."""
    big = Image.new("L", (size * _AA, size * _AA), 0)
    if end > start:
        ImageDraw.Draw(big).arc(
            (0, 0, size * _AA - 1, size * _AA - 1), start - 90, end - 90, fill=255, width=round(stroke * _AA)
        )
    return big.resize((size, size), Image.Resampling.BOX)
