"""An episode as one picture: its screens side by side, the touch on each, and how it ended."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping

from PIL import Image, ImageDraw, ImageFont

from distrl.core.errors import NotStored
from distrl.core.model_points import MAX_PIXELS
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Fault, Trajectory

HEIGHT, MARGIN, LINE = 320, 4, 18
LEAST = 64
"""Pixels; smaller pictures stand for screens that were not drawn."""

MOST = 24  # screens: the first ones of a longer episode are left out
_TOUCH = (230, 30, 60)


def filmstrips(store: TrajectoryStore, ids: Iterable[str], name: str) -> dict[str, Image.Image]:
    """Pictures of stored episodes as `pictures/NAME-NUMBER`; none of those that were deleted to make room."""
    found = {}
    for number, one in enumerate(ids, 1):
        with contextlib.suppress(NotStored):
            episode = store.get(one)
            if strip := filmstrip(episode, store.images(episode.image_digests)):
                found[f"pictures/{name}-{number}"] = strip
    return found


def filmstrip(trajectory: Trajectory, images: Mapping[str, bytes]) -> Image.Image | None:
    """The picture of an episode with these screenshots by digest; None if none can be shown."""
    last = [(trajectory.final, None)] if trajectory.final else []
    seen = [*((step.observation, step.action) for step in trajectory.steps), *last][-MOST:]
    frames = [_frame(images.get(screen.image, b""), action) for screen, action in seen]
    shown = [frame for frame in frames if frame is not None]
    if not shown:
        return None
    strip = Image.new("RGB", (sum(frame.width + MARGIN for frame in shown), HEIGHT + LINE + MARGIN), "white")
    left = 0
    for frame in shown:
        strip.paste(frame, (left, LINE + MARGIN))
        left += frame.width + MARGIN
    is_faulted = trajectory.fault is not Fault.NONE
    ending = f"{trajectory.fault.value} fault" if is_faulted else trajectory.outcome.value
    title = f"{ending}: {' '.join(trajectory.task.goal.split())}"
    ImageDraw.Draw(strip).text((MARGIN, 2), title, fill="black", font=ImageFont.load_default(13))
    return strip


def _frame(data: bytes, action: ActionRecord | None) -> Image.Image | None:
    """A screen, `HEIGHT` high, with its touch; None if the bytes, which any worker sends, are not one."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            width, height = image.size
            if width < LEAST or width * height > MAX_PIXELS:
                return None
            wide = min(2 * HEIGHT, max(1, width * HEIGHT // height))
            frame: Image.Image = image.convert("RGB").resize((wide, HEIGHT))
    except (OSError, ValueError, SyntaxError, AssertionError, Image.DecompressionBombError):
        return None
    for point in (action.point, action.to) if action is not None else ():
        if point is not None:
            place = (point[0] * wide, point[1] * HEIGHT)
            ImageDraw.Draw(frame).circle(place, 8, outline=_TOUCH, width=3)
    return frame
