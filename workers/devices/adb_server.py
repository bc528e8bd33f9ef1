"""The adb server: is it there, which devices does it list, and starting one when there is none.

A server that is started here is an ordinary `adb start-server` and stays, as with any program that uses adb.
Following the devices (`track`) needs a thread of its own: the generator belongs to it.

This is the only file that imports adbutils, for the `adb` program that it brings; `adb.py` says why its calls
are not used. Its `track_devices` cannot be stopped either.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import threading
from collections.abc import Iterator

from distrl.core.errors import MissingDependency
from distrl.workers.devices.adb import Connection, Deadline
from distrl.workers.devices.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceTimeout,
    DeviceUnauthorized,
    ServerUnavailable,
)

CALL_S = 2.0
"""Longest time for what the server answers itself."""
START_S = 20.0
"""Longest time until a server that was started answers."""
_LOOK_S = 0.25
"""How often `track` checks whether it is to stop."""
_AGAIN_S = 0.5
"""Pause before `track` connects again."""
_log = logging.getLogger(__name__)


def parse_devices(text: str) -> dict[str, str]:
    """The states of devices by serial, "device" for one that can be used, in an answer of the server's."""
    pairs = (line.partition("\t") for line in text.splitlines() if "\t" in line)
    return {serial: state.partition(" (")[0].strip() for serial, _, state in pairs}


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
        self._starting = threading.Lock()

    def version(self, timeout_s: float = CALL_S) -> int:
        """The server's protocol version. Raises ServerUnavailable if none listens."""
        return int(self.ask("host:version", timeout_s), 16)

    def devices(self, timeout_s: float = CALL_S) -> dict[str, str]:
        """The states of all devices that the server lists, in any state."""
        return parse_devices(self.ask("host:devices", timeout_s))

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

    def ensure_running(self, timeout_s: float = START_S) -> None:
        """Starts a server at this port unless one answers there already.

        Raises ServerUnavailable if none answers in time, with what adb printed.
        """
        with self._starting:
            try:
                self.version(min(CALL_S, timeout_s))
            except ServerUnavailable:
                self._start(timeout_s)

    def _start(self, timeout_s: float) -> None:
        # Without ADB_LIBUSB=0 adb 36 spends three seconds on USB before it answers.
        environment = {**os.environ, "ADB_LIBUSB": "0", "ANDROID_ADB_SERVER_PORT": str(self.port)}
        for inherited in ("ADB_SERVER_SOCKET", "ADB_TRACE", "ANDROID_ADB_SERVER_ADDRESS"):
            environment.pop(inherited, None)
        command = [adb_path(), "-P", str(self.port), "start-server"]
        said = ""
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                start_new_session=True,  # keeps Ctrl-C from the server
                check=False,
            )
            said = done.stdout.decode("utf-8", "replace").strip()
            self.version()  # whatever adb reports: another process may have been faster
        except (OSError, subprocess.TimeoutExpired, ServerUnavailable, DeviceTimeout) as error:
            raise ServerUnavailable(
                f"no adb server could be started at port {self.port}: {said[-200:] or error}",
                "Start one by hand with `adb start-server` to see the reason.",
                evidence=said,
            ) from error

    def track(self, stop: threading.Event) -> Iterator[dict[str, str] | None]:
        """All devices, now and again after each change, until `stop` is set.

        None means that the server is not there; starting one is then tried again and again. Raises
        MissingDependency without an adb program.
        """
        known = True
        while not stop.is_set():
            try:
                self.ensure_running()
                for devices in self._changes(stop):
                    known = True
                    yield devices
            except DeviceError as error:
                if known:
                    known = False
                    _log.warning("there is no adb server: %s", error)
                    yield None
                stop.wait(_AGAIN_S)

    def _changes(self, stop: threading.Event) -> Iterator[dict[str, str]]:
        deadline, poll = Deadline(CALL_S, "host:track-devices"), select.poll()
        with Connection(self.port, deadline) as connection:
            connection.request("host:track-devices")
            poll.register(connection.socket, select.POLLIN)
            while not stop.is_set():
                if poll.poll(_LOOK_S * 1000):
                    connection.deadline = Deadline(CALL_S, "host:track-devices")
                    yield parse_devices(connection.read_text())
