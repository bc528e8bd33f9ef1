"""Screenshots on a page: never larger than needed, marks where the finger was."""

from __future__ import annotations

import base64
import io
import re

import pytest
from episode_factory import screen
from PIL import Image

from distrl.core.actions import ActionKind
from distrl.core.types import ActionRecord
from distrl.evaluator.report.episodes import Picture, describe, mark, picture


def decoded(shot: Picture) -> Image.Image:
    data = base64.b64decode(shot.uri.removeprefix("data:image/jpeg;base64,"))
    return Image.open(io.BytesIO(data))


def test_large_screenshots_shrink_and_small_ones_stay() -> None:
    assert decoded(picture(screen(0, (540, 1200)), 540, 1200, 270)).size == (270, 600)
    assert decoded(picture(screen(0, (160, 210)), 160, 210, 270)).size == (160, 210)


@pytest.mark.parametrize("data", [None, b"no image"])
def test_missing_and_damaged_bytes_leave_an_empty_frame(data: bytes | None) -> None:
    shot = picture(data, 540, 1200, 270)
    assert shot.uri == ""
    assert shot.height / shot.width == pytest.approx(1200 / 540)


def test_a_tap_is_marked_in_the_units_of_the_overlay() -> None:
    shot = Picture("", 100.0, 200.0)
    made = mark(ActionRecord(kind="tap", point=(0.25, 0.5)), shot)
    assert (made.kind, made.x, made.y) == ("tap", 25.0, 100.0)


def test_an_arrow_ends_where_the_swipe_ends() -> None:
    made = mark(ActionRecord(kind="swipe", point=(0.5, 0.9), to=(0.5, 0.1)), Picture("", 100.0, 200.0))
    assert made.arrow.startswith("M50.0 180.0L50.0 20.0")
    assert len(re.findall("M50.0 20.0L", made.arrow)) == 2


@pytest.mark.parametrize("kind", [kind.value for kind in ActionKind])
def test_every_action_has_words(kind: str) -> None:
    action = ActionRecord(kind=kind, point=(0.1, 0.2), to=(0.1, 0.8), text="hello")
    words = describe(action)
    assert words
    assert words[0].isupper()
    if kind == "type":
        assert "hello" in words
    if kind == "swipe":
        assert words == "Swipe down"
