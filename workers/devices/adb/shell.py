"""A command in the device's shell: the v2 protocol with its packets, and v1 for devices without it.

v2 keeps standard output, standard error and the exit status apart; a connection that ends before the exit
status is a broken one. v1 has none of that, so the status is asked for behind a marker that a command
will not print by chance.
"""

from __future__ import annotations

import re
import secrets
import select
import struct
from dataclasses import dataclass

from distrl.workers.devices.adb.smart_socket import Connection
from distrl.workers.devices.errors import DeviceDisconnected, OutputInvalid, ServiceRejected

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
