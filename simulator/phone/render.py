"""Screen tree → picture. Pictures are cached by tree, so that seeing a screen again costs a copy."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from PIL import Image, ImageColor, ImageDraw

from distrl.simulator.phone import fonts, shapes
from distrl.simulator.phone.nodes import WIDTH, Node, intersect
from distrl.simulator.phone.theme import channels

Rgba = tuple[int, int, int, int]
Clip = tuple[int, int, int, int]
LINE_HEIGHT = 1.36
"""Line height of wrapped text in em."""


@lru_cache(maxsize=1024)
def rgba(color: str) -> Rgba:
    """A colour string as red, green, blue, alpha."""
    value = ImageColor.getcolor(color, "RGBA")
    assert isinstance(value, tuple)
    return (value[0], value[1], value[2], value[3])


class Painter:
    """Draws one tree onto one picture."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height))
        # A picture is a hundred pastes: `Image.paste` costs more than most of them, what it calls does not.
        self._paste = self.image.im.paste
        self.scale = width / WIDTH

    def px(self, dp: float) -> int:
        """A length in whole pixels."""
        return round(dp * self.scale)

    def stamp(self, mask: Image.Image, x: int, y: int, color: str, clip: Clip) -> None:
        """Pastes `color` through `mask` at pixel (x, y), inside `clip`."""
        width, height = mask.size
        left, top, right, bottom = area = intersect((x, y, x + width, y + height), clip)
        if right <= left or bottom <= top:
            return
        if (right - left, bottom - top) != (width, height):
            mask = mask.crop((left - x, top - y, right - x, bottom - y))
        red, green, blue, alpha = rgba(color)
        if alpha < 255:
            mask = mask.point(lambda v: v * alpha // 255)
        self._paste((red, green, blue), area, mask.im)

    def node(self, node: Node, clip: Clip) -> None:
        """Draws a node, then its children."""
        left, top = self.px(node.x), self.px(node.y)
        right, bottom = self.px(node.x + node.w), self.px(node.y + node.h)
        inside = intersect((left, top, right, bottom), clip)
        if node.clip and (inside[2] <= inside[0] or inside[3] <= inside[1]):
            return
        if right > left and bottom > top:
            self._surface(node, (left, top, right, bottom), clip)
            if node.art:
                _PAINTERS[str(node.art[0])](self, node, (left, top, right, bottom), clip)
            if node.icon:
                self._icon(node, clip)
            if node.text:
                self._text(node, clip)
        for child in node.children:
            self.node(child, inside if node.clip else clip)

    def shape(self, shape: shapes.Shape, x: int, y: int, color: str, clip: Clip) -> None:
        """Paints `shape` at pixel (x, y), inside `clip`."""
        is_opaque = rgba(color)[3] == 255
        for (left, top, right, bottom), mask in shape:
            if mask is not None:
                self.stamp(mask, x + left, y + top, color, clip)
            elif is_opaque:
                self._fill((x + left, y + top, x + right, y + bottom), color, clip)
            else:
                self.stamp(Image.new("L", (right - left, bottom - top), 255), x + left, y + top, color, clip)

    def _surface(self, node: Node, box: Clip, clip: Clip) -> None:
        left, top, right, bottom = box
        width, height, radius = right - left, bottom - top, self.px(node.radius)
        if node.shadow:
            blur = max(1, self.px(node.shadow))
            soft = shapes.shadow(width, height, radius, blur)
            self.shape(soft, left - 2 * blur, top - 2 * blur + blur // 2, "#000000", clip)
        if node.fill:
            self.shape(shapes.rounded(width, height, radius), left, top, node.fill, clip)
        if node.border:
            stroke = max(1, self.px(1))
            self.shape(shapes.outline(width, height, radius, stroke), left, top, node.border, clip)

    def _fill(self, box: Clip, color: str, clip: Clip) -> None:
        area = intersect(box, clip)
        if area[2] > area[0] and area[3] > area[1]:
            self._paste(rgba(color)[:3], area)

    def _icon(self, node: Node, clip: Clip) -> None:
        size = self.px(node.icon_size)
        x = self.px(node.x + node.w / 2) - size // 2
        y = self.px(node.y + node.h / 2) - size // 2
        self.stamp(fonts.icon_mask(node.icon, size), x, y, node.color, clip)

    def _text(self, node: Node, clip: Clip) -> None:
        size, width = self.px(node.size), node.w * self.scale
        rows = fonts.wrap(node.text, node.bold, size, width + 1, node.lines)
        step = size * LINE_HEIGHT
        middle = (node.y + node.h / 2) * self.scale
        baseline = middle + fonts.CAP_HEIGHT * size / 2 - step * (len(rows) - 1) / 2
        if node.top:
            baseline = node.y * self.scale + size
        for row in rows:
            mask, ascent = fonts.text_mask(row, node.bold, size)
            spare = width - fonts.text_width(row, node.bold, size)
            shift = {"l": 0.0, "c": spare / 2, "r": spare}[node.align]
            x = round(node.x * self.scale + shift) - 1
            self.stamp(mask, x, round(baseline) - ascent, node.color, clip)
            baseline += step


def draw(tree: Node, width: int, height: int) -> Image.Image:
    """Renders `tree` afresh as an RGB picture of `width` by `height` pixels."""
    painter = Painter(width, height)
    painter.node(tree, (0, 0, width, height))
    return painter.image


class RenderCache:
    """The most recently seen pictures, shared by all phones of a process; fewer are kept above 540x1200."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._pictures: OrderedDict[tuple[Node, int, int], Image.Image] = OrderedDict()

    def picture(self, tree: Node, width: int, height: int) -> Image.Image:
        """The picture of `tree`; the caller owns the copy."""
        return self.shown(tree, width, height).copy()

    def shown(self, tree: Node, width: int, height: int) -> Image.Image:
        """The picture of `tree` as others see it too: not to be changed."""
        key = (tree, width, height)
        with self._lock:
            image = self._pictures.get(key)
            if image is not None:
                self._pictures.move_to_end(key)
        if image is None:
            image = draw(tree, width, height)
            with self._lock:
                self._pictures[key] = image
                room = max(1, min(self._capacity, self._capacity * 540 * 1200 // (width * height)))
                while len(self._pictures) > room:
                    self._pictures.popitem(last=False)
        return image


SHARED = RenderCache()
"""The cache that every simulated phone of this process uses."""


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


def _toned(color: str, tone: int) -> str:
    """`color` itself (0), a darker (-1) or a lighter one (1)."""
    mixed = [round(v + (255 - v) * 0.55 if tone > 0 else v * (1 + 0.3 * tone)) for v in channels(color)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _paint_outline(painter: Painter, node: Node, box: Clip, clip: Clip) -> None:
    """`("outline", name)`: the polygons of `distrl.simulator.phone.shapes`, as large as an icon."""
    side = painter.px(node.icon_size)
    left, top = (box[0] + box[2] - side) // 2, (box[1] + box[3] - side) // 2
    for tone, part in shapes.OUTLINES[str(node.art[-1])]:
        painter.shape(shapes.polygon(side, side, part), left, top, _toned(node.color, tone), clip)


_PAINTERS: dict[str, Callable[[Painter, Node, Clip, Clip], None]] = {
    "wallpaper": _paint_wallpaper,
    "hand": _paint_hand,
    "ring": _paint_ring,
    "shoe": _paint_outline,
    "outline": _paint_outline,
}
