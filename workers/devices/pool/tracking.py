"""Following the adb server's list of devices: what joins and leaves the pool, and what became of the server.

One thread. It waits for the server's next word (a generator that looks at `stop` all the time) and, while
there is no server, for the start of one. It meets the pool at the pool's lock.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from distrl.workers.devices.adb.server import DeviceEntry
from distrl.workers.devices.errors import DeviceError
from distrl.workers.devices.pool.member import ManagedDevice
from distrl.workers.devices.pool.pool import DevicePool
from distrl.workers.devices.pool.pool_server import PoolServer

START_AGAIN_S = 2.0
"""Pause after an adb server could not be started."""

_IPV6 = re.compile(r"\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\](:\d+)?")
"""An address in the network, such as "[::1]:5555": its brackets are no choice of characters."""

_log = logging.getLogger(__name__)


def is_pattern(serial: str) -> bool:
    """Whether `serial` stands for all that fit it."""
    return any(character in serial for character in "*?[") and not _IPV6.fullmatch(serial)


class AdbTracker:
    """Tells a pool which devices the adb server lists.

    Args:
        server: The adb server; started if there is none, and then stopped by `close`.
        serials: Serials and patterns, each with what makes a member of a serial. The first that fits counts.
    """

    def __init__(
        self, server: PoolServer, serials: Sequence[tuple[str, Callable[[str], ManagedDevice]]] = ()
    ) -> None:
        self._server, self._serials = server, serials
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._had_devices = False  # tracker thread only

    def start(self, pool: DevicePool) -> None:
        """Adds the devices that are named, and follows the list in the background."""
        for serial, make in self._serials:
            if not is_pattern(serial):
                pool.join(make(serial))
        self._thread = threading.Thread(target=self._run, args=(pool,), name="adb-tracker", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ends the thread, and the server if it is ours."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._server.end()

    # ---- tracker thread ----

    def _run(self, pool: DevicePool) -> None:
        try:
            self._ensure_server()
            for entries in self._server.track(self._stop):
                self._tell(pool, entries)
        except BaseException as error:  # noqa: BLE001 - the pool raises it where devices are asked for
            pool.crashed(error)

    def _tell(self, pool: DevicePool, listed: Sequence[DeviceEntry] | None) -> None:
        """Hands on one list; None: the server was lost, and nobody knows what of the devices."""
        if listed is None and self._had_devices:
            pool.server_lost()
        entries = listed or ()
        states: dict[str, str | None] = dict.fromkeys(pool.states())
        for entry in entries:
            make = self._maker(entry.serial)
            if entry.serial not in states and make is not None:  # also one that was forgotten meanwhile
                _log.info("device %s joins the pool", entry.serial)
                pool.join(make(entry.serial), forget=True)
            states[entry.serial] = entry.state
        pool.listed(states)
        self._had_devices = bool(entries)
        if listed is None:
            self._ensure_server()

    def _maker(self, serial: str) -> Callable[[str], ManagedDevice] | None:
        return next((make for pattern, make in self._serials if fnmatchcase(serial, pattern)), None)

    def _ensure_server(self) -> None:
        """Returns when there is an adb server, or the tracker shall stop."""
        is_told = False
        while not self._stop.is_set():
            try:
                self._server.ensure_running()
                return
            except DeviceError as error:
                if not is_told:
                    _log.warning("there is no adb server: %s", error)
                    is_told = True
                self._stop.wait(START_AGAIN_S)
