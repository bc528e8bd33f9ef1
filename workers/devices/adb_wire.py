"""The adb protocols on one connection: the server's requests, the device's shell, and its files (sync).

A request is four hexadecimal digits of length and a text; the answer is OKAY, or FAIL and a text. A device is
selected by `host:tport:serial:SERIAL`; the next request goes to it, and the bytes after that are the
service's. A `Connection` belongs to one thread and one call, and its deadline covers connecting, opening and
reading: a hung device cannot stretch it.

Shell v2 keeps standard output, standard error and the exit status apart; a connection that ends before the
exit status is a broken one. Shell v1 has none of that, so the status is printed behind a random marker. A
sync message is a four-letter id, a little-endian number and, mostly, that many bytes.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import socket
import stat as modes
import struct
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    OutputInvalid,
    ServerUnavailable,
    ServiceRejected,
    SyncFailed,
)


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


_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_HEADER = struct.Struct("<BI")
_PIECE = 16 * 1024
MAX_PACKET = 16 * 2**20
"""Largest packet that is believed; devices send at most a few ten kilobytes."""


@dataclass(frozen=True)
class ShellResult:
    """What a command left.

    Attributes:
        out, err: Its standard output and error; from v1 devices all of it is in `out`.
        status: Its exit status.
    """

    out: bytes
    err: bytes
    status: int

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode("utf-8", "replace")

    @property
    def said(self) -> str:
        """The end of both outputs, for an error's evidence."""
        return (self.out[-1500:] + b"\n" + self.err[-1500:]).decode("utf-8", "replace").strip()


def service_v2(command: str) -> str:
    """The service that runs `command` by v2."""
    return f"shell,v2,raw:{command}"


def run_v2(connection: Connection, stdin: bytes = b"") -> ShellResult:
    """Feeds and reads a command whose v2 service has been opened."""
    waiting = memoryview(_packets(stdin))
    outputs: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: []}
    inbox = bytearray()
    while True:
        waiting = _exchange(connection, inbox, waiting)
        for kind, data in _take(inbox, connection.serial):
            if kind == _EXIT:
                return ShellResult(b"".join(outputs[_STDOUT]), b"".join(outputs[_STDERR]), data[0])
            if kind in outputs:
                outputs[kind].append(data)


def _packets(stdin: bytes) -> bytes:
    pieces = [stdin[at : at + _PIECE] for at in range(0, len(stdin), _PIECE)]
    sent = b"".join(_HEADER.pack(_STDIN, len(piece)) + piece for piece in pieces)
    return sent + _HEADER.pack(_CLOSE_STDIN, 0)


def _exchange(connection: Connection, inbox: bytearray, waiting: memoryview) -> memoryview:
    """Receives what is there, else sends what is left: neither side may wait for the other for ever."""
    if waiting:
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        ready = poll.poll(connection.deadline.remaining() * 1000)
        if not ready or not ready[0][1] & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return _send_piece(connection, waiting) if ready else waiting
    part = connection.read()
    if not part:
        raise connection.broken("it ended before the exit status")
    inbox += part
    return waiting


def _send_piece(connection: Connection, waiting: memoryview) -> memoryview:
    """Sends the next piece. Returns what is left; nothing if the other side takes no more, as it may."""
    try:
        connection.send(waiting[:_PIECE])
    except DeviceDisconnected:
        return memoryview(b"")  # what it said before it closed can still be read
    return waiting[_PIECE:]


def _take(inbox: bytearray, serial: str) -> list[tuple[int, bytes]]:
    """Takes all complete packets off `inbox`."""
    found, at = [], 0
    while len(inbox) - at >= _HEADER.size:
        kind, size = _HEADER.unpack_from(inbox, at)
        if size > MAX_PACKET or (kind == _EXIT and size != 1):
            raise OutputInvalid(
                f"a shell packet of kind {kind} with {size} bytes.",
                "Is it an Android device?",
                serial=serial,
                evidence=repr(bytes(inbox[:64])),
            )
        if len(inbox) - at - _HEADER.size < size:
            break
        at += _HEADER.size + size
        found.append((kind, bytes(inbox[at - size : at])))
    del inbox[:at]
    return found


def service_v1(command: str) -> tuple[str, str]:
    """The service that runs `command` by v1, and the marker behind which its exit status comes."""
    marker = f"exit-{secrets.token_hex(8)}-"
    return f"shell:({command}\n); echo {marker}$?", marker


def read_v1(connection: Connection, marker: str) -> ShellResult:
    """Reads a command whose v1 service has been opened."""
    out = connection.read_to_end()
    found = re.search(marker.encode() + rb"(\d+)\s*\Z", out)
    if found is None:
        raise connection.broken("it ended before the exit status: " + out[-200:].decode("utf-8", "replace"))
    return ShellResult(out[: found.start()], b"", int(found[1]))


def no_stdin(serial: str) -> ServiceRejected:
    """The error for feeding a command on a device that speaks v1 only."""
    return ServiceRejected(
        "it has no shell v2, so a command cannot be given input.", "Push a file instead.", serial=serial
    )


BASE_S, BYTES_PER_S = 30.0, 5e6
"""A file may take this long, and as long again as its bytes take at this speed."""
MAX_DATA = 64 * 1024
"""Most bytes of a file in one message."""
_MAX_PATH = 1024
_MAX_NAME = 64 * 1024
_NUMBER = struct.Struct("<I")
_STAT_V1 = struct.Struct("<III")
_STAT_V2 = struct.Struct("<IQQIIIIQqqq")
_SEND_V2 = struct.Struct("<4sII")
_RECEIVE_V2 = struct.Struct("<4sI")
_ENOENT = 2


def file_timeout_s(size: int) -> float:
    """Seconds that a file of `size` bytes may take."""
    return BASE_S + size / BYTES_PER_S


@dataclass(frozen=True)
class FileStat:
    """What is at a path; symbolic links are followed where the device can (v2).

    Attributes:
        mode: POSIX type and permissions, 0 if there is nothing.
        size: In bytes.
        mtime: Seconds since 1970.
    """

    mode: int
    size: int
    mtime: int

    @property
    def exists(self) -> bool:
        """Whether there is anything."""
        return self.mode != 0

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return modes.S_ISDIR(self.mode)


class Sync:
    """The file service on an opened connection.

    Args:
        connection: On which the device has accepted `sync:`.
        features: What the device can do, as `adb features` names it.
    """

    def __init__(self, connection: Connection, features: Collection[str]) -> None:
        self._connection = connection
        self._features = features

    def stat(self, path: str) -> FileStat:
        """What is at `path`.

        Raises:
            SyncFailed: If the device may not look there.
        """
        if "stat_v2" not in self._features:
            self._ask(b"STAT", path)
            self._expect(b"STAT", path)
            return FileStat(*_STAT_V1.unpack(self._connection.read_exact(_STAT_V1.size)))
        self._ask(b"STA2", path)
        self._expect(b"STA2", path)
        error, _, _, mode, _, _, _, size, _, mtime, _ = self._stat_v2()
        if error and error != _ENOENT:
            raise self._failed(f"stat {path}", os.strerror(error))
        return FileStat(mode, size, mtime)

    def list(self, path: str) -> dict[str, FileStat]:
        """What is in the directory `path`, by name, without "." and ".."; empty if it cannot be read."""
        return {name: entry for name, entry in self._entries(path) if name not in (".", "..")}

    def _entries(self, path: str) -> Iterator[tuple[str, FileStat]]:
        second = "ls_v2" in self._features
        self._ask(b"LIS2" if second else b"LIST", path)
        while True:
            kind = self._connection.read_exact(4)
            if kind == b"FAIL":
                raise self._failed(f"list {path}", self._text())
            if kind not in (b"DONE", b"DNT2" if second else b"DENT"):
                raise self._unexpected(kind, "a directory entry")
            if second:
                _, _, _, mode, _, _, _, size, _, mtime, _ = self._stat_v2()
            else:
                mode, size, mtime = _STAT_V1.unpack(self._connection.read_exact(_STAT_V1.size))
            length = self._number()
            if kind == b"DONE":
                return
            if length > _MAX_NAME:
                raise self._unexpected(kind, f"a name, not {length} bytes of it")
            yield self._connection.read_exact(length).decode("utf-8", "replace"), FileStat(mode, size, mtime)

    def send(self, source: IO[bytes], path: str, mode: int, mtime: int) -> None:
        """Writes all of `source` to the file `path` with permissions `mode`.

        Raises:
            SyncFailed: With what the device said, if it refuses.
        """
        if "sendrecv_v2" in self._features:
            self._ask(b"SND2", path)
            self._connection.send(_SEND_V2.pack(b"SND2", modes.S_IFREG | mode, 0))
        else:
            self._ask(b"SEND", f"{path},{modes.S_IFREG | mode}")
        try:
            while (piece := source.read(MAX_DATA)) and not self._answered():
                self._connection.send(b"DATA" + _NUMBER.pack(len(piece)) + piece)
            self._connection.send(b"DONE" + _NUMBER.pack(mtime & 0xFFFFFFFF))
        except DeviceDisconnected as broken:
            self._last_words(path, broken)
        self._expect(b"OKAY", path, "write")
        self._number()

    def _answered(self) -> bool:
        """Whether the device speaks while it should listen: it refuses."""
        poll = select.poll()
        poll.register(self._connection.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _last_words(self, path: str, broken: DeviceDisconnected) -> None:
        """A device that refuses a file may hang up at once: its reason may still be there to read."""
        try:
            self._expect(b"OKAY", path, "write")
        except DeviceDisconnected:
            raise broken from None
        raise broken

    def receive(self, path: str, target: IO[bytes]) -> int:
        """Copies the file `path` into `target`. Returns its size in bytes.

        Raises:
            SyncFailed: With what the device said, if it cannot be read.
        """
        if "sendrecv_v2" in self._features:
            self._ask(b"RCV2", path)
            self._connection.send(_RECEIVE_V2.pack(b"RCV2", 0))
        else:
            self._ask(b"RECV", path)
        total = 0
        while True:
            kind = self._connection.read_exact(4)
            if kind == b"FAIL":
                raise self._failed(f"read {path}", self._text())
            if kind not in (b"DATA", b"DONE"):
                raise self._unexpected(kind, "a piece of the file")
            size = self._number()
            if kind == b"DONE":
                return total
            if size > MAX_DATA:
                raise self._unexpected(kind, f"at most {MAX_DATA} bytes, not {size}")
            target.write(self._connection.read_exact(size))
            total += size

    def quit(self) -> None:
        """Says goodbye; the connection is of no use afterwards."""
        self._connection.send(b"QUIT" + _NUMBER.pack(0))

    def _ask(self, kind: bytes, path: str) -> None:
        data = path.encode("utf-8", "surrogateescape")
        if len(data) > _MAX_PATH:
            raise self._failed(f"use a path of {len(data)} bytes", f"at most {_MAX_PATH} are allowed")
        self._connection.send(kind + _NUMBER.pack(len(data)) + data)

    def _expect(self, kind: bytes, path: str, verb: str = "stat") -> None:
        got = self._connection.read_exact(4)
        if got == b"FAIL":
            raise self._failed(f"{verb} {path}", self._text())
        if got != kind:
            raise self._unexpected(got, kind.decode())

    def _number(self) -> int:
        number: int = _NUMBER.unpack(self._connection.read_exact(4))[0]
        return number

    def _stat_v2(self) -> tuple[int, ...]:
        return _STAT_V2.unpack(self._connection.read_exact(_STAT_V2.size))

    def _text(self) -> str:
        return self._connection.read_exact(min(self._number(), _MAX_NAME)).decode("utf-8", "replace")

    def _failed(self, doing: str, reason: str) -> SyncFailed:
        return SyncFailed(
            f"cannot {doing}: {reason}.",
            "Check the path, its permissions and the free space on the device.",
            serial=self._connection.serial,
            evidence=reason,
        )

    def _unexpected(self, got: bytes, due: str) -> OutputInvalid:
        return OutputInvalid(
            f"the file service should send {due}, got {got!r}.",
            serial=self._connection.serial,
            evidence=repr(got),
        )


def receive_to(sync: Sync, path: str, local: Path) -> int:
    """Copies the device's file `path` to `local`, which is replaced only when all of it came.

    Returns:
        Its size in bytes.
    """
    handle, name = tempfile.mkstemp(dir=local.parent, prefix=f".{local.name}.")
    try:
        with os.fdopen(handle, "wb") as target:
            size = sync.receive(path, target)
        Path(name).chmod(0o644)
        os.replace(name, local)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size
