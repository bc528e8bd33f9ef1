"""Anti-aliased shapes (rounded boxes, rings, lines, outlines of products), cached, to paste colours through.

Pasting a colour through a mask is several times slower than filling a box, and most of a shape is covered
completely or not at all. So a shape is cut into boxes to fill and masks of its edges.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

Box = tuple[int, int, int, int]
Shape = tuple[tuple[Box, Image.Image | None], ...]
"""Boxes (left, top, right, bottom in pixels), each with its mask; None if the box is covered completely."""
_AA = 4
"""Supersampling factor of curved edges."""
_BAND = 32
"""Rows that are cut at once: fewer save masked pixels and cost more boxes."""
_NONE, _SOME, _ALL = range(3)


def _cut(mask: Image.Image) -> Shape:
    found: list[tuple[Box, Image.Image | None]] = []
    pixels, above = np.asarray(mask), dict[tuple[int, int], int]()
    for top in range(0, mask.height, _BAND):
        band = pixels[top : top + _BAND]
        kinds = np.where(band.min(axis=0) == 255, _ALL, np.where(band.max(axis=0) == 0, _NONE, _SOME))
        edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), mask.width]
        here: dict[tuple[int, int], int] = {}
        for left, right in pairwise(edges):
            if kinds[left] == _ALL:  # one box with what is right above
                here[left, right] = above.pop((left, right), top)
            elif kinds[left] == _SOME:
                box = (left, top, right, top + len(band))
                found.append((box, mask.crop(box)))
        found += [((left, start, right, top), None) for (left, right), start in above.items()]
        above = here
    found += [((left, start, right, mask.height), None) for (left, right), start in above.items()]
    return tuple(found)


@lru_cache(maxsize=256)
def _corner(radius: int, is_right: bool, is_lower: bool) -> Image.Image:
    if is_lower:
        return _corner(radius, is_right, False).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    if is_right:
        return _corner(radius, False, False).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    big = Image.new("L", (radius * _AA, radius * _AA), 0)
    ImageDraw.Draw(big).ellipse((0, 0, 2 * radius * _AA - 1, 2 * radius * _AA - 1), fill=255)
    return big.resize((radius, radius), Image.Resampling.BOX)


@lru_cache(maxsize=512)
def rounded(width: int, height: int, radius: int) -> Shape:
    """A box with quarter-circle corners."""
    if not radius:
        return (((0, 0, width, height), None),)
    return _cut(_box(width, height, radius))


def _box(width: int, height: int, radius: int) -> Image.Image:
    mask = Image.new("L", (width, height), 255)
    radius = min(radius, width // 2, height // 2)
    if radius > 0:
        for x, is_right in ((0, False), (width - radius, True)):
            for y, is_lower in ((0, False), (height - radius, True)):
                mask.paste(_corner(radius, is_right, is_lower), (x, y))
    return mask


@lru_cache(maxsize=256)
def outline(width: int, height: int, radius: int, stroke: int) -> Shape:
    """The edge of a rounded box, `stroke` pixels wide, inside the bounds."""
    outer = _box(width, height, radius)
    inner = Image.new("L", (width, height), 0)
    if width > 2 * stroke and height > 2 * stroke:
        hole = _box(width - 2 * stroke, height - 2 * stroke, max(0, radius - stroke))
        inner.paste(hole, (stroke, stroke))
    return _cut(ImageChops.subtract(outer, inner))


@lru_cache(maxsize=128)
def shadow(width: int, height: int, radius: int, blur: int) -> Shape:
    """A soft shadow: the box blurred, on a canvas `2 * blur` larger on every side."""
    canvas = Image.new("L", (width + 4 * blur, height + 4 * blur), 0)
    canvas.paste(_box(width, height, radius), (2 * blur, 2 * blur))
    return _cut(canvas.filter(ImageFilter.GaussianBlur(blur)).point(lambda v: v * 0.32))


@lru_cache(maxsize=256)
def hand(size: int, angle: float, length: float, stroke: float) -> Shape:
    """A line from the centre of a `size` square: `angle` in degrees clockwise from 12, lengths in pixels."""
    big, turned = Image.new("L", (size * 2, size * 2), 0), math.radians(angle)
    end = (size / 2 + length * math.sin(turned), size / 2 - length * math.cos(turned))
    ends = [(size, size), (end[0] * 2, end[1] * 2)]
    ImageDraw.Draw(big).line(ends, fill=255, width=max(1, round(stroke * 2)), joint="curve")
    return _cut(big.resize((size, size), Image.Resampling.BOX))


@lru_cache(maxsize=512)
def polygon(width: int, height: int, points: tuple[tuple[float, float], ...]) -> Shape:
    """A filled polygon with `points` as fractions of the box."""
    big = Image.new("L", (width * _AA, height * _AA), 0)
    scaled = [(x * width * _AA, y * height * _AA) for x, y in points]
    ImageDraw.Draw(big).polygon(scaled, fill=255)
    return _cut(big.resize((width, height), Image.Resampling.BOX))


@lru_cache(maxsize=128)
def arc(size: int, start: float, end: float, stroke: float) -> Shape:
    """An arc on the edge of a `size` square, degrees clockwise from 12."""
    big = Image.new("L", (size * _AA, size * _AA), 0)
    if end > start:
        ImageDraw.Draw(big).arc(
            (0, 0, size * _AA - 1, size * _AA - 1), start - 90, end - 90, fill=255, width=round(stroke * _AA)
        )
    return _cut(big.resize((size, size), Image.Resampling.BOX))


Points = tuple[tuple[float, float], ...]
Part = tuple[int, Points]
"""A tone (0 the colour itself, -1 darker, 1 lighter) and a polygon."""


def _mirrored(*half: tuple[float, float]) -> Points:
    """The polygon whose left half, from top to bottom, is `half`."""
    return (*half, *((1 - x, y) for x, y in reversed(half)))


_SHOE = (
    *((0.06, 0.36), (0.2, 0.44), (0.34, 0.34), (0.42, 0.32), (0.6, 0.5)),
    *((0.86, 0.58), (0.95, 0.66), (0.95, 0.72), (0.05, 0.72)),
)
OUTLINES: dict[str, tuple[Part, ...]] = {
    "shoe": ((0, _SHOE), (0, ((0.04, 0.74), (0.97, 0.74), (0.94, 0.82), (0.05, 0.82)))),
    "tshirt": (
        (0, _mirrored((0.42, 0.16), (0.3, 0.14), (0.06, 0.3), (0.14, 0.48), (0.26, 0.42), (0.26, 0.88))),
        (-1, _mirrored((0.42, 0.16), (0.45, 0.23), (0.5, 0.25))),
        (1, _mirrored((0.36, 0.46), (0.36, 0.54))),
    ),
    "jacket": (
        (
            0,
            _mirrored(
                (0.4, 0.12), (0.3, 0.14), (0.1, 0.26), (0.06, 0.8), (0.2, 0.82), (0.26, 0.44), (0.26, 0.88)
            ),
        ),
        (-1, ((0.485, 0.2), (0.515, 0.2), (0.515, 0.88), (0.485, 0.88))),
        (-1, _mirrored((0.4, 0.12), (0.44, 0.3), (0.5, 0.2))),
        (1, ((0.32, 0.62), (0.42, 0.62), (0.42, 0.66), (0.32, 0.66))),
        (1, ((0.58, 0.62), (0.68, 0.62), (0.68, 0.66), (0.58, 0.66))),
    ),
    "dress": (
        (0, _mirrored((0.4, 0.08), (0.34, 0.08), (0.3, 0.26), (0.38, 0.44), (0.18, 0.92))),
        (-1, _mirrored((0.385, 0.42), (0.37, 0.48))),
        (-1, _mirrored((0.4, 0.08), (0.45, 0.2), (0.5, 0.22))),
    ),
    "skirt": (
        (0, _mirrored((0.34, 0.24), (0.14, 0.84))),
        (-1, _mirrored((0.34, 0.18), (0.34, 0.27))),
        (-1, ((0.4, 0.3), (0.42, 0.3), (0.37, 0.84), (0.33, 0.84))),
        (-1, ((0.58, 0.3), (0.6, 0.3), (0.67, 0.84), (0.63, 0.84))),
    ),
    "trousers": (
        (0, _mirrored((0.28, 0.1), (0.22, 0.92), (0.42, 0.92), (0.5, 0.36))),
        (-1, _mirrored((0.28, 0.1), (0.275, 0.18))),
        (-1, ((0.49, 0.18), (0.51, 0.18), (0.51, 0.38), (0.49, 0.38))),
    ),
    "scarf": (
        (0, ((0.2, 0.16), (0.8, 0.16), (0.8, 0.34), (0.2, 0.34))),
        (-1, ((0.54, 0.3), (0.76, 0.3), (0.84, 0.86), (0.62, 0.88))),
        (0, ((0.26, 0.3), (0.48, 0.3), (0.46, 0.84), (0.24, 0.84))),
        (1, ((0.255, 0.66), (0.465, 0.66), (0.463, 0.72), (0.25, 0.72))),
    ),
    "hat": (
        (0, _mirrored((0.36, 0.26), (0.28, 0.62))),
        (-1, _mirrored((0.29, 0.54), (0.28, 0.64))),
        (0, _mirrored((0.08, 0.66), (0.14, 0.74), (0.5, 0.78))),
        (0, _mirrored((0.28, 0.6), (0.08, 0.67))),
    ),
    "sunglasses": (
        (0, ((0.06, 0.36), (0.46, 0.36), (0.44, 0.56), (0.36, 0.64), (0.18, 0.64), (0.09, 0.56))),
        (0, ((0.54, 0.36), (0.94, 0.36), (0.91, 0.56), (0.82, 0.64), (0.64, 0.64), (0.56, 0.56))),
        (0, ((0.44, 0.38), (0.56, 0.38), (0.56, 0.44), (0.44, 0.44))),
        (1, ((0.14, 0.41), (0.28, 0.41), (0.2, 0.56))),
        (1, ((0.62, 0.41), (0.76, 0.41), (0.68, 0.56))),
    ),
    "boots": (
        (0, ((0.28, 0.1), (0.6, 0.1), (0.58, 0.52), (0.84, 0.62), (0.92, 0.72), (0.92, 0.8), (0.26, 0.8))),
        (-1, ((0.24, 0.8), (0.94, 0.8), (0.94, 0.88), (0.56, 0.88), (0.52, 0.84), (0.46, 0.9), (0.24, 0.9))),
        (-1, ((0.28, 0.1), (0.6, 0.1), (0.597, 0.18), (0.278, 0.18))),
        (1, ((0.5, 0.26), (0.59, 0.26), (0.588, 0.3), (0.5, 0.3))),
        (1, ((0.5, 0.38), (0.583, 0.38), (0.581, 0.42), (0.5, 0.42))),
    ),
    "sneakers": (
        (
            0,
            (
                (0.06, 0.34),
                (0.2, 0.42),
                (0.36, 0.3),
                (0.44, 0.3),
                (0.62, 0.5),
                (0.88, 0.58),
                (0.96, 0.7),
                (0.05, 0.7),
            ),
        ),
        (1, ((0.04, 0.71), (0.97, 0.71), (0.95, 0.82), (0.05, 0.82))),
        (-1, ((0.06, 0.34), (0.2, 0.42), (0.16, 0.7), (0.05, 0.7))),
        (1, ((0.44, 0.42), (0.5, 0.38), (0.53, 0.41), (0.47, 0.46))),
        (1, ((0.51, 0.49), (0.57, 0.45), (0.6, 0.48), (0.54, 0.53))),
    ),
    "tent": (
        (0, ((0.5, 0.14), (0.96, 0.84), (0.04, 0.84))),
        (-1, ((0.5, 0.14), (0.66, 0.84), (0.34, 0.84))),
        (1, ((0.5, 0.42), (0.57, 0.84), (0.43, 0.84))),
    ),
    "pan": (
        (0, ((0.06, 0.46), (0.62, 0.46), (0.56, 0.72), (0.12, 0.72))),
        (-1, ((0.62, 0.47), (0.97, 0.4), (0.98, 0.48), (0.61, 0.56))),
        (1, ((0.04, 0.42), (0.64, 0.42), (0.64, 0.47), (0.04, 0.47))),
    ),
    "cushion": (
        (0, _mirrored((0.5, 0.22), (0.12, 0.14), (0.18, 0.5), (0.12, 0.86), (0.5, 0.78))),
        (1, _mirrored((0.5, 0.3), (0.34, 0.5), (0.5, 0.7))),
    ),
    "rug": (
        (0, ((0.2, 0.26), (0.8, 0.26), (0.96, 0.76), (0.04, 0.76))),
        (1, ((0.25, 0.33), (0.75, 0.33), (0.86, 0.69), (0.14, 0.69))),
        (0, ((0.31, 0.41), (0.69, 0.41), (0.75, 0.61), (0.25, 0.61))),
    ),
    "bottle": (
        (0, _mirrored((0.42, 0.24), (0.4, 0.34), (0.32, 0.44), (0.32, 0.9))),
        (-1, _mirrored((0.41, 0.1), (0.41, 0.23))),
        (1, _mirrored((0.32, 0.56), (0.32, 0.76))),
    ),
}
"""What a painter of `distrl.simulator.phone.render` draws for ("outline", name), and for ("shoe",)."""
