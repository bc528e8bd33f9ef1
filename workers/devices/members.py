"""Members of the pool behind adb: devices that run already (`AdbMember`), phones, and emulators it starts.

    AvdMember.open:   claim ports ─► (clone the AVD) ─► start ─► wait until Android answers
    AvdMember.ladder: wait ─► reconnect ─► load snapshot ─► restart from snapshot ─► cold boot ─► reclone

A started emulator is stopped by `close`, and by every step that starts it again; it keeps its ports, and so
its serial. `AvdFleet` is what the members of one AVD share; its lock, held while an AVD is cloned and an
emulator started, staggers launches.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from distrl.core.errors import EnvError
from distrl.workers.devices.adb import DEFAULT_DISPLAY, AdbClient, Display
from distrl.workers.devices.adb_device import AdbDevice, EmulatorDevice
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.avd import Avd, AvdStore, clone
from distrl.workers.devices.claims import CONSOLE_PORTS, Claims, Ports, claim_ports
from distrl.workers.devices.console import Console
from distrl.workers.devices.device import Device
from distrl.workers.devices.emulator import GPU, SNAPSHOT_S, EmulatorOptions, EmulatorProcess, wait_booted
from distrl.workers.devices.errors import (
    BlankFrame,
    DeviceDisconnected,
    EmulatorError,
    EmulatorExited,
    PortInUse,
    SnapshotFailed,
    TransportError,
)
from distrl.workers.devices.health import RecoveryStep
from distrl.workers.devices.processes import CONSOLE_S, Registry, end_process
from distrl.workers.devices.recipes import Cook, Recipe
from distrl.workers.devices.sdk import Sdk
from distrl.workers.devices.snapshots import snapshots_of

OPEN_S = 60.0
"""Longest opening: the server's start, a connection, a screenshot, a key and another screenshot."""
WAKE_S = 5.0

WAIT_S = 5.0
PROBE_S = 4.0
"""Shorter than the pool's limit, so that the device's own error is reported."""

SERVER_START_S, CONNECT_S = 20.0, 10.0
SETTLE_S = 10.0
"""Until a reconnected device answers its shell."""

LOAD_LIMIT_S, RESET_LIMIT_S, REBOOT_S = 70.0, 180.0, 180.0
DOWN_S, LOOK_S = 60.0, 0.5
"""How long a phone that restarts may continue to run, and how often that is looked at."""
_BOOT = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
EVIDENCE_S = 4.0
LOG_LINES = 500


class AdbMember:
    """One device behind adb.

    Args:
        serial: As the adb server lists it.
        snapshot: For an emulator: episodes start from it, and it is loaded when nothing milder helps.
        display: Which of its displays is used.
        options: What `distrl.workers.envs.backends.backend_for` takes besides the device.
    """

    kind = "adb"
    open_limit_s = OPEN_S

    def __init__(
        self,
        serial: str,
        server: AdbServer,
        snapshot: str | None = None,
        display: Display = DEFAULT_DISPLAY,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.id = serial
        self.claim = f"adb-{server.port}-{serial}"
        self.options: Mapping[str, object] = dict(options or {}, snapshot=snapshot)
        self._server, self._snapshot = server, snapshot
        self._client = AdbClient(serial, server.port, display=display)

    def open(self) -> Device:
        """The device, after it has shown its screen."""
        connect(self.id, self._server)
        return looked_at(device_of(self._client))

    def probe(self) -> None:
        """Runs `true` in its shell."""
        self._client.check("true", PROBE_S)

    def ladder(self) -> Sequence[RecoveryStep]:
        """Wait for it, reconnect, and for an emulator with a snapshot: load that."""
        return [*mild_steps(self._client, self._server), *self._snapshot_step()]

    def _snapshot_step(self) -> list[RecoveryStep]:
        device = device_of(self._client)
        if self._snapshot is None or not isinstance(device, EmulatorDevice):
            return []
        name = self._snapshot
        return [RecoveryStep("load snapshot", lambda: device.load_state(name), LOAD_LIMIT_S, True)]

    def evidence(self) -> Mapping[str, bytes]:
        """Its state, the end of its log, and what it shows."""
        return evidence_of(self._client)

    def close(self) -> None:
        """Nothing is held: the device was started elsewhere."""


class PhoneMember(AdbMember):
    """One physical phone, which has no snapshots: `recipe` resets it, and it may be restarted."""

    kind = "phone"

    def __init__(
        self,
        serial: str,
        server: AdbServer,
        recipe: Recipe,
        may_reboot: bool = False,
        display: Display = DEFAULT_DISPLAY,
        options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(serial, server, display=display, options=options)
        self._recipe, self._may_reboot = recipe, may_reboot

    def ladder(self) -> Sequence[RecoveryStep]:
        """Wait for it, reconnect, reset it by its recipe, and restart it if it may be."""
        reset = RecoveryStep("reset", self._reset, RESET_LIMIT_S + self._recipe.ready_s)
        reboot = RecoveryStep("reboot", self._reboot, DOWN_S + REBOOT_S + 4 * WAIT_S, True)
        return [*mild_steps(self._client, self._server), reset, *([reboot] if self._may_reboot else [])]

    def _reset(self) -> None:
        cook = Cook(self._client, self._recipe)
        cook.apply()
        cook.verify()

    def _reboot(self) -> None:
        before = self._boot()
        with contextlib.suppress(TransportError):  # it may go before it answers
            self._client.shell("reboot", WAIT_S)
        # The system that is going down would pass for one that has booted.
        deadline = time.monotonic() + DOWN_S
        while before and self._boot() == before and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        wait_booted(self._client, REBOOT_S)

    def _boot(self) -> str:
        """What names the boot that it runs in; "" while it does not answer."""
        try:
            return self._client.shell(_BOOT, WAIT_S, reads=True).text.strip()
        except EnvError:
            return ""


def connect(serial: str, server: AdbServer) -> None:
    """Makes sure that there is a server, and that it is connected to a device on the network."""
    server.ensure_running(SERVER_START_S)
    if ":" in serial:
        server.connect(serial, CONNECT_S)


def device_of(client: AdbClient) -> AdbDevice:
    """The device behind `client`; one whose serial is an emulator's has a console."""
    name, _, port = client.serial.partition("-")
    is_emulator = name == "emulator" and port.isdecimal()
    return EmulatorDevice(client, Console(int(port))) if is_emulator else AdbDevice(client)


def looked_at(device: AdbDevice) -> Device:
    """`device`, after it has shown a screen that is not blank. One that sleeps is woken for that."""
    try:
        device.screenshot()
    except BlankFrame:
        device.client.act("input keyevent KEYCODE_WAKEUP", WAKE_S)  # awake already, it does nothing
        device.screenshot()
    return device


def mild_steps(client: AdbClient, server: AdbServer) -> list[RecoveryStep]:
    """Waiting for a device, and reconnecting to it."""

    def wait() -> None:
        connect(client.serial, server)
        client.wait_ready(WAIT_S)

    def reconnect() -> None:
        client.reconnect()
        client.wait_ready(SETTLE_S)

    return [
        RecoveryStep("wait", wait, SERVER_START_S + CONNECT_S + WAIT_S),
        RecoveryStep("reconnect", reconnect, SETTLE_S + WAIT_S),
    ]


def evidence_of(client: AdbClient) -> dict[str, bytes]:
    """State, log and screen of a device behind adb, up to the first query without an answer."""
    questions: tuple[tuple[str, Callable[[], bytes]], ...] = (
        ("adb-state.txt", lambda: client.state().encode()),
        ("logcat.txt", lambda: client.shell(f"logcat -d -t {LOG_LINES}", EVIDENCE_S).out),
        ("screen-now.png", lambda: client.exec_out(client.display.screencap, EVIDENCE_S)),
    )
    found: dict[str, bytes] = {}
    for name, ask in questions:
        try:
            found[name] = ask()
        except EnvError as error:
            found[f"no-{name}.txt"] = str(error).encode(errors="backslashreplace")
            break
    return found


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
        snapshot: Where episodes start; None for a cold boot.
        is_shared: All run read-only on the AVD itself.
        extra: Options for the emulator's command line.
        boot_s: Longest cold boot.
        options: What `distrl.workers.envs.backends.backend_for` takes besides the device.
        console_ports: From which the emulators' are chosen.
        launch: Held from a start until `STAGGER_S` after it.
    """

    sdk: Sdk
    store: AvdStore
    server: AdbServer
    avd: str
    snapshot: str | None = None
    is_shared: bool = False
    extra: tuple[str, ...] = ()
    boot_s: float = 180.0
    options: Mapping[str, object] = field(default_factory=dict)
    console_ports: Sequence[int] = CONSOLE_PORTS
    launch: threading.Lock = field(default_factory=threading.Lock)

    def gpu(self) -> str:
        """The GPU mode in its snapshot's manifest: it loads under no other one, nor after a cold boot."""
        known = {info.name: info.manifest for info in snapshots_of(self.store.get(self.avd))}
        manifest = known.get(self.snapshot or "")
        return GPU if manifest is None else manifest.gpu


class AvdMember:
    """One emulator, number `index` of `num`: opening may have to wait for the launches of all others."""

    kind = "avd"

    def __init__(self, fleet: AvdFleet, index: int, num: int) -> None:
        self.id = f"{fleet.avd}-distrl-{index}"
        self.claim = f"avd-{self.id}"
        self.options: Mapping[str, object] = dict(fleet.options, snapshot=fleet.snapshot)
        launch_s = STAGGER_S + STOP_S + TERM_S + (0.0 if fleet.is_shared else CLONE_S)
        self.open_limit_s = max(fleet.boot_s, SNAPSHOT_S) + num * launch_s
        self._fleet = fleet
        self._closed = threading.Event()
        self._claims = Claims()
        self._ports: Ports | None = None
        self._process: EmulatorProcess | None = None

    def open(self) -> Device:
        """The emulator, started if it does not run."""
        if self._process is None or self._process.pid is None:
            self._start(self._fleet.snapshot)
        return looked_at(self._device())

    def probe(self) -> None:
        """Checks that its process runs, and runs `true` in its shell."""
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
        """The emulator's log, and `evidence_of` it."""
        found: dict[str, bytes] = {}
        if self._process is not None:
            found["emulator.log"] = self._process.log.tail(64 * 1024).encode(errors="backslashreplace")
        if self._ports is not None:
            found |= evidence_of(self._client())
        return found

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
            process = self._launch(snapshot)
            time.sleep(STAGGER_S)
        try:
            process.wait_booted(self._client(), None if snapshot else fleet.boot_s)
        except EnvError as error:
            self._stop(CLOSE_S)
            if isinstance(error, PortInUse):
                self._release()  # the next attempt takes others
            raise

    def _launch(self, snapshot: str | None) -> EmulatorProcess:
        fleet = self._fleet
        self._require_open()
        _end_orphans(fleet.avd if fleet.is_shared else self.id)
        avd = fleet.store.get(fleet.avd) if fleet.is_shared else self._own_avd()
        if self._ports is None:
            self._ports = claim_ports(candidates=fleet.console_ports)
            # A pattern, of this pool or of another one, may stand for its serial: it is taken.
            self._claims.take(f"adb-{fleet.server.port}-{self._ports.serial}")
        options = EmulatorOptions(fleet.gpu(), snapshot, fleet.is_shared, fleet.extra)
        process = EmulatorProcess(fleet.sdk, avd, self._ports, options, adb_server_port=fleet.server.port)
        self._process = process  # before it runs: `close` may come at any moment
        process.start()
        if self._closed.is_set():  # `close` came too early to find it; later it ends it under `wait_booted`
            process.stop(CLOSE_S)
        self._require_open()
        return process

    def _require_open(self) -> None:
        if self._closed.is_set():
            self._release()
            raise EmulatorExited("the pool is closed.", serial=self.id)

    def _own_avd(self) -> Avd:
        """The member's clone; made if it is not there, or older than the snapshot that it was made with."""
        store, source = self._fleet.store, self._fleet.store.get(self._fleet.avd)
        if store.exists(self.id):
            with contextlib.suppress(EmulatorError):  # it is incomplete
                own = store.get(self.id)
                if not self._is_outdated(source, own):
                    return own
            store.delete(self.id)
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
        process = self._process
        if process is None:
            raise EmulatorExited("its emulator does not run.", serial=self.id)
        return process

    def _client(self) -> AdbClient:
        if self._ports is None:
            raise DeviceDisconnected("its emulator does not run.", serial=self.id)
        return AdbClient(self._ports.serial, self._fleet.server.port)

    def _device(self) -> EmulatorDevice:
        client = self._client()
        console = Console(self._running().ports.console)
        if self._fleet.is_shared:
            return _RestartedEmulator(client, console, self._start)
        return EmulatorDevice(client, console)


def _end_orphans(avd: str) -> None:
    """Ends emulators of this AVD that a killed process of this tool left: they hold its locks, or memory."""
    registry = Registry()
    for entry in registry.entries():
        if entry.what.startswith(f"emulator of AVD {avd} at ") and entry.is_orphan:
            _log.warning("ending the %s, left by a process that is gone", entry.what)
            if end_process(entry.key, entry.console_port, STOP_S):
                registry.remove(entry)


class _RestartedEmulator(EmulatorDevice):
    """An emulator that shares its AVD: its console has no snapshots, so `restart` starts it from one."""

    def __init__(self, client: AdbClient, console: Console, restart: Callable[[str], None]) -> None:
        super().__init__(client, console)
        self._restart = restart

    def save_state(self, name: str) -> None:
        """Raises SnapshotFailed."""
        message = "an emulator that shares its AVD cannot save snapshots."
        raise SnapshotFailed(message, "Use mode writable-clone.", serial=self.serial)

    def load_state(self, name: str) -> None:
        """Starts it again from the snapshot `name`."""
        self._restart(name)
