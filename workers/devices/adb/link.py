"""The way to one device through the adb server: its state there, and the opening of services on it.

Every call has one deadline, whatever happens, and a connection of its own, so that nothing is left over from
a call that failed. What only reads is tried again after a passing fault, within the call's deadline. No
thread and no lock: calls may come from several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from distrl.workers.devices.adb.deadline import Deadline
from distrl.workers.devices.adb.smart_socket import Connection, unusable
from distrl.workers.devices.errors import (
    DeviceError,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    ServiceRejected,
    TransportError,
)

STATE_S = 2.0
"""Longest time for what the adb server answers itself."""
RETRY_AFTER_S = (0.2, 1.0)
"""Waits before a read is tried a second and a third time."""
_POLL_S = 0.1
_UNUSABLE = ("offline", "unauthorized", "connecting", "authorizing", "detached", "no permissions")
Answer = TypeVar("Answer")


class DeviceLink:
    """One device at one adb server.

    Args:
        serial: As `adb devices` lists it.
        port, host: Where the adb server listens.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        serial: str,
        port: int = 5037,
        host: str = "127.0.0.1",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.serial = serial
        self.host = host
        self.port = port
        self.sleep = sleep
        self._features: frozenset[str] | None = None

    def state(self, timeout_s: float = STATE_S) -> str:
        """The device's state: "device" when it can be used, else "offline", "unauthorized", ….

        A device that hangs stays "device". Servers answer for one that cannot be used with a refusal.

        Raises:
            DeviceNotFound: If the server knows no such device.
        """
        try:
            return self._ask("get-state", self._deadline(timeout_s, "get-state"))
        except (DeviceOffline, DeviceUnauthorized) as error:
            said = [state for state in _UNUSABLE if state in error.evidence]
            if not said:
                raise
            return said[0]

    def features(self, timeout_s: float = STATE_S) -> frozenset[str]:
        """What the device can do, as `adb features` lists it."""
        return self._known_features(self._deadline(timeout_s, "its features"))

    def reconnect(self, timeout_s: float = STATE_S) -> None:
        """Makes the server connect to the device anew: one that hangs is offline from then on."""
        self._features = None
        self._ask("reconnect", self._deadline(timeout_s, "reconnect"))

    def wait_for_state(self, state: str, timeout_s: float) -> None:
        """Waits until the server sees the device in `state`.

        Raises:
            DeviceTimeout: If it does not get there.
        """
        deadline = self._deadline(timeout_s, f"the state {state!r}")
        seen = ""
        while seen != state:
            try:
                seen = self.state(min(STATE_S, deadline.remaining(f"last seen: {seen}")))
            except DeviceTimeout:
                seen = seen or "no answer"
            except TransportError as error:
                seen = type(error).__name__
            if seen != state:
                self.sleep(min(_POLL_S, deadline.remaining(f"last seen: {seen}")))

    def _ask(self, what: str, deadline: Deadline) -> str:
        with Connection(self.host, self.port, deadline) as connection:
            connection.request(f"host-serial:{self.serial}:{what}")
            return connection.read_text()

    def _known_features(self, deadline: Deadline) -> frozenset[str]:
        if self._features is None:
            text = self._ask("features", deadline)
            self._features = frozenset(filter(None, text.replace(",", " ").split()))
        return self._features

    def _deadline(self, timeout_s: float, what: str) -> Deadline:
        return Deadline(timeout_s, what, self.serial)

    @contextmanager
    def _opened(
        self, service: str, deadline: Deadline, sending: Callable[[], object] = lambda: None
    ) -> Iterator[Connection]:
        """A connection on which the device has accepted `service`; `sending` is called before it is asked."""
        with Connection(self.host, self.port, deadline) as connection:
            connection.transport(self.serial)
            sending()
            try:
                connection.request(service)
            except ServiceRejected as error:
                if error.evidence == "closed":
                    self._is_there(deadline)  # a device that goes away answers "closed" as well
                raise
            yield connection

    def _is_there(self, deadline: Deadline) -> None:
        state = self.state(min(STATE_S, deadline.remaining()))
        if state != "device":
            raise unusable(state, self.serial)

    def _repeat(self, once: Callable[[], Answer], deadline: Deadline, reads: bool) -> Answer:
        """Tries up to three times, within the deadline, where that is allowed and can help."""
        for wait in RETRY_AFTER_S if reads else ():
            try:
                return once()
            except DeviceError as error:
                if not error.retryable or deadline.left <= wait:
                    raise
                self.sleep(wait)
        return once()


def brief(text: str, most: int = 80) -> str:
    """`text` in one line and cut, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
