"""When an emulator is ready: four conditions, looked at again and again until all hold or the time is up.

the adb server sees it as `device` ─► sys.boot_completed = 1 ─► init.svc.bootanim = stopped
─► a real service answers: `wm size` names a size, and a screencap is a picture of more than one colour
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from PIL import Image, UnidentifiedImageError

from distrl.workers.devices.adb.frame import picture_in
from distrl.workers.devices.errors import BootTimeout, DeviceError

COLD_S, SNAPSHOT_S = 180.0, 60.0
"""Longest time for a boot, and for a start from a snapshot."""
CONDITIONS = ("adb", "boot_completed", "bootanim", "service")
_CALL_S, _SCREENSHOT_S = 5.0, 10.0
_POLL_S = 0.25
_BLANK = "its screenshot is of one colour"
_SLOW = "See the emulator's log; a slow machine needs more time: --boot-timeout, or boot_s."
_DRAWS_NOTHING = (
    "Take a system image that draws: ATD images (aosp_atd, google_atd) do not; with another one see the "
    "emulator's log."
)
_SIZE = re.compile(rb"(?:Physical|Override) size: (\d+)x(\d+)")


class Answer(Protocol):
    """What a shell command left, e.g. an `adb.shell.ShellResult`."""

    @property
    def out(self) -> bytes:
        """Its standard output."""
        ...


class BootClient(Protocol):
    """What is needed of an `AdbClient`."""

    def state(self, timeout_s: float = ...) -> str:
        """The device's state at the adb server."""
        ...

    def shell(self, command: str, timeout_s: float) -> Answer:
        """Runs a command."""
        ...

    def exec_out(self, command: str, timeout_s: float) -> bytes:
        """What a command prints."""
        ...


@dataclass(frozen=True)
class BootTimes:
    """When each condition first held, in seconds since the wait began, in the order of `CONDITIONS`."""

    adb: float
    boot_completed: float
    bootanim: float
    service: float


class BootWait:
    """Waits for one emulator.

    Args:
        client: The way to it.
        check: Called before each look; raises when waiting is in vain (its process ended, its log says why).
        clock, sleep: Seconds that never go back, and a pause of so many.
        screencap: The command that takes a screenshot.
    """

    def __init__(
        self,
        client: BootClient,
        check: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        screencap: str = "screencap -p",
    ) -> None:
        self._client, self._screencap = client, screencap
        self._check = check
        self._clock = clock
        self._sleep = sleep
        self._give_up_at = 0.0

    def wait(self, timeout_s: float, serial: str = "") -> BootTimes:
        """Returns when all conditions hold.

        Args:
            timeout_s: For all of them together.
            serial: For the error.

        Raises:
            BootTimeout: With the condition that did not hold, and what was seen of it.
            EmulatorError: What `check` raises.
        """
        started = self._clock()
        self._give_up_at = started + timeout_s
        times = []
        for name, holds in zip(
            CONDITIONS, (self._is_there, self._is_complete, self._is_quiet, self._answers), strict=True
        ):
            seen = self._until(holds)
            if seen:
                raise BootTimeout(
                    f"not ready after {timeout_s:g} s, waiting for {name}: {seen}.",
                    _DRAWS_NOTHING if seen == _BLANK else _SLOW,
                    serial=serial,
                    evidence=seen,
                )
            times.append(round(self._clock() - started, 3))
        return BootTimes(*times)

    def _until(self, holds: Callable[[], str]) -> str:
        """Looks until the condition holds, then returns ""; else what was seen last."""
        while True:
            self._check()
            try:
                seen = holds()
            except DeviceError as error:
                seen = error.message
            if not seen:
                return ""
            if self._clock() >= self._give_up_at:
                return seen.rstrip(".")
            self._sleep(_POLL_S)

    def _left(self, most_s: float) -> float:
        """The time for one call; a last one may be made at the deadline, but briefly."""
        return max(0.5, min(most_s, self._give_up_at - self._clock()))

    # Each returns "" when its condition holds, else what it saw.

    def _is_there(self) -> str:
        state = self._client.state(self._left(2.0))
        return "" if state == "device" else f"its state is {state!r}"

    def _is_complete(self) -> str:
        return self._property("sys.boot_completed", b"1")

    def _is_quiet(self) -> str:
        return self._property("init.svc.bootanim", b"stopped")

    def _property(self, name: str, wanted: bytes) -> str:
        value = self._client.shell(f"getprop {name}", self._left(_CALL_S)).out.strip()
        return "" if value == wanted else f"{name} is {value.decode('utf-8', 'replace')!r}"

    def _answers(self) -> str:
        size = self._client.shell("wm size", self._left(_CALL_S)).out
        if not _SIZE.search(size):
            return f"`wm size` says {size[:80].decode('utf-8', 'replace').strip()!r}"
        return _picture_problem(self._client.exec_out(self._screencap, self._left(_SCREENSHOT_S)))


def _picture_problem(data: bytes) -> str:
    try:
        with Image.open(io.BytesIO(picture_in(data))) as image:
            extrema = image.convert("RGB").getextrema()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        return f"its screenshot is no picture ({error})"
    is_blank = all(low == high for low, high in extrema)
    return _BLANK if is_blank else ""
