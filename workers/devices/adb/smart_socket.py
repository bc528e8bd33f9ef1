"""The adb server's host protocol: one connection, its requests and answers, and what its refusals mean.

A request is four hexadecimal digits of length and a text; the answer is OKAY, or FAIL and a text. A device is
chosen by `host:tport:serial:SERIAL`; what is asked after that goes to the device, and the bytes are the
service's own. A `Connection` belongs to one thread and one call.
"""

from __future__ import annotations

import socket
from types import TracebackType

from distrl.workers.devices.adb.deadline import Deadline
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    DeviceOffline,
    DeviceUnauthorized,
    OutputInvalid,
    ServerUnavailable,
    ServiceRejected,
)

CONNECT_S = 3.0
"""Longest time to connect to a server on this machine."""
MAX_REQUEST = 0xFFFF
"""Longest request in bytes that four digits can announce."""
_READ_BYTES = 256 * 1024
_START = "Start it with `adb start-server`, or correct the port."
_REASONS: tuple[tuple[str, type[DeviceError], str], ...] = (
    ("unauthorized", DeviceUnauthorized, "Unlock the device and accept this machine's key."),
    ("authorizing", DeviceUnauthorized, "Unlock the device and accept this machine's key."),
    ("insufficient permissions", DeviceUnauthorized, "Give this user access to the USB device (udev rules)."),
    ("no permissions", DeviceUnauthorized, "Give this user access to the USB device (udev rules)."),
    ("connecting", DeviceOffline, "Wait until `adb devices` lists it as device."),
    ("offline", DeviceOffline, "Reconnect or restart the device."),
    ("detached", DeviceOffline, "Attach it again with `adb attach`."),
    ("not found", DeviceNotFound, "Compare `adb devices`: is it running, and is its serial right?"),
    ("no devices", DeviceNotFound, "Compare `adb devices`: is it running, and is its serial right?"),
)


def rejection(reason: str, asked: str, serial: str = "") -> DeviceError:
    """The error for a FAIL text that answered `asked`."""
    known = reason.lower()
    for part, kind, remedy in _REASONS:
        if part in known:
            return kind(f"the adb server says: {_one_line(reason)}.", remedy, serial=serial, evidence=reason)
    said = "" if reason == "closed" else f": {_one_line(reason)}"
    return ServiceRejected(
        f"refused {asked!r}{said}.", "The device may not know the service.", serial=serial, evidence=reason
    )


def unusable(state: str, serial: str) -> DeviceError:
    """The error for a device that the server lists in `state`, which is not "device"."""
    error = rejection(f"device {state}", "a service", serial)
    if isinstance(error, ServiceRejected):  # bootloader, recovery, …: it runs something else than Android
        return DeviceOffline(
            f"its state is {state!r}.", "Boot it into Android.", serial=serial, evidence=state
        )
    return error


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


class Connection:
    """One connection to the adb server.

    Args:
        host, port: Where the server listens.
        deadline: Bounds everything that is done on this connection.

    Raises:
        ServerUnavailable: If nothing listens there.
    """

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        self.deadline = deadline
        self.serial = deadline.serial
        try:
            self.socket = socket.create_connection((host, port), min(CONNECT_S, deadline.remaining()))
        except OSError as error:
            reason = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise ServerUnavailable(
                f"no adb server at {host}:{port} ({reason}).", _START, serial=self.serial, evidence=str(error)
            ) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def request(self, text: str) -> None:
        """Sends one request and waits until it is accepted.

        Raises:
            DeviceError: By what the server says if it refuses.
        """
        data = text.encode("utf-8")
        if len(data) > MAX_REQUEST:
            raise ServiceRejected(
                f"a request of {len(data)} bytes; the adb server takes {MAX_REQUEST}.",
                "Push a file instead.",
                serial=self.serial,
            )
        self.send(b"%04x" % len(data) + data)
        self.okay(text)

    def okay(self, asked: str) -> None:
        """Reads the answer to `asked`, which must be OKAY."""
        status = self.read_exact(4)
        if status == b"FAIL":
            raise rejection(self.read_text(), asked.partition(" ")[0][:60], self.serial)
        if status != b"OKAY":
            raise OutputInvalid(
                f"an adb server answers OKAY or FAIL, got {status!r}.",
                "Is something else listening on that port?",
                serial=self.serial,
                evidence=repr(status),
            )

    def transport(self, serial: str) -> int:
        """Chooses the device `serial`: the next request goes to it. Returns the server's id of it."""
        self.request(f"host:tport:serial:{serial}")
        return int.from_bytes(self.read_exact(8), "little")

    def send(self, data: bytes | memoryview) -> None:
        """Sends all of `data`."""
        self.socket.settimeout(self.deadline.remaining())
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise self.deadline.timeout() from error
        except OSError as error:
            raise self.broken(str(error)) from error

    def read(self, size: int = _READ_BYTES) -> bytes:
        """Whatever comes next, at most `size` bytes; nothing at the end."""
        self.socket.settimeout(self.deadline.remaining())
        try:
            return self.socket.recv(size)
        except TimeoutError as error:
            raise self.deadline.timeout() from error
        except OSError as error:
            raise self.broken(str(error)) from error

    def read_exact(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            DeviceDisconnected: If the connection ends before.
        """
        first = self.read(size)
        if len(first) == size:
            return first
        parts, got = [first], len(first)
        while got < size:
            if not parts[-1]:
                raise self.broken(f"{got} of {size} bytes came")
            parts.append(self.read(min(_READ_BYTES, size - got)))
            got += len(parts[-1])
        return b"".join(parts)

    def read_to_end(self) -> bytes:
        """Everything until the other side closes."""
        parts = []
        while part := self.read():
            parts.append(part)
        return b"".join(parts)

    def read_text(self) -> str:
        """A text after four digits of its length."""
        digits = self.read_exact(4)
        try:
            size = int(digits, 16)
        except ValueError as error:
            raise OutputInvalid(
                f"a length of four hexadecimal digits was due, got {digits!r}.",
                "Is something else listening on that port?",
                serial=self.serial,
            ) from error
        return self.read_exact(size).decode("utf-8", "replace") if size else ""

    def broken(self, evidence: str) -> DeviceDisconnected:
        """The error that says the connection broke."""
        return DeviceDisconnected(
            f"the connection broke during {self.deadline.what or 'a call'}.",
            "The device or the adb server went away; see the log.",
            serial=self.serial,
            evidence=evidence,
        )
