"""Emulators that the pool starts itself, as members: a clone of the AVD each, or all read-only on one.

    open: claim ports ─► (clone the AVD) ─► start ─► wait until Android answers
    ladder: wait ─► reconnect ─► load snapshot ─► restart from snapshot ─► cold boot ─► reclone

The emulator is stopped by `close`, and by every step that starts it again; it keeps its ports, and so its
serial. `AvdFleet` is what the members of one AVD share; its lock, held while an AVD is cloned and an emulator
started, staggers launches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from distrl.core.errors import EnvError
from distrl.workers.devices.adb.client import AdbClient
from distrl.workers.devices.adb.console import Console
from distrl.workers.devices.adb.server import AdbServer
from distrl.workers.devices.base import Device
from distrl.workers.devices.emulator.avd import Avd, AvdStore
from distrl.workers.devices.emulator.boot import SNAPSHOT_S
from distrl.workers.devices.emulator.clone import clone
from distrl.workers.devices.emulator.ending import CONSOLE_S, end
from distrl.workers.devices.emulator.ports import PortAllocator, Ports
from distrl.workers.devices.emulator.process import GPU, EmulatorOptions, EmulatorProcess
from distrl.workers.devices.emulator.registry import Registry
from distrl.workers.devices.emulator.sdk import Sdk
from distrl.workers.devices.emulator.snapshots import snapshots_of
from distrl.workers.devices.emulator.state_dir import state_dir
from distrl.workers.devices.emulator_device import EmulatorDevice
from distrl.workers.devices.errors import DeviceDisconnected, EmulatorExited, PortInUse, SnapshotFailed
from distrl.workers.devices.pool.adb_member import (
    LOAD_LIMIT_S,
    PROBE_S,
    SERVER_START_S,
    evidence_of,
    looked_at,
    mild_steps,
)
from distrl.workers.devices.pool.claims import Claims
from distrl.workers.devices.pool.member import RecoveryStep

_log = logging.getLogger(__name__)

STAGGER_S = 2.0
"""Pause after a launch before the next one: emulators that start together slow each other down."""

CLONE_S = 600.0
"""Longest copy of an AVD, where the file system cannot share blocks."""

STOP_S, TERM_S = CONSOLE_S, 11.0
"""After the console's `kill`, and after that the signals, when an emulator is stopped to be started again."""

CLOSE_S = 1.0
"""After the console's `kill` when the pool closes: nothing of an emulator's state is kept."""


@dataclass
class AvdFleet:
    """What the members of one AVD share.

    Attributes:
        sdk, store, allocator: Whose emulator, where AVDs are, and who gives ports.
        server: The adb server that emulators tell of themselves.
        avd: The AVD's name.
        snapshot: Where episodes start; None for a cold boot.
        is_shared: All run read-only on the AVD itself.
        extra: Options for the emulator's command line.
        boot_s: Longest cold boot.
        options: What `distrl.workers.envs.backends.backend_for` takes besides the device.
        claims_folder: Where serials are claimed; the usual one when None.
        stagger_s: Between the starts of two emulators, which `launch` lets happen one at a time.
    """

    sdk: Sdk
    store: AvdStore
    allocator: PortAllocator
    server: AdbServer
    avd: str
    snapshot: str | None = None
    is_shared: bool = False
    extra: tuple[str, ...] = ()
    boot_s: float = 180.0
    options: Mapping[str, object] = field(default_factory=dict)
    claims_folder: Path | None = None
    stagger_s: float = field(default_factory=lambda: STAGGER_S)
    launch: threading.Lock = field(default_factory=threading.Lock)

    def gpu(self) -> str:
        """The GPU mode in its snapshot's manifest: it loads under no other one, nor after a cold boot."""
        for info in snapshots_of(self.store.get(self.avd)):
            if info.name == self.snapshot and info.manifest is not None:
                return info.manifest.gpu
        return GPU


class AvdMember:
    """One emulator.

    Args:
        fleet: What it shares with the others.
        index: Its number among them.
        num: How many they are: opening may have to wait for the launches of all others.
    """

    kind = "avd"

    def __init__(self, fleet: AvdFleet, index: int, num: int) -> None:
        self.id = f"{fleet.avd}-distrl-{index}"
        self.claim = f"avd-{self.id}"
        self.options: Mapping[str, object] = dict(fleet.options, snapshot=fleet.snapshot)
        launch_s = fleet.stagger_s + STOP_S + TERM_S + (0.0 if fleet.is_shared else CLONE_S)
        self.open_limit_s = max(fleet.boot_s, SNAPSHOT_S) + num * launch_s
        self._fleet = fleet
        self._closed = threading.Event()
        self._claims = Claims(fleet.claims_folder)
        self._ports: Ports | None = None
        self._process: EmulatorProcess | None = None

    def open(self) -> Device:
        """The emulator, started if it does not run."""
        if self._process is None or self._process.pid is None:
            self._start(self._fleet.snapshot)
        return looked_at(self._device())

    def probe(self) -> None:
        """Looks whether its process runs, and has its shell do nothing."""
        self._running().check()
        self._client().check("true", PROBE_S)

    def ladder(self) -> Sequence[RecoveryStep]:
        """From waiting to a new clone; what needs a snapshot, a clone or a running emulator only with it."""
        fleet, steps = self._fleet, []
        is_running = self._process is not None and self._process.pid is not None
        if is_running:
            steps += mild_steps(self._client(), fleet.server)
        else:
            again = partial(self._start, fleet.snapshot)
            steps.append(RecoveryStep("start again", again, self.open_limit_s, True))
        if fleet.snapshot is not None and is_running:
            if not fleet.is_shared:
                load = partial(self._load, fleet.snapshot)
                steps.append(RecoveryStep("load snapshot", load, LOAD_LIMIT_S, True))
            restart = partial(self._start, fleet.snapshot)
            steps.append(RecoveryStep("restart from snapshot", restart, self.open_limit_s, True))
        # A shared one begins each episode by a restart from the snapshot, however well it runs without.
        if fleet.snapshot is None or not fleet.is_shared:
            cold_s = self.open_limit_s + LOAD_LIMIT_S
            steps.append(RecoveryStep("cold boot", self._boot_cold, cold_s, True))
        if not fleet.is_shared:
            steps.append(RecoveryStep("reclone", self._reclone, self.open_limit_s, True))
        return steps

    def evidence(self) -> Mapping[str, bytes]:
        """The emulator's log, and what Android can still tell."""
        told: dict[str, bytes] = {}
        if self._process is not None:
            told["emulator.log"] = self._process.log.tail(64 * 1024).encode(errors="backslashreplace")
        if self._ports is not None:
            told |= evidence_of(self._client())
        return told

    def close(self) -> None:
        """Stops the emulator, also while another thread waits for it."""
        self._closed.set()
        self._stop(CLOSE_S)
        self._release()

    # ---- the emulator ----

    def _start(self, snapshot: str | None) -> None:
        """Starts the emulator, in place of one that runs, and waits until it can be used."""
        fleet = self._fleet
        self._stop(STOP_S)
        fleet.server.ensure_running(SERVER_START_S)
        with fleet.launch:
            if self._closed.is_set():
                raise EmulatorExited("the pool is closed.", serial=self.id)
            process = self._launch(snapshot)
            time.sleep(fleet.stagger_s)
        try:
            process.wait_booted(self._client(), None if snapshot else fleet.boot_s)
        except EnvError as error:
            self._stop(CLOSE_S)
            if isinstance(error, PortInUse):
                self._release()  # the next try takes others
            raise
        if self._closed.is_set():
            self._stop(CLOSE_S)
            self._release()
            raise EmulatorExited("the pool is closed.", serial=self.id)

    def _launch(self, snapshot: str | None) -> EmulatorProcess:
        fleet = self._fleet
        _end_orphans(fleet.avd if fleet.is_shared else self.id)
        avd = fleet.store.get(fleet.avd) if fleet.is_shared else self._own_avd()
        if self._ports is None:
            self._ports = fleet.allocator.claim()
            # A pattern, of this pool or of another one, may stand for its serial: it is taken.
            self._claims.take(f"adb-{fleet.server.port}-{self._ports.serial}")
        options = EmulatorOptions(fleet.gpu(), snapshot, fleet.is_shared, fleet.extra)
        log = state_dir() / "logs" / f"{self.id}.log"
        log.unlink(missing_ok=True)  # one file for each member, with what its present emulator says
        process = EmulatorProcess(
            fleet.sdk, avd, self._ports, options, log_file=log, adb_server_port=fleet.server.port
        )
        self._process = process  # before it runs: `close` may come at any moment
        process.start()
        if self._closed.is_set():
            process.stop(CLOSE_S)
            self._release()
            raise EmulatorExited("the pool is closed.", serial=self.id)
        return process

    def _own_avd(self) -> Avd:
        """The member's clone; made if it is not there, or older than the snapshot that it was made with."""
        store, source = self._fleet.store, self._fleet.store.get(self._fleet.avd)
        if store.exists(self.id):
            own = next((avd for avd in store.list() if avd.name == self.id), None)
            if own is not None and not self._is_outdated(source, own):
                return own
            store.delete(self.id)  # also what a process that was killed has half made or half removed
        return clone(store, source.name, self.id)

    def _is_outdated(self, source: Avd, own: Avd) -> bool:
        snapshot = None if self._fleet.snapshot is None else source.snapshots / self._fleet.snapshot
        if snapshot is None or not snapshot.is_dir():
            return False
        saved = max(path.stat().st_mtime for path in (snapshot, *snapshot.iterdir()))
        return saved > own.ini.stat().st_mtime

    def _boot_cold(self) -> None:
        """Starts it without the snapshot, and loads that: of no use where episodes cannot begin from it."""
        self._start(None)
        if self._fleet.snapshot is not None:
            self._load(self._fleet.snapshot)

    def _load(self, snapshot: str) -> None:
        self._device().load_state(snapshot)

    def _reclone(self) -> None:
        """Makes another clone, and starts from that."""
        self._stop(STOP_S)
        if self._fleet.store.exists(self.id):
            self._fleet.store.delete(self.id)
        self._start(self._fleet.snapshot)

    def _stop(self, console_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop(console_s)

    def _release(self) -> None:
        ports, self._ports = self._ports, None
        if ports is not None:
            ports.release()
        self._claims.release_all()

    # ---- the way to it ----

    def _running(self) -> EmulatorProcess:
        if self._process is None:
            raise EmulatorExited("its emulator does not run.", serial=self.id)
        return self._process

    def _client(self) -> AdbClient:
        if self._ports is None:
            raise DeviceDisconnected("its emulator does not run.", serial=self.id)
        return AdbClient(self._ports.serial, self._fleet.server.port, self._fleet.server.host)

    def _device(self) -> EmulatorDevice:
        client = self._client()
        console = Console(self._running().ports.console)
        if self._fleet.is_shared:
            return _RestartedEmulator(client, console, self._start)
        return EmulatorDevice(client, console)


def _end_orphans(avd: str) -> None:
    """Ends emulators of this AVD whose process of this tool was killed: they hold its locks, or memory."""
    registry = Registry()
    for entry in registry.entries():
        if entry.marks[:2] == ("-avd", avd) and entry.is_orphan:
            _log.warning("ending the %s, left by a process that is gone", entry.what)
            if end(entry.key, entry.marks, entry.console_port, STOP_S):
                registry.remove(entry)


class _RestartedEmulator(EmulatorDevice):
    """An emulator that shares its AVD: its console has no snapshots, so it is restarted from one.

    Args:
        client, console: As for `EmulatorDevice`.
        restart: Starts the emulator anew from a snapshot, at the same ports.
    """

    def __init__(self, client: AdbClient, console: Console, restart: Callable[[str], None]) -> None:
        super().__init__(client, console)
        self._restart = restart

    def save_state(self, name: str) -> None:
        """Raises SnapshotFailed."""
        raise SnapshotFailed(
            "an emulator that shares its AVD cannot save snapshots.",
            "Use mode writable-clone.",
            serial=self.serial,
        )

    def load_state(self, name: str) -> None:
        """Starts it again from the snapshot `name`."""
        self._restart(name)
