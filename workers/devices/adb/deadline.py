"""One deadline for a whole call, shared by connecting, opening and reading: no hung device stretches it."""

from __future__ import annotations

import time
from collections.abc import Callable

from distrl.workers.devices.errors import DeviceTimeout


class Deadline:
    """A moment on the monotonic clock by which a call must be over.

    Args:
        seconds: From now.
        what: What is waited for, as a noun, for the message.
        serial: The device, for the message.
        clock: Seconds that never go back.

    Raises:
        ValueError: If `seconds` is not positive.
    """

    def __init__(
        self, seconds: float, what: str = "", serial: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not seconds > 0.0:
            raise ValueError(f"a deadline lies in the future, got {seconds} s")
        self.seconds = seconds
        self.what = what
        self.serial = serial
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left, 0 when it is over."""
        return max(0.0, self._end - self._clock())

    def remaining(self, evidence: str = "") -> float:
        """Seconds left, for a socket or a wait.

        Raises:
            DeviceTimeout: If there are none.
        """
        left = self._end - self._clock()
        if left <= 0.0:
            raise self.timeout(evidence)
        return left

    def timeout(self, evidence: str = "") -> DeviceTimeout:
        """The error that says this deadline passed."""
        return DeviceTimeout(
            f"no answer to {self.what or 'a call'} within {self.seconds:g} s.",
            "If the device stays silent, reconnect or restart it.",
            serial=self.serial,
            evidence=evidence,
        )
