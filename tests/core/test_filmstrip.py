"""An episode as one picture shows each screen and where it was touched."""

from __future__ import annotations

import io

from PIL import Image
from policy_fakes import png_without_palette

from distrl.core.filmstrip import HEIGHT, filmstrip
from distrl.core.types import ActionRecord, Observation, Outcome, Task, TimeStep, Trajectory

TASK = Task(id="t/0", suite="t", template="t", split="val", goal="Turn on\nWi-Fi", max_steps=3)


def png(color: str, size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def episode(size: tuple[int, int]) -> tuple[Trajectory, dict[str, bytes]]:
    """Two screens, blue and then green, with a tap in the middle of the first one."""
    blue, green = (Observation(image=name, width=size[0], height=size[1]) for name in ("blue", "green"))
    step = TimeStep(observation=blue, chats=(), action=ActionRecord(kind="tap", point=(0.5, 0.5)), done=True)
    episode = Trajectory(id="e", task=TASK, steps=(step,), final=green, outcome=Outcome.SUCCESS)
    return episode, {name: png(name, size) for name in ("blue", "green")}


def test_screens_stand_side_by_side_with_the_touch_on_them() -> None:
    strip = filmstrip(*episode((100, 200)))
    assert strip is not None
    middle, width = strip.height - HEIGHT // 2, HEIGHT // 2
    row = [strip.getpixel((x, middle)) for x in range(strip.width)]
    assert row.count((0, 128, 0)) == width, "the last screen, which has no touch"
    touched = [x for x, color in enumerate(row) if color == (230, 30, 60)]
    assert min(touched) == width // 2 - 8
    assert max(touched) == width // 2 + 8
    assert row.count((0, 0, 255)) == width - len(touched)


def test_screens_that_were_not_drawn_are_not_shown() -> None:
    assert filmstrip(*episode((16, 32))) is None
    assert filmstrip(episode((100, 200))[0], {}) is None


def test_bytes_that_are_no_screenshot_cost_only_their_screen() -> None:
    one, images = episode((100, 200))
    strip = filmstrip(one, {**images, "blue": images["blue"][:60]})
    assert strip is not None
    assert strip.width < HEIGHT
    assert strip == filmstrip(one, {**images, "blue": png_without_palette((100, 200))})
    wide = filmstrip(one, {"green": png("green", (4000, 2))})
    assert wide is not None
    assert wide.width < 3 * HEIGHT
