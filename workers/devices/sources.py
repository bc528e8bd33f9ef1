"""The pool that a configuration asks for: its members, and the tracker of the adb server's list.

`AdbTracker` is one thread. It waits for the server's next list and, while there is no server, for the start
of one; it meets the pool at the pool's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from distrl.configs.devices import AdbMembers, AvdMembers, DevicesConfig, PhoneMembers, SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.importing import import_object
from distrl.workers.devices.adb import Display
from distrl.workers.devices.adb_server import AdbServer, DeviceEntry
from distrl.workers.devices.avd import AvdStore
from distrl.workers.devices.errors import DeviceError, EmulatorError
from distrl.workers.devices.guard import GuardPolicy
from distrl.workers.devices.health import HEALTH, Health, ManagedDevice
from distrl.workers.devices.members import AdbMember, AvdFleet, AvdMember, PhoneMember
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.postmortem import Postmortems
from distrl.workers.devices.recipes import Recipe
from distrl.workers.devices.sdk import find_sdk
from distrl.workers.devices.snapshots import get_snapshot

SIMULATED = "distrl.simulator.device:SimMember"


def make_pool(config: Config, limit: int, health: Health = HEALTH) -> DevicePool:
    """The pool of `config.devices`, not started yet.

    Args:
        limit: The most devices that are opened.
        health: Timings of probes and rests.

    Raises:
        ConfigError: A recipe, a guard or the adb server's port is wrong, or there is no such AVD or snapshot.
        MissingDependency: A program is not installed.
    """
    devices = config.devices
    postmortems = Postmortems(lambda: postmortem_folder(config))
    members: list[ManagedDevice] = []
    for number, part in enumerate(devices.pool):
        if isinstance(part, SimMembers):
            names = (f"sim-{number}-{index}" for index in range(part.count))
            members += [import_object(SIMULATED)(name, part.width, part.height) for name in names]
    tracker: AdbTracker | None = None
    if any(not isinstance(part, SimMembers) for part in devices.pool):
        behind_adb, tracker = _behind_adb(devices)
        members += behind_adb
    return DevicePool(members, health, limit, postmortems, tracker=tracker, close_s=devices.close_s)


def postmortem_folder(config: Config) -> Path:
    """Where post-mortems go: the run's directory if it is on this machine, else beside it."""
    runs = Path(config.runs_dir).expanduser()
    run = runs / config.name
    return run / "postmortems" if run.is_dir() else runs / ".postmortems" / config.name


def _behind_adb(devices: DevicesConfig) -> tuple[list[ManagedDevice], AdbTracker]:
    """The members that are opened without being listed first, and the tracker of all others."""
    server = AdbServer(port=devices.server_port())
    members: list[ManagedDevice] = []
    tracked: list[tuple[str, Callable[[str], ManagedDevice]]] = []
    for part in devices.pool:
        if isinstance(part, AvdMembers):
            members += _emulators(part, server)
        elif isinstance(part, AdbMembers | PhoneMembers):
            make = _maker(part, server)
            for serial in part.serials:
                if ":" in serial and not is_pattern(serial):  # listed only once it was connected to
                    members.append(make(serial))
                else:
                    tracked.append((serial, make))
    # A serial that is named is what it is named as, whatever patterns it fits.
    tracked.sort(key=lambda pair: is_pattern(pair[0]))
    return members, AdbTracker(server, tracked)


def _maker(part: AdbMembers | PhoneMembers, server: AdbServer) -> Callable[[str], ManagedDevice]:
    display, options = Display(part.display, part.input_display), _options(part)
    if isinstance(part, AdbMembers):
        return lambda serial: AdbMember(serial, server, part.snapshot, display, options)
    recipe = Recipe.of(part.recipe)
    return lambda serial: PhoneMember(serial, server, recipe, part.reboot, display, options)


def _options(part: AdbMembers | PhoneMembers | AvdMembers) -> Mapping[str, object]:
    """Options of environments on real devices, checked now and not at the first episode."""
    guard = GuardPolicy.of(part.guard) if isinstance(part.guard, Mapping) else part.guard
    recipe = Recipe.of(part.recipe)
    if recipe.hook:
        import_object(recipe.hook)
    return {"recipe": recipe, "guard": guard}


def _emulators(part: AvdMembers, server: AdbServer) -> list[ManagedDevice]:
    fleet = AvdFleet(
        find_sdk(part.sdk, option="`sdk` of its entry in devices.pool"),
        AvdStore(Path(part.avd_home).expanduser() if part.avd_home else None),
        server,
        part.avd,
        part.snapshot,
        part.mode == "read-only",
        tuple(part.options),
        part.boot_s,
        _options(part),
    )
    try:
        avd = fleet.store.get(part.avd)
        if part.snapshot is not None:
            get_snapshot(avd, part.snapshot)
    except EmulatorError as error:  # starting again would not help
        raise ConfigError(f"devices.pool: {error.message}", error.remedy) from error
    return [AvdMember(fleet, index, part.count) for index in range(part.count)]


START_AGAIN_S = 2.0
"""Pause after an adb server could not be started."""

_log = logging.getLogger(__name__)


def is_pattern(serial: str) -> bool:
    """Whether `serial` stands for all that fit it."""
    return any(character in serial for character in "*?[")


class AdbTracker:
    """Reports to a pool which devices the adb server lists.

    Args:
        server: The adb server; started if there is none, and then stopped by `close`.
        serials: Serials and patterns, each with what makes a member of a serial. The first that fits counts.
    """

    def __init__(
        self, server: AdbServer, serials: Sequence[tuple[str, Callable[[str], ManagedDevice]]] = ()
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
                self._report(pool, entries)
        except BaseException as error:  # noqa: BLE001 - the pool raises it where devices are asked for
            pool.crashed(error)

    def _report(self, pool: DevicePool, listed: Sequence[DeviceEntry] | None) -> None:
        """Passes one list on; None: the server was lost, and the devices' states are unknown."""
        if listed is None and self._had_devices:
            pool.server_lost()
        entries = listed or ()
        states: dict[str, str | None] = dict.fromkeys(pool.states())
        for entry in entries:
            make = self._maker(entry.serial)
            if entry.serial not in states and make is not None:  # also one that had left the pool
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
        """Returns when there is an adb server, or the tracker is to stop."""
        is_reported = False
        while not self._stop.is_set():
            try:
                self._server.ensure_running()
                return
            except DeviceError as error:
                if not is_reported:
                    _log.warning("there is no adb server: %s", error)
                    is_reported = True
                self._stop.wait(START_AGAIN_S)
