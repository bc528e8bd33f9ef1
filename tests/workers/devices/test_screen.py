"""Waiting for a still screen: what counts as still, what does not count, and that it ends."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from PIL import Image, ImageDraw

from distrl.simulator.device import SimDevice
from distrl.workers.devices.device import Screen
from distrl.workers.devices.screen import (
    Frames,
    Settle,
    Settled,
    is_still,
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


def wait(device: Moving, options: Settle, meanwhile: Callable[[], object] = lambda: None) -> Settled:
    settled = wait_settled(device, options, meanwhile, device.clock, device.clock.sleep)
    assert settled.seconds == pytest.approx(device.clock.now - 100.0)
    return settled


def slides(seconds: float) -> Image.Image:
    return picture((0, int(min(seconds, 0.6) * 100), 50, 190))


def test_it_returns_the_first_of_two_equal_frames_after_a_change() -> None:
    device, looked = Moving(Clock(), slides), []

    def meanwhile() -> None:
        device.clock.now += 0.04
        looked.append(device.clock.now)

    settled = wait(device, EXACT, meanwhile)
    assert 0.6 < settled.seconds < 1.2
    assert settled.screen.picture().tobytes() == slides(9.9).tobytes()
    assert device.clock.slept[0] == EXACT.first_s
    assert device.clock.slept[1] == pytest.approx(EXACT.poll_s - 0.09)  # looks begin poll_s apart
    assert len(looked) == device.looks - 1


@pytest.mark.parametrize(("look_s", "looks"), [(0.05, None), (2.0, 2)])
def test_it_ends_when_the_screen_never_stands_still(look_s: float, looks: int | None) -> None:
    device = Moving(Clock(), lambda seconds: picture((0, int(seconds * 50) % 150, 50, 190)), look_s)
    settled = wait(device, EXACT)
    assert EXACT.max_s <= settled.seconds <= EXACT.max_s + 2 * look_s
    assert looks in (None, device.looks)
    assert settled.screen.picture().size == (WIDTH, HEIGHT)


def test_equal_keys_say_enough_and_a_simulated_phone_is_still_at_once() -> None:
    def undrawn() -> Image.Image:
        raise AssertionError("equal keys need no picture")

    class Keyed(Moving):
        def screen(self) -> Screen:
            return Screen(undrawn, ("png", b"digest"))

    device = Keyed(Clock(), lambda seconds: picture())
    assert wait_settled(device, Settle(), clock=device.clock, sleep=device.clock.sleep).screen.key
    assert len(device.clock.slept) == 2
    device.clock.slept.clear()
    for still, options in ((SimDevice(), Settle()), (device, Settle(mode="none"))):
        settled = wait_settled(still, options, clock=device.clock, sleep=device.clock.sleep)
        assert (settled.seconds, device.clock.slept) == (0.0, [])


def test_the_status_bar_and_a_blinking_caret_do_not_count_and_more_does() -> None:
    first, second = picture((80, 2, 90, 7)), picture((82, 2, 92, 7))
    assert is_still(first, second, Settle(tolerance=0.0))
    assert not is_still(first, second, EXACT)
    assert not is_still(first, first.transpose(Image.Transpose.ROTATE_90), Settle(tolerance=1.0))
    caret, word = picture((50, 100, 51, 108)), picture((50, 100, 60, 108))
    options = Settle(tolerance=0.0004, ignore=())  # 8 of 20000 pixels
    assert is_still(picture(), caret, options)
    assert not is_still(picture(), word, options)


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
