"""Marks of screens: equal for equal ones, near for near ones."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw

from distrl.workers.devices.errors import FrameTruncated
from distrl.workers.devices.screen import MAX_CHANGED, ScreenMark, mark_of


def screen(clock: str = "9:00", date: str = "Tue, Jun 3", page: str = "home", size=(270, 600)) -> ScreenMark:
    image = Image.new("RGB", size, "#205080")
    draw = ImageDraw.Draw(image)
    draw.text((20, 4), clock, "white", font_size=12)
    draw.text((60, 200), date, "white", font_size=12)
    if page == "settings":
        image.paste("white", (0, 60, *size))
    out = io.BytesIO()
    image.save(out, "PNG")
    return mark_of(out.getvalue())


def test_the_same_screen_has_the_same_mark() -> None:
    assert screen() == screen()
    assert screen().changed(screen()) == 0.0


def test_the_clock_in_the_status_bar_does_not_count() -> None:
    assert screen("9:00") == screen("12:34")


def test_a_date_changes_little_and_another_page_much() -> None:
    assert screen() != screen(date="Wed, Jun 4")
    assert screen().changed(screen(date="Wed, Jun 4")) < MAX_CHANGED
    assert screen().changed(screen(page="settings")) > 0.5


def test_another_size_is_another_screen() -> None:
    assert screen().changed(screen(size=(300, 600))) == 1.0


def test_what_is_no_picture_is_an_error() -> None:
    with pytest.raises(FrameTruncated, match="of 3 bytes is not a picture"):
        mark_of(b"abc")
