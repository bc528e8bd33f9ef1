"""The adb server: is it there, which devices does it list, and starting one when there is none.

A server that was running already is used and never stopped; one that `ensure_running` started is a child
process and ends with `stop` or `end`. Following the devices (`track`) needs a thread of its own: the
generator belongs to it.

This is the only file that imports adbutils, for the `adb` program that it brings. Its `list` and
`track_devices` are not used: where no server listens they start one that outlives this process, a server that
dripped bytes held a `list` with a timeout of 0.3 s for 12.8 s (ours ends on time), and `track_devices` cannot
be stopped.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from distrl.core.errors import MissingDependency
from distrl.workers.devices.adb import Connection, Deadline
from distrl.workers.devices.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceTimeout,
    DeviceUnauthorized,
    ServerUnavailable,
)
from distrl.workers.devices.processes import Entry, Registry, end_process, has_clients

_log = logging.getLogger(__name__)

CALL_S = 2.0
"""Longest time for what the server answers itself."""
START_S = 20.0
"""Longest time until a server that was started answers."""
_STOP_S = 5.0
_POLL_S = 0.05
_LOOK_S = 0.25
"""How often `track` looks whether it shall stop."""
_AGAIN_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits before `track` connects again; the last one stays."""


@dataclass(frozen=True)
class DeviceEntry:
    """A device as the server lists it, in the state "device" when it can be used, else "offline", …."""

    serial: str
    state: str


def parse_devices(text: str) -> list[DeviceEntry]:
    """The devices in an answer to `host:devices-l` or `host:track-devices-l`."""
    found = []
    for line in text.splitlines():
        serial, _, rest = line.strip().partition(" ")
        words = rest.split()
        if not serial or not words:
            continue
        found.append(
            DeviceEntry(serial, "no permissions" if words[:2] == ["no", "permissions"] else words[0])
        )
    return found


def adb_path() -> str:
    """The `adb` program, as adbutils finds or brings it. Raises MissingDependency if there is none."""
    import adbutils

    try:
        found: str = adbutils.adb_path()
    except adbutils.AdbError as error:
        raise MissingDependency(
            "there is no adb program.", "pip install adbutils, which brings one."
        ) from error
    return found


class AdbServer:
    """The adb server at one port. Several threads may share it: one starts the server, the others wait."""

    def __init__(self, port: int = 5037) -> None:
        self.port = port
        self._own: subprocess.Popen[bytes] | None = None
        self._entry: Entry | None = None
        self._starting = threading.Lock()
        self._is_over = False

    @property
    def own_pid(self) -> int | None:
        """The process that `ensure_running` started, if it is still ours."""
        return None if self._own is None else self._own.pid

    def version(self, timeout_s: float = CALL_S) -> int:
        """The server's protocol version. Raises ServerUnavailable if none listens."""
        return int(self.ask("host:version", timeout_s), 16)

    def devices(self, timeout_s: float = CALL_S) -> list[DeviceEntry]:
        """All devices that the server lists, in any state."""
        return parse_devices(self.ask("host:devices-l", timeout_s))

    def connect(self, address: str, timeout_s: float = 10.0) -> None:
        """Makes the server connect to a device at "host:port"; nothing new if it already is."""
        said = self.ask(f"host:connect:{address}", timeout_s)
        if "failed to authenticate" in said:
            raise DeviceUnauthorized(
                "it has not accepted this machine's adb key.",
                "Unlock the device and confirm the dialog on its screen.",
                serial=address,
                evidence=said,
            )
        if "connected to" not in said or "failed" in said or "cannot" in said:
            raise DeviceNotFound(
                f"no connection to {address}: {said.strip() or 'no reason given'}.",
                "Is adb over TCP on at that address (`adb tcpip 5555`)?",
                serial=address,
                evidence=said,
            )

    def ask(self, request: str, timeout_s: float = CALL_S) -> str:
        """The server's answer to one `host:` request that is answered with a text."""
        with Connection(self.port, Deadline(timeout_s, request)) as connection:
            connection.request(request)
            return connection.read_text()

    # A server of our own

    def ensure_running(self, timeout_s: float = START_S) -> None:
        """Starts a server at this port unless one answers there already.

        Raises ServerUnavailable if none answers in time, with what it printed.
        """
        if not self._starting.acquire(timeout=timeout_s):
            raise ServerUnavailable(f"the start of an adb server at port {self.port} takes too long.")
        try:
            if self._is_over:
                raise ServerUnavailable("the pool of devices is closed.")
            self.version(min(CALL_S, timeout_s))
        except ServerUnavailable:
            if self._is_over:
                raise
            with tempfile.TemporaryFile() as log:
                self._start(log)
                self._wait_up(Deadline(timeout_s, "the start of an adb server"), log)
        finally:
            self._starting.release()

    def _start(self, log: IO[bytes]) -> None:
        # Without ADB_LIBUSB=0 adb 36 spends three seconds on USB before it answers; `nodaemon` keeps it our
        # child, so that its process id is known, and a session of its own keeps Ctrl-C from it.
        environment = {**os.environ, "ADB_LIBUSB": "0", "ANDROID_ADB_SERVER_PORT": str(self.port)}
        for inherited in ("ADB_SERVER_SOCKET", "ADB_TRACE", "ANDROID_ADB_SERVER_ADDRESS"):
            environment.pop(inherited, None)
        self._own = subprocess.Popen(
            [adb_path(), "-P", str(self.port), "server", "nodaemon"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _wait_up(self, deadline: Deadline, log: IO[bytes]) -> None:
        assert self._own is not None
        while True:
            try:
                self.version(min(CALL_S, max(deadline.left, _POLL_S)))
                break
            except (ServerUnavailable, DeviceTimeout) as error:
                # It listens before it answers: the first time it makes a key, which takes a moment.
                has_ended = self._own.poll() is not None
                if has_ended or not deadline.left:
                    _end(self._own)
                    self._own = None
                    log.seek(0)
                    said = log.read()[-2000:].decode("utf-8", "replace").strip()
                    raise ServerUnavailable(
                        f"an adb server was started at port {self.port} and "
                        f"{'ended at once' if has_ended else 'does not answer'}: "
                        f"{said[-200:] or 'it printed nothing'}.",
                        "Start one by hand with `adb start-server` to see the reason.",
                        evidence=said,
                    ) from error
                time.sleep(_POLL_S)
        if self._own.poll() is not None:
            self._own = None  # another process was faster at this port: that server is not ours
            return
        # Should this process be killed, `distrl cleanup` finds the server by its entry.
        what = f"adb server at port {self.port}"
        self._entry = Registry().add(self._own.pid, what, shared_port=self.port)

    def stop(self) -> None:
        """Ends the server if this tool started it and no other process uses it; other servers are left alone.

        One that other processes are connected to is left to the last of them that calls this, or to
        `distrl cleanup`.
        """
        own, entry, registry = self._own, self._entry, Registry()
        self._own = self._entry = None
        if own is None:  # one that another process of this tool started and left
            for left in registry.entries():
                if left.shared_port == self.port and left.is_orphan and not has_clients(self.port):
                    end_process(left.key)
                    registry.remove(left)
            return
        if entry is not None:  # first: a client that leaves at this moment sees either it or no clients
            registry.disown(entry)
        if own.poll() is None and has_clients(self.port):
            _log.info("the adb server at port %d is left to other processes that use it", self.port)
            return
        _end(own)
        if entry is not None:
            registry.remove(entry)

    def end(self) -> None:
        """As `stop`, and no thread can start another server afterwards."""
        self._is_over = True
        with self._starting:
            self.stop()

    # Following the devices

    def track(self, stop: threading.Event) -> Iterator[list[DeviceEntry] | None]:
        """All devices, now and again after each change, until `stop` is set.

        None means that the server is not there; connecting is then tried again and again. No server is
        started.
        """
        failures, known = 0, True
        while not stop.is_set():
            try:
                for devices in self._changes(stop):
                    failures, known = 0, True
                    yield devices
            except DeviceError:
                if known:
                    known = False
                    yield None
                stop.wait(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])
                failures += 1

    def _changes(self, stop: threading.Event) -> Iterator[list[DeviceEntry]]:
        deadline = Deadline(CALL_S, "host:track-devices-l")
        with Connection(self.port, deadline) as connection:
            connection.request("host:track-devices-l")
            while not stop.is_set():
                if _readable(connection):
                    connection.deadline = Deadline(CALL_S, "host:track-devices-l")
                    yield parse_devices(connection.read_text())


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _readable(connection: Connection) -> bool:
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    return bool(poll.poll(_LOOK_S * 1000))
