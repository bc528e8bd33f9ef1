"""Screen tree → picture. Pictures are cached by tree, so that seeing a screen again costs a copy."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import lru_cache

from PIL import Image, ImageColor

from distrl.workers.simphone import art, fonts, shapes
from distrl.workers.simphone.nodes import WIDTH, Node, intersect

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
    """Draws one tree onto one picture.

    Args:
        width, height: Picture size in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height))
        self.scale = width / WIDTH

    def px(self, dp: float) -> int:
        """A length in whole pixels."""
        return round(dp * self.scale)

    def stamp(self, mask: Image.Image, x: int, y: int, color: str, clip: Clip) -> None:
        """Pastes `color` through `mask` at pixel (x, y), inside `clip`."""
        left, top = max(x, clip[0]), max(y, clip[1])
        right, bottom = min(x + mask.width, clip[2]), min(y + mask.height, clip[3])
        if right <= left or bottom <= top:
            return
        if (right - left, bottom - top) != mask.size:
            mask = mask.crop((left - x, top - y, right - x, bottom - y))
        red, green, blue, alpha = rgba(color)
        if alpha < 255:
            mask = mask.point(lambda v: v * alpha // 255)
        self.image.paste((red, green, blue), (left, top, right, bottom), mask)

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
                art.paint(self, node, (left, top, right, bottom), clip)
            if node.icon:
                self._icon(node, clip)
            if node.text:
                self._text(node, clip)
        for child in node.children:
            self.node(child, inside if node.clip else clip)

    def _surface(self, node: Node, box: Clip, clip: Clip) -> None:
        left, top, right, bottom = box
        width, height, radius = right - left, bottom - top, self.px(node.radius)
        if node.shadow:
            blur = max(1, self.px(node.shadow))
            soft = shapes.shadow(width, height, radius, blur)
            self.stamp(soft, left - 2 * blur, top - 2 * blur + blur // 2, "#000000", clip)
        if node.fill and not radius and len(node.fill) == 7:
            self._fill(box, node.fill, clip)
        elif node.fill:
            self._rounded(box, radius, node.fill, clip)
        if node.border:
            stroke = max(1, self.px(1))
            self.stamp(shapes.outline(width, height, radius, stroke), left, top, node.border, clip)

    def _fill(self, box: Clip, color: str, clip: Clip) -> None:
        area = intersect(box, clip)
        if area[2] > area[0] and area[3] > area[1]:
            self.image.paste(rgba(color)[:3], area)

    def _rounded(self, box: Clip, radius: int, color: str, clip: Clip) -> None:
        """A box with round corners. Only these go through a mask, which costs far more than a plain fill."""
        left, top, right, bottom = box
        radius = min(radius, (right - left) // 2, (bottom - top) // 2)
        if rgba(color)[3] < 255 or not radius:
            self.stamp(shapes.rounded(right - left, bottom - top, radius), left, top, color, clip)
            return
        upper, lower = top + radius, bottom - radius
        self._fill((left, upper, right, lower), color, clip)
        for at, edge in ((top, (top, upper)), (lower, (lower, bottom))):
            self._fill((left + radius, edge[0], right - radius, edge[1]), color, clip)
            for x, is_right in ((left, False), (right - radius, True)):
                self.stamp(shapes.corner(radius, is_right, at == lower), x, at, color, clip)

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
    """The most recently seen pictures, shared by all phones of a process.

    Args:
        capacity: Most pictures kept; at 540x1200 one takes 1.9 MB. The least recently used goes first.
    """

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
                while len(self._pictures) > self._capacity:
                    self._pictures.popitem(last=False)
        return image


SHARED = RenderCache()
"""The cache that every simulated phone of this process uses."""
