"""Painters for what boxes, text and icons cannot draw: wallpaper, clock hands, rings, product pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from distrl.simulator.phone import outlines, shapes
from distrl.simulator.phone.contrast import channels
from distrl.simulator.phone.nodes import Node

if TYPE_CHECKING:
    from distrl.simulator.phone.render import Clip, Painter


@lru_cache(maxsize=16)
def _wallpaper(width: int, height: int, colors: tuple[str, ...]) -> Image.Image:
    """A sky that fades from the first to the second colour, and hills in the others."""
    column = Image.new("RGB", (1, 2))
    column.putpixel((0, 0), channels(colors[0]))
    column.putpixel((0, 1), channels(colors[1]))
    sky = column.resize((width, height), Image.Resampling.BILINEAR, box=(0, 0.5, 1, 1.5))
    for index, color in enumerate(colors[2:]):
        sky.paste(channels(color), (0, 0), _hill(width, height, index))
    return sky


def _hill(width: int, height: int, index: int) -> Image.Image:
    """Coverage of hill `index`, nearer ones lower; drawn at twice the size for smooth ridges."""
    mask = Image.new("L", (2 * width, 2 * height), 0)
    base, swing, phase = 0.56 + 0.13 * index, 0.05 - 0.008 * index, 1.3 + 2.1 * index
    ridge = []
    for place in range(129):
        x = place / 128
        y = base + swing * math.sin(phase + 5.2 * x) + 0.02 * math.sin(2.3 * phase + 11 * x)
        ridge.append((2 * width * x, 2 * height * y))
    ImageDraw.Draw(mask).polygon([*ridge, (2 * width, 2 * height), (0, 2 * height)], fill=255)
    return mask.resize((width, height), Image.Resampling.BOX)


def _paint_wallpaper(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    colors = tuple(str(arg) for arg in node.art[1:])
    picture = _wallpaper(box[2] - box[0], box[3] - box[1], colors)
    painter.image.paste(picture, box[:2])


def _paint_hand(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    """A clock hand: `("hand", degrees, length in percent of the half width, stroke in dp)`."""
    size = box[2] - box[0]
    _, angle, length, stroke = node.art
    line = shapes.hand(size, float(angle), size * float(length) / 200, float(stroke) * painter.scale)
    painter.shape(line, box[0], box[1], node.color, clip)


def _paint_ring(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    """A ring of 10 dp: `("ring", degrees)`, clockwise from 12."""
    ring = shapes.arc(box[2] - box[0], 0, float(node.art[1]), 10 * painter.scale)
    painter.shape(ring, box[0], box[1], node.color, clip)


_SHOE = (
    (
        (0.06, 0.36),
        (0.2, 0.44),
        (0.34, 0.34),
        (0.42, 0.32),
        (0.6, 0.5),
        (0.86, 0.58),
        (0.95, 0.66),
        (0.95, 0.72),
        (0.05, 0.72),
    ),
    ((0.04, 0.74), (0.97, 0.74), (0.94, 0.82), (0.05, 0.82)),
)


def _paint_shoe(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    side = painter.px(node.icon_size)
    left, top = (box[0] + box[2] - side) // 2, (box[1] + box[3] - side) // 2
    for part in _SHOE:
        painter.shape(shapes.polygon(side, side, part), left, top, node.color, clip)


def _toned(color: str, tone: int) -> str:
    """`color` itself (0), a darker (-1) or a lighter one (1)."""
    mixed = [round(v + (255 - v) * 0.55 if tone > 0 else v * (1 + 0.3 * tone)) for v in channels(color)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _paint_outline(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    """`("outline", name)`: the polygons of `distrl.simulator.phone.outlines`, as large as an icon."""
    side = painter.px(node.icon_size)
    left, top = (box[0] + box[2] - side) // 2, (box[1] + box[3] - side) // 2
    for tone, part in outlines.OUTLINES[str(node.art[1])]:
        painter.shape(shapes.polygon(side, side, part), left, top, _toned(node.color, tone), clip)


_PAINTERS: dict[str, Callable[[Painter, Node, Clip, Clip], None]] = {
    "wallpaper": _paint_wallpaper,
    "hand": _paint_hand,
    "ring": _paint_ring,
    "shoe": _paint_shoe,
    "outline": _paint_outline,
}


def paint(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    """Runs the painter that `node.art` names."""
    _PAINTERS[str(node.art[0])](painter, node, box, clip)
