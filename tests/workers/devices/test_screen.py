"""Waiting for a still screen: what counts as still, what does not count, and that it ends."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from PIL import Image, ImageDraw

from distrl.core.errors import ConfigError
from distrl.simulator.device import SimDevice
from distrl.workers.devices.device import Screen
from distrl.workers.devices.errors import BlankFrame, FrameTruncated
from distrl.workers.devices.screen import (
    MAX_CHANGED,
    Frames,
    ScreenMark,
    Settle,
    is_still,
    mark_of,
    wait_settled,
)

WIDTH, HEIGHT = 100, 200
EXACT = Settle(tolerance=0.0, ignore=())


def picture(*boxes: tuple[int, int, int, int]) -> Image.Image:
    """White, with black boxes (left, top, right, bottom; all inside)."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    for left, top, right, bottom in boxes:
        ImageDraw.Draw(image).rectangle((left, top, right - 1, bottom - 1), fill="black")
    return image


class Clock:
    """A clock that only sleeping and looking move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Moving:
    """A device whose screen is what `show` says of the time; a look takes `look_s`."""

    def __init__(self, clock: Clock, show: Callable[[float], Image.Image], look_s: float = 0.05) -> None:
        self.clock, self.show, self.look_s, self.looks = clock, show, look_s, 0
        self.started = clock.now

    def screen(self) -> Screen:
        self.looks += 1
        shown = self.show(self.clock.now - self.started)
        self.clock.now += self.look_s
        return Screen.of(shown)


def wait(show: Callable[[float], Image.Image], options: Settle, look_s: float = 0.05):
    clock = Clock()
    device = Moving(clock, show, look_s)
    settled = wait_settled(device, options, clock=clock, sleep=clock.sleep)
    assert settled.seconds == pytest.approx(clock.now - 100.0)
    return settled, clock, device.looks


def test_it_returns_the_first_of_two_equal_frames_after_a_change() -> None:
    def slides(seconds: float) -> Image.Image:
        return picture((0, int(min(seconds, 0.6) * 100), 50, 190))

    settled, clock, _ = wait(slides, EXACT)
    assert 0.6 < settled.seconds < 1.2
    assert settled.screen.picture().tobytes() == slides(9.9).tobytes()
    assert clock.slept[0] == EXACT.first_s
    assert clock.slept[1] == pytest.approx(EXACT.poll_s - 0.05)  # looks begin poll_s apart


def test_it_ends_when_the_screen_never_stands_still() -> None:
    settled, _, _ = wait(lambda seconds: picture((0, int(seconds * 50) % 150, 50, 190)), EXACT)
    assert EXACT.max_s <= settled.seconds <= EXACT.max_s + 0.05
    _, clock, looks = wait(lambda seconds: picture((0, int(seconds * 50) % 150, 50, 190)), EXACT, look_s=2.0)
    assert (looks, clock.slept) == (2, [EXACT.first_s, 0.0])  # slow looks leave no pauses
    assert settled.screen.picture().size == (WIDTH, HEIGHT)


def test_something_else_may_be_looked_at_meanwhile() -> None:
    clock, looked = Clock(), []

    def meanwhile() -> None:
        clock.now += 0.1
        looked.append(clock.now)

    device = Moving(clock, lambda seconds: picture((0, int(min(seconds, 0.6) * 100), 50, 190)))
    settled = wait_settled(device, EXACT, meanwhile, clock, clock.sleep)
    assert settled.seconds < EXACT.max_s
    assert len(looked) == device.looks - 1 > 2
    assert clock.slept[1] == pytest.approx(EXACT.poll_s - 0.15)
    endless = Moving(clock, lambda seconds: picture((0, int(seconds * 50) % 150, 50, 190)))
    settled = wait_settled(endless, EXACT, meanwhile, clock, clock.sleep)
    assert EXACT.max_s <= settled.seconds <= EXACT.max_s + 0.15


def test_equal_keys_say_enough() -> None:
    def undrawn() -> Image.Image:
        raise AssertionError("equal keys need no picture")

    class Keyed(Moving):
        def screen(self) -> Screen:
            return Screen(undrawn, ("png", b"digest"))

    clock = Clock()
    settled = wait_settled(Keyed(clock, lambda seconds: picture()), Settle(), clock=clock, sleep=clock.sleep)
    assert (len(clock.slept), settled.screen.key) == (2, ("png", b"digest"))


def test_a_simulated_phone_is_still_at_once_and_so_is_all_without_waiting() -> None:
    _, slept, looks = wait(lambda seconds: picture(), Settle(mode="none"), look_s=0.0)
    assert (looks, slept.slept) == (1, [])
    clock = Clock()
    device = SimDevice()
    settled = wait_settled(device, Settle(), clock=clock, sleep=clock.sleep)
    assert (settled.seconds, clock.slept) == (0.0, [])
    assert settled.screen.picture().size == device.size


def test_the_clock_in_the_status_bar_does_not_count() -> None:
    first, second = picture((80, 2, 90, 7)), picture((82, 2, 92, 7))
    assert is_still(first, second, Settle(tolerance=0.0))
    assert not is_still(first, second, EXACT)
    assert not is_still(first, first.transpose(Image.Transpose.ROTATE_90), Settle(tolerance=1.0))


def test_a_blinking_caret_does_not_count_and_more_does() -> None:
    caret, word = picture((50, 100, 51, 108)), picture((50, 100, 60, 108))
    options = Settle(tolerance=0.0004, ignore=())  # 8 of 20000 pixels
    assert is_still(picture(), caret, options)
    assert not is_still(picture(), word, options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max": 1}, r"settle\.max`: "),
        ({"max_s": 0}, r"settle\.max_s` is"),
        ({"mode": "idle"}, r"settle\.mode` is"),
        ({"ignore": [[0, 0, 2, 1]]}, r"settle\.ignore\.0\.2` is"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settle.of(fields)


def screen(clock: str = "9:00", date: str = "Tue, Jun 3", page: str = "home", size=(270, 600)) -> ScreenMark:
    image = Image.new("RGB", size, "#205080")
    draw = ImageDraw.Draw(image)
    draw.text((20, 4), clock, "white", font_size=12)
    draw.text((60, 200), date, "white", font_size=12)
    if page == "settings":
        image.paste("white", (0, 60, *size))
    return mark_of(image)


def test_a_date_changes_little_and_another_page_much() -> None:
    assert screen("9:00") == screen("12:34")  # the status bar is left out
    assert screen().changed(screen(size=(300, 600))) == 1.0
    assert screen() != screen(date="Wed, Jun 4")
    assert screen().changed(screen(date="Wed, Jun 4")) < MAX_CHANGED
    assert screen().changed(screen(page="settings")) > 0.5


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def shot(mode: str = "RGB") -> bytes:
    return png(Image.linear_gradient("L").resize((90, 200)).convert(mode))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_a_whole_picture_passes_also_behind_a_warning(mode: str) -> None:
    warning = b"[Warning] Multiple displays were found, but no display id was specified!\n"
    frames = Frames()
    first, second = frames.judge(shot(mode)), frames.judge(warning + shot(mode))
    assert (first.size, first.picture().mode) == ((90, 200), "RGB")
    assert first.screen().key == second.screen().key
    first.picture().putpixel((0, 0), (1, 2, 3))  # it belongs to who asks
    assert first.picture().tobytes() == second.picture().tobytes()
    assert frames.judge(png(picture((1, 1, 2, 2)))).screen().key != first.screen().key


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2] + data[-12:],
        lambda data: data[:60] + bytes(40) + data[100:],
        lambda data: data[:8] + b"\r" + data[8:],
        lambda data: b"screencap: not found",
    ],
)
def test_what_is_no_whole_picture_does_not_pass(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(FrameTruncated, match="phone: its screenshot"):
        Frames("phone").judge(spoil(shot()))


@pytest.mark.parametrize("colour", [(0, 0, 0), (12, 34, 56)])
def test_a_picture_of_one_colour_does_not_pass(colour: tuple[int, int, int]) -> None:
    frames, image = Frames("phone"), Image.new("RGB", (90, 200), colour)
    for _ in range(2):  # nor when it comes again
        with pytest.raises(BlankFrame, match="phone: its screenshot is of one colour"):
            frames.judge(png(image))
    image.putpixel((89, 199), (1, 1, 1))
    assert frames.judge(png(image)).size == (90, 200)
