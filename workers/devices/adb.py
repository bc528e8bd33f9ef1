"""The adb client: one device at an adb server, its shell and raw output.

Every call has one deadline, shared by connecting, opening the service and reading, so that a hung device
cannot stretch it, and a connection of its own, so that nothing is left over from a call that failed. Reads
are repeated after a transient fault, within the deadline. There is no thread and no lock: calls may come from
several threads.

Server protocol: a request is four hexadecimal digits of length and a text; the answer is OKAY, or FAIL and a
text. `host:tport:serial:SERIAL` selects a device; the next request goes to it, and the bytes after that are
the service's. Shell v2 (Android 7 and later) keeps standard output, standard error and the exit status apart;
a connection that ends before the exit status is a broken one.

adbutils is not used for these calls. Its timeouts hold for each read, so a device that drips bytes is never
given up; its shell joins both outputs and cannot feed a command; it starts an adb server wherever none
listens; and it sleeps 10 ms whenever it closes a connection: a shell no-op takes 10.9 ms, with this client
0.46 ms (benchmarks/devices.py).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    NonZeroExit,
    OutputInvalid,
    ServerUnavailable,
    ServiceRejected,
    TransportError,
)

CONNECT_S = 3.0
"""Longest time to connect to a server on this machine."""
STATE_S = 2.0
"""Longest time for what the adb server answers itself."""
RETRY_AFTER_S = (0.2, 1.0)
"""Waits before a read is tried a second and a third time."""
MAX_REQUEST = 0xFFFF
"""Longest request in bytes that four digits can announce."""
MAX_PACKET = 16 * 2**20
"""Largest shell packet that is accepted; devices send at most a few ten kilobytes."""
MAX_ANSWER_BYTES = 256 * 2**20
"""The most that is read on one connection; a raw screenshot of 4K has 32 MiB."""
_READ_BYTES = 256 * 1024
_POLL_S = 0.1
_TRY_S = (1.0, 2.0, 4.0, 8.0)
"""How long each try may take on a device that may be silent; the last one stays. They grow, because a slow
device must not be reconnected again and again before it can answer."""
_UNLOCK = "Unlock the device and accept this machine's key."
_UDEV = "Give this user access to the USB device (udev rules)."
_COMPARE = "Compare `adb devices`: is it running, and is its serial right?"
_REASONS: tuple[tuple[str, type[DeviceError], str], ...] = (
    ("authoriz", DeviceUnauthorized, _UNLOCK),  # "unauthorized", "still authorizing"
    ("permissions", DeviceUnauthorized, _UDEV),
    ("connecting", DeviceOffline, "Wait until `adb devices` lists it as device."),
    ("offline", DeviceOffline, "Reconnect or restart the device."),
    ("detached", DeviceOffline, "Attach it again with `adb attach`."),
    ("not found", DeviceNotFound, _COMPARE),
)
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_HEADER = struct.Struct("<BI")
_PIECE = 16 * 1024
HOST = "127.0.0.1"
"""Where adb servers listen: this tool uses those of its own machine."""
Answer = TypeVar("Answer")


class Deadline:
    """A moment, so many seconds from now, by which a call must be over.

    Args:
        what: What is waited for, as a noun, for the message.
        serial: The device, for the message.
    """

    def __init__(self, seconds: float, what: str = "", serial: str = "") -> None:
        self.seconds, self.what, self.serial = seconds, what, serial
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, 0 when it is over."""
        return max(0.0, self._end - time.monotonic())

    def remaining(self) -> float:
        """Seconds left, for a socket or a wait. Raises DeviceTimeout if there are none."""
        left = self.left
        if not left:
            raise self.timeout()
        return left

    def timeout(self) -> DeviceTimeout:
        """The error that says this deadline passed."""
        return DeviceTimeout(
            f"no answer to {self.what or 'a call'} within {self.seconds:g} s.",
            "If the device stays silent, reconnect or restart it.",
            serial=self.serial,
        )


def rejection(reason: str, asked: str, serial: str = "") -> DeviceError:
    """The error for a FAIL text that answered `asked`."""
    line = " ".join(reason.split()).rstrip(".")
    for part, kind, remedy in _REASONS:
        if part in reason.lower():
            return kind(f"the adb server reports: {line}.", remedy, serial=serial, evidence=reason)
    said = "" if reason == "closed" else f": {line}"
    remedy = "The device may not support the service."
    return ServiceRejected(f"refused {asked!r}{said}.", remedy, serial=serial, evidence=reason)


class Connection:
    """One connection to the adb server, for one thread and one call; `deadline` bounds everything on it.

    Raises:
        ServerUnavailable: If nothing listens there.
    """

    def __init__(self, port: int, deadline: Deadline) -> None:
        self.deadline = deadline
        self.serial = deadline.serial
        self._num_bytes = 0
        try:
            self.socket = socket.create_connection((HOST, port), min(CONNECT_S, deadline.remaining()))
        except OSError as error:
            reason = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise ServerUnavailable(
                f"no adb server at {HOST}:{port} ({reason}).",
                "Start it with `adb start-server`, or correct the port.",
                serial=self.serial,
                evidence=str(error),
            ) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def request(self, text: str) -> None:
        """Sends one request and waits until it is accepted. Raises a DeviceError if the server refuses."""
        data = text.encode("utf-8")
        if len(data) > MAX_REQUEST:
            raise ServiceRejected(
                f"a request of {len(data)} bytes is too long; the adb server takes {MAX_REQUEST}.",
                "Shorten the command.",
                serial=self.serial,
            )
        self.send(b"%04x" % len(data) + data)
        status = self.read_exact(4)
        if status == b"FAIL":
            raise rejection(self.read_text(), text.partition(" ")[0][:60], self.serial)
        if status != b"OKAY":
            raise self._foreign(f"an adb server answers OKAY or FAIL, got {status!r}.")

    def send(self, data: bytes) -> None:
        """Sends all of `data`."""
        self.socket.settimeout(self.deadline.remaining())
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise self.deadline.timeout() from error
        except OSError as error:
            raise self.broken(str(error)) from error

    def read(self, size: int = _READ_BYTES) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        self.socket.settimeout(self.deadline.remaining())
        try:
            data = self.socket.recv(size)
        except TimeoutError as error:
            raise self.deadline.timeout() from error
        except OSError as error:
            raise self.broken(str(error)) from error
        self._num_bytes += len(data)
        if self._num_bytes > MAX_ANSWER_BYTES:
            said = f"the answer to {self.deadline.what} has more than {MAX_ANSWER_BYTES} bytes."
            raise OutputInvalid(said, "Restart the device.", serial=self.serial)
        return data

    def read_exact(self, size: int) -> bytes:
        """The next `size` bytes. Raises DeviceDisconnected if the connection ends before."""
        data = bytearray()
        while len(data) < size:
            part = self.read(min(_READ_BYTES, size - len(data)))
            if not part:
                raise self.broken(f"{len(data)} of {size} bytes came")
            data += part
        return bytes(data)

    def read_text(self) -> str:
        """A text after four digits of its length."""
        digits = self.read_exact(4)
        try:
            size = int(digits, 16)
        except ValueError as error:
            raise self._foreign(f"four hexadecimal digits of length expected, got {digits!r}.") from error
        return self.read_exact(size).decode("utf-8", "replace")

    def broken(self, evidence: str) -> DeviceDisconnected:
        """The error that says the connection broke."""
        return DeviceDisconnected(
            f"the connection broke during {self.deadline.what or 'a call'}.",
            "The device or the adb server disappeared; see the log.",
            serial=self.serial,
            evidence=evidence,
        )

    def _foreign(self, message: str) -> OutputInvalid:
        return OutputInvalid(message, "Is another program listening on that port?", serial=self.serial)


@dataclass(frozen=True)
class ShellResult:
    """What a command printed, and its exit status."""

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


def _run_shell(connection: Connection, stdin: bytes) -> ShellResult:
    """Feeds and reads a command whose shell v2 service has been opened.

    All input is sent before any output is read, so a command that prints much while it still reads may hang
    until the deadline.
    """
    pieces = [stdin[at : at + _PIECE] for at in range(0, len(stdin), _PIECE)]
    with contextlib.suppress(DeviceDisconnected):  # what it said before it closed can still be read
        sent = b"".join(_HEADER.pack(_STDIN, len(piece)) + piece for piece in pieces)
        connection.send(sent + _HEADER.pack(_CLOSE_STDIN, 0))
    outputs: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: []}
    while True:
        header = connection.read_exact(_HEADER.size)
        kind, size = _HEADER.unpack(header)
        if size > MAX_PACKET or (kind == _EXIT and size != 1):
            raise OutputInvalid(
                f"a shell packet of kind {kind} with {size} bytes is not valid.",
                "Is it an Android device?",
                serial=connection.serial,
                evidence=repr(header),
            )
        data = connection.read_exact(size)
        if kind == _EXIT:
            return ShellResult(b"".join(outputs[_STDOUT]), b"".join(outputs[_STDERR]), data[0])
        if kind in outputs:
            outputs[kind].append(data)


def repeated(
    once: Callable[[], Answer], deadline: Deadline, sleep: Callable[[float], None], takes_s: float = 0.0
) -> Answer:
    """Tries up to three times, within the deadline, where that can help; the earlier error says more.

    Args:
        takes_s: What one try may take: none is begun with less time left.
    """
    for wait in RETRY_AFTER_S:
        try:
            return once()
        except DeviceError as error:
            if not error.retryable or deadline.left <= wait + takes_s:
                raise
            sleep(wait)
    return once()


def brief(text: str, most: int = 80) -> str:
    """`text` in one line and cut, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


@dataclass(frozen=True)
class Display:
    """Which display of a device is looked at and touched.

    Attributes:
        physical: The ID that `screencap` takes and `dumpsys SurfaceFlinger --display-id` lists; None for
            Android's choice.
        logical: The ID that `input`, `wm` and `am` take; None for the default display.
    """

    physical: int | None = None
    logical: int | None = None

    @property
    def screencap(self) -> str:
        """The command for a screenshot."""
        return "screencap -p" if self.physical is None else f"screencap -d {self.physical} -p"

    @property
    def input(self) -> str:
        """The command for inputs, which their words follow."""
        return "input" if self.logical is None else f"input -d {self.logical}"


DEFAULT_DISPLAY = Display()


class AdbClient:
    """One device at one adb server, and which of its displays is used."""

    def __init__(
        self,
        serial: str,
        port: int = 5037,
        sleep: Callable[[float], None] = time.sleep,
        display: Display = DEFAULT_DISPLAY,
    ) -> None:
        self.serial, self.port = serial, port
        self.sleep = sleep
        self.display = display

    def state(self, timeout_s: float = STATE_S) -> str:
        """The device's state: "device" when it can be used. A device that hangs stays "device".

        Raises DeviceOffline, DeviceUnauthorized or DeviceNotFound if the server says so.
        """
        return self._ask("get-state", timeout_s)

    def reconnect(self, timeout_s: float = STATE_S) -> None:
        """Makes the server reconnect to the device: one that hangs is offline from then on."""
        self._ask("reconnect", timeout_s)

    def shell(self, command: str, timeout_s: float, reads: bool = False, stdin: bytes = b"") -> ShellResult:
        """Runs `command` in the device's shell.

        Args:
            command: Shell text; quote what comes from elsewhere (`shlex.quote`).
            timeout_s: For everything, repetitions included.
            reads: The command changes nothing, or nothing more when it runs twice: it may be repeated.
            stdin: Its standard input.
        """
        deadline = self._deadline(timeout_s, f"shell {brief(command)!r}")
        run = partial(self._shell, command, deadline, stdin)
        return repeated(run, deadline, self.sleep) if reads else run()

    def check(self, command: str, timeout_s: float, reads: bool = False, stdin: bytes = b"") -> ShellResult:
        """As `shell`; raises NonZeroExit if the exit status is not 0."""
        return self._checked(command, self.shell(command, timeout_s, reads=reads, stdin=stdin))

    def act(self, command: str, timeout_s: float) -> ShellResult:
        """Runs an input, once and never again.

        Raises:
            ActionOutcomeUnknown: If it was handed over and no answer came: it may have been executed.
            NonZeroExit, ServiceRejected: If the device reports that it failed, or lets adb send no inputs.
            DeviceError: If it could not be handed over: it was not executed.
        """
        deadline = self._deadline(timeout_s, f"shell {brief(command)!r}")
        handed_over: list[bool] = []
        try:
            result = self._shell(command, deadline, b"", lambda: handed_over.append(True))
        except (TransportError, OutputInvalid) as error:
            if not handed_over:
                raise
            raise ActionOutcomeUnknown(
                f"it is unknown whether {brief(command)!r} was executed: {error.message}",
                "It is not sent again; look at the screen, or end the episode.",
                serial=self.serial,
                evidence=error.evidence,
            ) from error
        require_input(result, self.serial)
        return self._checked(command, result)

    def exec_out(self, command: str, timeout_s: float) -> bytes:
        """What `command` prints, byte for byte, without its exit status. Truncation is not detected here."""
        deadline = self._deadline(timeout_s, f"exec {brief(command)!r}")
        with self._opened(f"exec:{command}", deadline) as connection:
            return b"".join(iter(connection.read, b""))

    def wait_ready(self, timeout_s: float, check: Callable[[], object] = lambda: None) -> None:
        """Waits until the device answers its shell, reconnecting to it if it stays silent.

        `check` is called before each try; it raises when waiting is in vain. Raises the last refusal.
        """
        deadline, tries = self._deadline(timeout_s, "`true` in its shell"), 0
        last: DeviceError = deadline.timeout()
        while deadline.left > _POLL_S:
            patience_s = _TRY_S[min(tries, len(_TRY_S) - 1)]
            tries += 1
            check()
            try:
                self.check("true", min(patience_s, deadline.remaining()))
                return
            except DeviceTimeout:
                # A connection from before a snapshot stays silent for ever.
                with contextlib.suppress(TransportError, ServiceRejected):  # it is reconnecting already
                    self.reconnect(min(STATE_S, deadline.remaining()))
            except DeviceError as error:
                last = error
            self.sleep(min(_POLL_S, deadline.left))
        raise last

    def _ask(self, what: str, timeout_s: float) -> str:
        with Connection(self.port, self._deadline(timeout_s, what)) as connection:
            connection.request(f"host-serial:{self.serial}:{what}")
            return connection.read_text()

    def _deadline(self, timeout_s: float, what: str) -> Deadline:
        return Deadline(timeout_s, what, self.serial)

    @contextmanager
    def _opened(
        self, service: str, deadline: Deadline, sending: Callable[[], object] = lambda: None
    ) -> Iterator[Connection]:
        """A connection on which the device has accepted `service`; `sending` is called before the request."""
        with Connection(self.port, deadline) as connection:
            connection.request(f"host:tport:serial:{self.serial}")  # the next request goes to the device
            connection.read_exact(8)  # the server's id of it
            sending()
            try:
                connection.request(service)
            except ServiceRejected as error:
                if error.evidence == "closed":  # a device that disappears answers "closed" as well
                    self._require_device(deadline)
                raise
            yield connection

    def _require_device(self, deadline: Deadline) -> None:
        state = self.state(min(STATE_S, deadline.remaining()))
        if state != "device":  # bootloader, recovery, …: it does not run Android
            message = f"its state is {state!r}."
            raise DeviceOffline(message, "Boot it into Android.", serial=self.serial, evidence=state)

    def _shell(
        self, command: str, deadline: Deadline, stdin: bytes, sending: Callable[[], object] = lambda: None
    ) -> ShellResult:
        with self._opened(f"shell,v2,raw:{command}", deadline, sending) as connection:
            return _run_shell(connection, stdin)

    def _checked(self, command: str, result: ShellResult) -> ShellResult:
        if result.status:
            said = brief(result.said) or "no output"
            raise NonZeroExit(
                f"{brief(command)!r} ended with exit status {result.status}: {said}.",
                "See the output of the device.",
                serial=self.serial,
                evidence=result.said,
            )
        return result


def require_input(result: ShellResult, serial: str) -> None:
    """Raises ServiceRejected if Android refused an input because adb may not send any."""
    if "INJECT_EVENTS" in result.said:
        raise ServiceRejected(
            "it does not let adb send inputs (INJECT_EVENTS).",
            "On Xiaomi, Redmi and POCO phones switch on `USB debugging (Security settings)` in the developer "
            "options, and restart the phone.",
            serial=serial,
            evidence=result.said[:500],
        )
