"""The screen tree: what the picture, the uiautomator hierarchy and hit testing are all made from.

Coordinates are absolute, in dp: a screen is always 360 dp wide, whatever its size in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

WIDTH = 360.0
"""The width of every screen in dp."""
Arg = str | int
Event = tuple[Arg, ...]
"""What a tap does: ("app name", "verb", arguments...); plain data, so that trees compare and hash."""
Box = tuple[float, float, float, float]
"""left, top, right, bottom in dp."""
Number = TypeVar("Number", int, float)
Edges = tuple[Number, Number, Number, Number]
"""A `Box`, or one in whole pixels."""


@dataclass(frozen=True)
class Node:
    """One element of a screen.

    Attributes:
        x, y, w, h: Bounds in dp, from the screen's top left corner.
        cls, rid, desc: Android class (without package), resource id, content description.
        text: Shown inside the bounds and reported in the hierarchy.
        value: Text that is reported in the hierarchy but painted by a child.
        tap, hold: The event of a tap and of a long press; a node with `tap` is clickable.
        swipe: The event of a swipe that throws the node off the screen.
        field: The key of the text field that a tap focuses, "" for none.
        checked: The state of a checkable node, None when it is not checkable.
        focused: Whether it has the input focus.
        scroll: The key of the scroll offset that a swipe changes, "" when it does not scroll.
        extent, offset: The largest and the present scroll offset in dp.
        fill, border: Colours "#rrggbb" or "#rrggbbaa"; "" for none. A filled node hides others from taps.
        radius: Corner radius in dp.
        shadow: Elevation in dp.
        size, bold, color, align, lines: The text's size in dp, weight, colour, "l" | "c" | "r", lines.
        top: Whether the text starts at the top of the bounds instead of in their middle.
        icon: Name of a Material icon drawn centred, `icon_size` dp high, in `color`.
        art: Name and arguments of a painter in `distrl.simulator.phone.render`.
        clip: Whether children are cut off at the bounds.
        children: Painted in order, later ones on top.
    """

    x: float
    y: float
    w: float
    h: float
    cls: str = "view.View"
    rid: str = ""
    text: str = ""
    value: str = ""
    desc: str = ""
    tap: Event = ()
    hold: Event = ()
    swipe: Event = ()
    field: str = ""
    checked: bool | None = None
    focused: bool = False
    scroll: str = ""
    extent: float = 0.0
    offset: float = 0.0
    fill: str = ""
    border: str = ""
    radius: float = 0.0
    shadow: float = 0.0
    size: float = 14.0
    bold: bool = False
    color: str = "#000000"
    align: str = "l"
    lines: int = 1
    top: bool = False
    icon: str = ""
    icon_size: float = 24.0
    art: Event = ()
    clip: bool = False
    children: tuple[Node, ...] = ()

    @property
    def box(self) -> Box:
        """Left, top, right, bottom in dp."""
        return (self.x, self.y, self.x + self.w, self.y + self.h)

    @property
    def clickable(self) -> bool:
        """Whether a tap here does something."""
        return bool(self.tap or self.field)

    def contains(self, x: float, y: float) -> bool:
        """Whether the point lies inside."""
        return self.x <= x < self.x + self.w and self.y <= y < self.y + self.h

    def with_children(self, *children: Node) -> Node:
        """The same node with other children."""
        return replace(self, children=children)


def group(
    x: float,
    y: float,
    w: float,
    h: float,
    rid: str = "",
    children: Iterable[Node] = (),
    desc: str = "",
    tap: Event = (),
    fill: str = "",
    radius: float = 0.0,
    **more: Any,
) -> Node:
    """A view group: a row, a card, a bar or another surface with `children` on it."""
    look = {"cls": "view.ViewGroup", "fill": fill, "radius": radius, "children": tuple(children), **more}
    return Node(x, y, w, h, rid=rid, desc=desc, tap=tap, **look)


def image(
    x: float,
    y: float,
    w: float,
    h: float,
    icon: str = "",
    size: float = 24.0,
    color: str = "#000000",
    fill: str = "",
    radius: float = 0.0,
    **more: Any,
) -> Node:
    """A picture: a Material icon `size` dp high in the middle of a surface."""
    look = {"icon": icon, "icon_size": size, "color": color, "fill": fill, "radius": radius}
    return Node(x, y, w, h, **{"cls": "widget.ImageView", **look, **more})


def icon_button(
    x: float,
    y: float,
    d: float,
    icon: str,
    desc: str,
    tap: Event,
    rid: str,
    color: str,
    fill: str = "",
    size: float = 24.0,
    **more: Any,
) -> Node:
    """A button with an icon, `d` dp wide and high; round where it is filled."""
    look = {"icon": icon, "icon_size": size, "color": color, "fill": fill, "radius": d / 2 if fill else 0.0}
    return Node(x, y, d, d, "widget.ImageButton", rid, desc=desc, tap=tap, **{**look, **more})


def text_box(
    x: float,
    y: float,
    w: float,
    h: float,
    text: str = "",
    size: float = 14.0,
    color: str = "#000000",
    fill: str = "",
    radius: float = 0.0,
    align: str = "c",
    **more: Any,
) -> Node:
    """A text in the middle of a surface, such as a badge or a key."""
    look = {"size": size, "color": color, "fill": fill, "radius": radius, "align": align}
    return Node(x, y, w, h, **{"cls": "widget.TextView", "text": text, **look, **more})


def button(
    x: float,
    y: float,
    w: float,
    h: float,
    text: str,
    tap: Event,
    rid: str,
    size: float,
    color: str,
    fill: str = "",
    radius: float = 0.0,
    border: str = "",
    cls: str = "widget.Button",
    **more: Any,
) -> Node:
    """A text to tap, in the middle of a surface: a button, a key or a chip."""
    look = {"size": size, "color": color, "fill": fill, "radius": radius, "border": border, "align": "c"}
    return Node(x, y, w, h, cls, rid, text, tap=tap, **{**look, **more})


def walk(node: Node) -> Iterator[Node]:
    """The node and all its descendants, in painting order."""
    yield node
    for child in node.children:
        yield from walk(child)


def intersect(a: Edges[Number], b: Edges[Number]) -> Edges[Number]:
    """The common part of two boxes (empty when right <= left or bottom <= top)."""
    return (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))


def visible(node: Node, clip: Box) -> Iterator[tuple[Node, Box]]:
    """Every node that shows, with the part of its bounds inside all clips above it."""
    box = intersect(node.box, clip)
    if box[2] <= box[0] or box[3] <= box[1]:
        return
    yield node, box
    for child in node.children:
        yield from visible(child, box if node.clip else clip)


def hit(node: Node, x: float, y: float, kind: str = "tap") -> Node | None:
    """The topmost node at (x, y) that takes a "tap", a "hold" (long press), a "swipe" or a "scroll".

    For a long press a node that takes only taps is found too: it is not meant for those below. A filled node
    stops the search below it: what it covers cannot be touched. As on Android, a toast takes no touches.
    """
    found, _ = _hit(node, x, y, kind)
    return found


def _takes(node: Node, kind: str) -> bool:
    return (kind in ("tap", "hold") and node.clickable) or (kind != "tap" and bool(getattr(node, kind)))


def _hit(node: Node, x: float, y: float, kind: str) -> tuple[Node | None, bool]:
    """The node found, and whether the search ends here."""
    inside = node.contains(x, y)
    if node.rid == "toast" or (node.clip and not inside):
        return None, False
    for child in reversed(node.children):
        found, blocked = _hit(child, x, y, kind)
        if found is not None:
            return found, True
        if blocked:
            return (node if inside and _takes(node, kind) else None), True
    if inside and _takes(node, kind):
        return node, True
    return None, inside and bool(node.fill)


def find(root: Node, rid: str) -> Node | None:
    """The first node with this resource id."""
    return next((n for n in walk(root) if n.rid == rid), None)
