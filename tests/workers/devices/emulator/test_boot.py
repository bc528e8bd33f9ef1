"""The four conditions of a boot, looked at through a client that answers as told."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from PIL import Image

from distrl.workers.devices.adb import ShellResult
from distrl.workers.devices.emulator import BootWait
from distrl.workers.devices.errors import BootTimeout, DeviceNotFound, DeviceTimeout, EmulatorExited


def png(*colours: str) -> bytes:
    image = Image.new("RGB", (4, len(colours)))
    for row, colour in enumerate(colours):
        image.paste(Image.new("RGB", (4, 1), colour), (0, row))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@dataclass
class Phone:
    """What a phone shows from which second on; each call takes a tenth of one.

    Attributes:
        answers: For each question the answers by second; an exception is raised.
        asked: The questions, with their timeouts.
    """

    answers: dict[str, list[tuple[float, object]]]
    now: float = 0.0
    asked: list[tuple[str, float]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, question: str, timeout_s: float) -> object:
        self.asked.append((question, timeout_s))
        self.now += 0.1
        answer = [said for second, said in self.answers[question] if second <= self.now][-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def state(self, timeout_s: float = 2.0) -> str:
        return str(self.ask("state", timeout_s))

    def shell(self, command: str, timeout_s: float) -> ShellResult:
        return ShellResult(str(self.ask(command, timeout_s)).encode(), b"", 0)

    def exec_out(self, command: str, timeout_s: float) -> bytes:
        answer = self.ask(command, timeout_s)
        assert isinstance(answer, bytes)
        return answer


def phone(**changes: list[tuple[float, object]]) -> Phone:
    """A phone that boots in twenty seconds."""
    names = {
        "state": "state",
        "booted": "getprop sys.boot_completed",
        "animation": "getprop init.svc.bootanim",
        "size": "wm size",
        "picture": "screencap -p",
    }
    answers: dict[str, list[tuple[float, object]]] = {
        "state": [(0, DeviceNotFound("no such device.")), (2, "offline"), (5, "device")],
        "booted": [(0, ""), (10, "1")],
        "animation": [(0, "running"), (15, "stopped")],
        "size": [(0, "Can't find service: window\n"), (18, "Physical size: 1080x2400\n")],
        "picture": [(0, b""), (18, png("black")), (20, png("black", "white"))],
    }
    return Phone({names[key]: value for key, value in (answers | changes).items()})


def wait(phone: Phone, timeout_s: float = 60.0, check: Callable[[], object] = lambda: None):
    return BootWait(phone, check, phone.clock, phone.sleep).wait(timeout_s, "emulator-5554")


def test_all_four_are_waited_for_in_order() -> None:
    times = wait(phone())
    assert 5 <= times["adb"] < 6
    assert 10 <= times["boot_completed"] < 11
    assert 15 <= times["bootanim"] < 16
    assert 20 <= times["service"] < 21


def test_a_warning_before_the_picture_does_not_matter() -> None:
    """As foldables print it: they have two displays, and nobody said which one."""
    warning = b"[Warning] Multiple displays were found, but no display id was specified!\n"
    assert wait(phone(picture=[(0, warning + png("black", "white"))]))["service"] < 20


def test_an_image_that_draws_nothing_is_told_from_a_slow_boot() -> None:
    """Android's images for automated tests leave the screen black for ever."""
    with pytest.raises(BootTimeout, match=r"of one colour.*Take a system image that draws: ATD images"):
        wait(phone(picture=[(0, png("black", "black"))]))
    with pytest.raises(BootTimeout, match="a slow machine needs more time"):
        wait(phone(booted=[(0, "")]))


@pytest.mark.parametrize(
    ("changes", "waits_for", "seen"),
    [
        ({"state": [(0, "offline")]}, "adb", "its state is 'offline'"),
        ({"state": [(0, DeviceNotFound("no such device."))]}, "adb", "no such device"),
        ({"booted": [(0, "")]}, "boot_completed", "sys.boot_completed is ''"),
        ({"booted": [(0, DeviceTimeout("too late."))]}, "boot_completed", "too late"),
        ({"animation": [(0, "running")]}, "bootanim", "init.svc.bootanim is 'running'"),
        ({"size": [(0, "Can't find service: window")]}, "service", "Can't find service"),
        ({"picture": [(0, png("black", "black"))]}, "service", "of one colour"),
        ({"picture": [(0, png("black", "white")[:40])]}, "service", "its screenshot ends after 40 bytes"),
        ({"picture": [(0, b"/system/bin/sh: screencap: not found")]}, "service", "is not a PNG picture"),
    ],
)
def test_what_never_comes_is_named(changes: dict, waits_for: str, seen: str) -> None:
    with pytest.raises(BootTimeout) as caught:
        wait(phone(**changes))
    assert f"emulator-5554: not ready after 60 s, waiting for {waits_for}: " in caught.value.message
    assert seen in caught.value.message


def test_one_deadline_bounds_all_of_it() -> None:
    slow = phone(picture=[(0, png("black"))])
    with pytest.raises(BootTimeout):
        wait(slow, 30.0)
    assert slow.now < 31.0
    assert all(timeout_s <= 10.0 for _, timeout_s in slow.asked)
    assert slow.asked[-1][1] <= 1.0


def test_a_process_that_ends_ends_the_wait() -> None:
    booting = phone()

    def check() -> None:
        if booting.now > 3:
            raise EmulatorExited("it ended.")

    with pytest.raises(EmulatorExited):
        wait(booting, check=check)
    assert booting.now < 4


def test_a_size_that_was_overridden_counts() -> None:
    wait(phone(size=[(0, "Physical size: 1080x2400\nOverride size: 540x1200\n")]))
