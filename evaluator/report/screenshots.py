"""Screenshots for a page: scaled down, as data URIs, and what the agent's finger did on them."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from distrl.core.actions import ActionKind
from distrl.core.types import ActionRecord

_QUALITY = 72


@dataclass(frozen=True)
class Mark:
    """What to draw over a screenshot, in the coordinates of a box `width` × `height` units.

    Attributes:
        kind: "tap", "long_press", "swipe" or "" (nothing).
        x, y: Where the finger goes down.
        arrow: SVG path data of a swipe's shaft and head.
    """

    kind: str = ""
    x: float = 0.0
    y: float = 0.0
    arrow: str = ""


@dataclass(frozen=True)
class Picture:
    """A screenshot as it is embedded.

    Attributes:
        uri: "data:image/jpeg;base64,…", or "" when the bytes are missing or damaged.
        width, height: Its shape in units for the overlay; the overlay's width is always 100.
    """

    uri: str
    width: float
    height: float


def picture(data: bytes | None, width: int, height: int, max_width: int) -> Picture:
    """Embeds an encoded image, never wider than `max_width` pixels.

    Args:
        data: The encoded bytes, None if they are not at hand.
        width, height: The size that the observation recorded; it shapes the box when there are no bytes.
        max_width: Pixels.
    """
    units = 100.0 * height / max(1, width)
    if data is None:
        return Picture("", 100.0, units)
    try:
        with Image.open(io.BytesIO(data)) as image:
            shrunk = image.convert("RGB")
    except (UnidentifiedImageError, OSError):
        return Picture("", 100.0, units)
    if shrunk.width > max_width:
        size = (max_width, max(1, round(shrunk.height * max_width / shrunk.width)))
        shrunk = shrunk.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shrunk.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Picture(f"data:image/jpeg;base64,{encoded}", 100.0, units)


def mark(action: ActionRecord, shot: Picture) -> Mark:
    """The mark of `action` over `shot`."""
    if action.point is None or action.kind not in ("tap", "double_tap", "long_press", "swipe"):
        return Mark()
    x, y = action.point[0] * shot.width, action.point[1] * shot.height
    if action.kind != ActionKind.SWIPE.value or action.to is None:
        return Mark("tap" if action.kind == "double_tap" else action.kind, x, y)
    return Mark("swipe", x, y, _arrow(x, y, action.to[0] * shot.width, action.to[1] * shot.height))


def _arrow(x0: float, y0: float, x1: float, y1: float, head: float = 7.0) -> str:
    angle = math.atan2(y1 - y0, x1 - x0)
    path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    for turn in (math.pi * 5 / 6, -math.pi * 5 / 6):
        path += (
            f"M{x1:.1f} {y1:.1f}"
            f"L{x1 + head * math.cos(angle + turn):.1f} {y1 + head * math.sin(angle + turn):.1f}"
        )
    return path


def describe(action: ActionRecord) -> str:
    """What an action does, in a few words for people."""
    if action.kind == "tap":
        return f"Tap {_at(action.point)}"
    if action.kind == "double_tap":
        return f"Double tap {_at(action.point)}"
    if action.kind == "long_press":
        return f"Long press {_at(action.point)}"
    if action.kind == "swipe":
        return f"Swipe {_direction(action)}"
    if action.kind == "type":
        return f"Type “{action.text}”"
    if action.kind in ("open_app", "answer"):
        return f"{'Open' if action.kind == 'open_app' else 'Answer'} “{action.text}”"
    words = {
        "back": "Press Back",
        "home": "Press Home",
        "enter": "Press Enter",
        "wait": "Wait",
        "complete": "Says: done",
        "impossible": "Says: impossible",
        "invalid": "Not an action",
    }
    return words.get(action.kind, f"Unknown action “{action.kind}”")


def _at(point: tuple[float, float] | None) -> str:
    return "" if point is None else f"{100 * point[0]:.0f}%, {100 * point[1]:.0f}%"


def _direction(action: ActionRecord) -> str:
    if action.point is None or action.to is None:
        return ""
    dx, dy = action.to[0] - action.point[0], action.to[1] - action.point[1]
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "down" if dy > 0 else "up"
