"""The adb client: one device at an adb server, its shell, raw output, files and apps.

Every call has one deadline and a connection of its own, so that nothing is left over from a call that failed.
Reads are repeated after a transient fault, within the call's deadline. There is no thread and no lock: calls
may come from several threads.
"""

from __future__ import annotations

import io
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from distrl.workers.devices.adb_wire import (
    Connection,
    Deadline,
    FileStat,
    ShellResult,
    Sync,
    file_timeout_s,
    no_stdin,
    read_v1,
    receive_to,
    run_v2,
    service_v1,
    service_v2,
    unusable,
)
from distrl.workers.devices.apps import require_input
from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    DeviceError,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    NonZeroExit,
    OutputInvalid,
    ServiceRejected,
    SyncFailed,
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


INSTALL_S = 120.0
"""Longest time to install an app."""
_TRY_S = (1.0, 2.0, 4.0, 8.0)
"""How long each try may take on a device that may be silent; the last one stays. They grow, as a slow device
must not be reconnected for ever before it can answer."""


def quote(text: str) -> str:
    """`text` as one word for the device's shell, whatever is in it."""
    return shlex.quote(text)


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


class AdbClient(DeviceLink):
    """One device.

    Args:
        serial, port, host, sleep: As for `DeviceLink`.
        display: Which of its displays is used.
    """

    def __init__(
        self,
        serial: str,
        port: int = 5037,
        host: str = "127.0.0.1",
        sleep: Callable[[float], None] = time.sleep,
        display: Display = DEFAULT_DISPLAY,
    ) -> None:
        super().__init__(serial, port, host, sleep)
        self.display = display

    def shell(self, command: str, timeout_s: float, reads: bool = False, stdin: bytes = b"") -> ShellResult:
        """Runs `command` in the device's shell.

        Args:
            command: Shell text; put `quote` around what comes from elsewhere.
            timeout_s: For everything, repetitions included.
            reads: The command changes nothing, or nothing more when it runs twice: it may be repeated.
            stdin: What it can read.

        Returns:
            Its outputs and exit status, whatever that is.

        Raises:
            DeviceError: By what goes wrong on the way.
        """
        deadline = self._deadline(timeout_s, f"shell {brief(command)!r}")
        return self._repeat(lambda: self._shell(command, deadline, stdin), deadline, reads)

    def check(self, command: str, timeout_s: float, reads: bool = False, stdin: bytes = b"") -> ShellResult:
        """As `shell`, for commands that must succeed.

        Raises:
            NonZeroExit: If the exit status is not 0.
        """
        return self._checked(command, self.shell(command, timeout_s, reads=reads, stdin=stdin))

    def act(self, command: str, timeout_s: float) -> ShellResult:
        """Runs an input, once and never again.

        Raises:
            ActionOutcomeUnknown: If it was handed over and no answer came: it may have been executed.
            NonZeroExit: If the device says that it failed.
            ServiceRejected: If the device lets adb send no inputs.
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
                f"nobody knows whether {brief(command)!r} was executed: {error.message}",
                "It is not sent again; look at the screen, or end the episode.",
                serial=self.serial,
                evidence=error.evidence,
            ) from error
        require_input(result, self.serial)
        return self._checked(command, result)

    def exec_out(self, command: str, timeout_s: float, reads: bool = False) -> bytes:
        """What `command` prints, byte for byte; its exit status is not known.

        Raises:
            DeviceError: By what goes wrong on the way. An output that is cut short is not noticed here.
        """
        deadline = self._deadline(timeout_s, f"exec {brief(command)!r}")

        def once() -> bytes:
            with self._opened(f"exec:{command}", deadline) as connection:
                return connection.read_to_end()

        return self._repeat(once, deadline, reads)

    def _shell(
        self, command: str, deadline: Deadline, stdin: bytes, sending: Callable[[], object] = lambda: None
    ) -> ShellResult:
        if "shell_v2" in self._known_features(deadline):
            with self._opened(service_v2(command), deadline, sending) as connection:
                return run_v2(connection, stdin)
        if stdin:
            raise no_stdin(self.serial)
        service, marker = service_v1(command)
        with self._opened(service, deadline, sending) as connection:
            return read_v1(connection, marker)

    def _checked(self, command: str, result: ShellResult) -> ShellResult:
        if result.status:
            said = brief(result.said) or "no output"
            raise NonZeroExit(
                f"{brief(command)!r} ended with exit status {result.status}: {said}.",
                "See what the device said.",
                serial=self.serial,
                evidence=result.said,
                status=result.status,
            )
        return result

    def stat(self, path: str, timeout_s: float = STATE_S) -> FileStat:
        """What is at `path` on the device."""
        deadline = self._deadline(timeout_s, f"stat {path!r}")
        return self._repeat(lambda: self._with_sync(deadline, lambda sync: sync.stat(path)), deadline, True)

    def list(self, path: str, timeout_s: float = 10.0) -> dict[str, FileStat]:
        """What is in the directory `path` on the device, by name; empty if it cannot be read."""
        deadline = self._deadline(timeout_s, f"list {path!r}")
        return self._repeat(lambda: self._with_sync(deadline, lambda sync: sync.list(path)), deadline, True)

    def push(self, source: Path | bytes, path: str, mode: int = 0o644) -> None:
        """Writes a local file, or these bytes, to the file `path` on the device.

        Raises:
            SyncFailed: If the device refuses, with its reason, or the local file cannot be read.
        """
        size, mtime = len(source) if isinstance(source, bytes) else 0, int(time.time())
        try:
            if isinstance(source, Path):
                size, mtime = source.stat().st_size, int(source.stat().st_mtime)
            deadline = self._deadline(file_timeout_s(size), f"push to {path!r}")
            with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
                self._with_sync(deadline, lambda sync: sync.send(file, path, mode, mtime))
        except OSError as error:
            raise self._local(f"read {source!r}", error) from error

    def pull(self, path: str, local: Path) -> int:
        """Copies the device's file `path` to `local`, which is replaced only when all of it came.

        Returns:
            Its size in bytes.

        Raises:
            SyncFailed: If the device refuses, with its reason, or the local file cannot be written.
        """
        try:
            return self._pull(path, lambda sync: receive_to(sync, path, local))
        except OSError as error:
            raise self._local(f"write {local}", error) from error

    def read_file(self, path: str) -> bytes:
        """The device's file `path`."""
        target = io.BytesIO()
        self._pull(path, lambda sync: sync.receive(path, target))
        return target.getvalue()

    def _pull(self, path: str, receive: Callable[[Sync], int]) -> int:
        size = self.stat(path).size
        return self._with_sync(self._deadline(file_timeout_s(size), f"pull {path!r}"), receive)

    def _with_sync(self, deadline: Deadline, do: Callable[[Sync], Answer]) -> Answer:
        features = self._known_features(deadline)
        with self._opened("sync:", deadline) as connection:
            sync = Sync(connection, features)
            answer = do(sync)
            sync.quit()
            return answer

    def _local(self, doing: str, error: OSError) -> SyncFailed:
        return SyncFailed(
            f"cannot {doing[:200]}: {error.strerror or error}.", "Check the local path.", serial=self.serial
        )

    def install(self, apk: Path, timeout_s: float = INSTALL_S) -> None:
        """Installs, or replaces, the app in `apk` with all permissions it asks for.

        Raises:
            SyncFailed: If it cannot be pushed.
            OutputInvalid: With the package manager's reason, if it refuses.
        """
        deadline = self._deadline(timeout_s, f"install {apk.name!r}")
        path = f"/data/local/tmp/distrl-{threading.get_ident()}.apk"
        self.push(apk, path)
        result = self.shell(f"pm install -r -g {path}; rm -f {path}", deadline.remaining())
        if "Success" not in result.text:
            raise OutputInvalid(
                f"{apk.name} was not installed: {brief(result.said)}.",
                "See the reason that the package manager gives.",
                serial=self.serial,
                evidence=result.said,
            )

    def wait_ready(self, timeout_s: float, check: Callable[[], object] = lambda: None) -> None:
        """Waits until the device answers its shell, reconnecting to it if it stays silent.

        Args:
            timeout_s: For that long.
            check: Called before each try; raises when waiting is in vain.

        Raises:
            DeviceTimeout: If it does not.
            DeviceError: What `check` raises.
        """
        deadline = self._deadline(timeout_s, "a working shell")
        last, tries = "", 0
        while True:
            patience_s = _TRY_S[min(tries, len(_TRY_S) - 1)]
            tries += 1
            check()
            try:
                self._features = None
                if self.shell("true", min(patience_s, deadline.remaining(last))).status == 0:
                    return
                last = "a shell in which `true` fails"
            except DeviceTimeout as error:
                last = str(error)
                self._nudge(deadline)
            except (TransportError, ServiceRejected, OutputInvalid) as error:
                last = str(error)
            self.sleep(min(_POLL_S, deadline.remaining(last)))

    def _nudge(self, deadline: Deadline) -> None:
        """Reconnects, if the server still can: a connection from before a snapshot stays silent for ever."""
        try:
            self.reconnect(min(STATE_S, deadline.remaining()))
        except (TransportError, ServiceRejected):
            self._features = None  # it is on its way; the wait that called this goes on looking
