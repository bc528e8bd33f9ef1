"""An episode as one picture: its screens side by side, the touch on each, and how it ended."""

from __future__ import annotations

import io
from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from distrl.core.types import Fault, Trajectory

HEIGHT, MARGIN, LINE = 320, 4, 18
LEAST = 64
"""Pixels; smaller pictures stand for screens that were not drawn."""

MOST = 24  # screens: the first ones of a longer episode are left out
_TOUCH = (230, 30, 60)


def filmstrip(trajectory: Trajectory, images: Mapping[str, bytes]) -> Image.Image | None:
    """The picture of an episode with these screenshots by digest; None if they show nothing."""
    last = [(trajectory.final, None)] if trajectory.final else []
    seen = [*((step.observation, step.action) for step in trajectory.steps), *last][-MOST:]
    frames = []
    for screen, action in seen:
        if screen.image not in images:
            continue
        frame = Image.open(io.BytesIO(images[screen.image])).convert("RGB")
        if frame.width < LEAST:
            return None
        frame = frame.resize((max(1, frame.width * HEIGHT // frame.height), HEIGHT))
        pen = ImageDraw.Draw(frame)
        for point in (action.point, action.to) if action is not None else ():
            if point is not None:
                pen.circle((point[0] * frame.width, point[1] * HEIGHT), 8, outline=_TOUCH, width=3)
        frames.append(frame)
    if not frames:
        return None
    strip = Image.new("RGB", (sum(frame.width + MARGIN for frame in frames), HEIGHT + LINE + MARGIN), "white")
    left = 0
    for frame in frames:
        strip.paste(frame, (left, LINE + MARGIN))
        left += frame.width + MARGIN
    is_faulted = trajectory.fault is not Fault.NONE
    ending = f"{trajectory.fault.value} fault" if is_faulted else trajectory.outcome.value
    title = f"{ending}: {' '.join(trajectory.task.goal.split())}"
    ImageDraw.Draw(strip).text((MARGIN, 2), title, fill="black", font=ImageFont.load_default(13))
    return strip
