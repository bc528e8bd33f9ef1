"""Members of the pool behind adb: devices and phones that run already, and emulators that the pool starts.

    AvdMember.open:   claim ports ─► (clone the AVD) ─► start ─► wait until Android answers
    AvdMember.ladder: wait ─► reconnect ─► load snapshot ─► restart from snapshot ─► cold boot ─► reclone

A started emulator is stopped by `close`, and by every step that starts it again; it keeps its ports, and so
its serial.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from distrl.configs.devices import AdbMembers, AvdMembers, PhoneMembers
from distrl.core.errors import ConfigError, EnvError
from distrl.core.user_errors import read_fields
from distrl.workers.devices.adb import AdbClient, Deadline, Display
from distrl.workers.devices.adb_device import AdbDevice, EmulatorDevice
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.avd import Avd, AvdStore, clone
from distrl.workers.devices.claims import CONSOLE_PORTS, Claims, Ports, claim_ports
from distrl.workers.devices.console import Console
from distrl.workers.devices.device import Device
from distrl.workers.devices.emulator import GPU, EmulatorOptions, EmulatorProcess, wait_booted
from distrl.workers.devices.errors import (
    BlankFrame,
    DeviceDisconnected,
    EmulatorError,
    EmulatorExited,
    NotReady,
    PortInUse,
    TransportError,
)
from distrl.workers.devices.guard import GuardPolicy
from distrl.workers.devices.processes import CONSOLE_S, Registry, end_process
from distrl.workers.devices.recipes import Cook, Recipe
from distrl.workers.devices.sdk import find_sdk
from distrl.workers.devices.snapshots import get_snapshot
from distrl.workers.devices.table import RecoveryStep

BOOT_S = 60.0
"""How long a device that boots may still take: adb lists it long before Android can be used."""
OPEN_S = BOOT_S + 60.0
"""Longest opening: the server's start, a connection, a boot, a screenshot, a key and another screenshot."""
WAKE_S, WAIT_S = 5.0, 5.0
PROBE_S = 4.0
"""Shorter than the pool's limit, so that the device's own error is reported."""
SERVER_START_S, CONNECT_S = 20.0, 10.0
SETTLE_S = 10.0
"""Until a reconnected device answers its shell."""
LOAD_LIMIT_S, RESET_LIMIT_S, REBOOT_S = 70.0, 180.0, 180.0
DOWN_S, LOOK_S = 60.0, 0.5
"""How long a phone that restarts may continue to run, and how often that is looked at."""
EVIDENCE_S = 4.0
LOG_LINES = 500
STAGGER_S = 2.0
"""Pause after a launch before the next one: emulators that start together slow each other down."""
CLONE_S = 600.0
"""Longest copy of an AVD, where the file system cannot share blocks."""
STOP_S, TERM_S = CONSOLE_S, 11.0
"""After the console's `kill`, and after that the signals, when an emulator is stopped to be started again."""
CLOSE_S = 1.0
"""After the console's `kill` when the pool closes: nothing of an emulator's state is kept."""
_BOOT = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
_log = logging.getLogger(__name__)


def env_options(part: AdbMembers | PhoneMembers | AvdMembers) -> Mapping[str, object]:
    """What `backend_for` takes for an environment on such a device. Raises ConfigError if it is wrong."""
    recipe = read_fields(Recipe, part.recipe, "recipe")
    guard = read_fields(GuardPolicy, part.guard, "guard") if isinstance(part.guard, Mapping) else part.guard
    snapshot = None if isinstance(part, PhoneMembers) else part.snapshot
    return {"recipe": recipe, "guard": guard, "snapshot": snapshot}


class AdbMember:
    """One device behind adb that was started elsewhere: an emulator, or a physical phone.

    A phone has no snapshots: its recipe resets it, and it may be restarted.
    """

    open_limit_s = OPEN_S

    def __init__(self, serial: str, part: AdbMembers | PhoneMembers, server: AdbServer) -> None:
        self.id = serial
        self.claim = f"adb-{server.port}-{serial}"
        self.options = env_options(part)
        self._part, self._server = part, server
        display = Display(part.display, part.input_display)
        self._client = AdbClient(serial, server.port, display=display)

    def open(self) -> Device:
        """The device, after it has booted and shown its screen."""
        connect(self.id, self._server)
        deadline = Deadline(BOOT_S)
        while self._client.check("getprop sys.boot_completed", WAIT_S, reads=True).text.strip() != "1":
            if not deadline.left:
                raise NotReady(
                    f"it has not booted after {BOOT_S:g} s.", "Look at its screen.", serial=self.id
                )
            time.sleep(LOOK_S)
        return looked_at(device_of(self._client))

    def probe(self) -> None:
        """Runs `true` in its shell."""
        self._client.check("true", PROBE_S)

    def ladder(self) -> Sequence[RecoveryStep]:
        """Wait and reconnect; then load an emulator's snapshot, or reset and restart a phone."""
        steps = mild_steps(self._client, self._server)
        if isinstance(self._part, PhoneMembers):
            recipe = Recipe.model_validate(self._part.recipe)
            steps.append(RecoveryStep("reset", partial(self._reset, recipe), RESET_LIMIT_S + recipe.ready_s))
            if self._part.reboot:
                limit_s = DOWN_S + REBOOT_S + 4 * WAIT_S
                steps.append(RecoveryStep("reboot", self._reboot, limit_s, destructive=True))
            return steps
        device = device_of(self._client)
        if self._part.snapshot is not None and isinstance(device, EmulatorDevice):
            load = partial(device.load_state, self._part.snapshot)
            steps.append(RecoveryStep("load snapshot", load, LOAD_LIMIT_S, destructive=True))
        return steps

    def evidence(self) -> Mapping[str, bytes]:
        """Its state, the end of its log, and what it shows."""
        return evidence_of(self._client)

    def close(self) -> None:
        """Nothing is held: the device was started elsewhere."""

    def _reset(self, recipe: Recipe) -> None:
        connect(self.id, self._server)
        cook = Cook(self._client, recipe)
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
        connect(client.serial, server)  # the server forgets what is off the network for a minute
        client.wait_ready(SETTLE_S)

    return [
        RecoveryStep("wait", wait, SERVER_START_S + CONNECT_S + WAIT_S),
        RecoveryStep("reconnect", reconnect, SERVER_START_S + CONNECT_S + SETTLE_S + WAIT_S),
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


class AvdMember:
    """One emulator, number `index` of the AVD's, on a clone of its own.

    Args:
        launch: Shared by the emulators of an AVD and held from a start until `STAGGER_S` after it: opening
            may have to wait for all others.

    Raises ConfigError if there is no such AVD or snapshot, and MissingDependency without an emulator.
    """

    console_ports: Sequence[int] = CONSOLE_PORTS

    def __init__(self, part: AvdMembers, index: int, server: AdbServer, launch: threading.Lock) -> None:
        self.id = f"{part.avd}-distrl-{index}"
        self.claim = f"avd-{self.id}"
        self.options = env_options(part)
        launch_s = STAGGER_S + STOP_S + TERM_S + CLONE_S
        self.open_limit_s = part.boot_s + part.count * launch_s
        self._part, self._server, self._launch_lock = part, server, launch
        self._sdk = find_sdk(part.sdk)
        self._store = AvdStore(Path(part.avd_home).expanduser() if part.avd_home else None)
        self._snapshot = part.snapshot
        self._gpu = GPU
        try:
            source = self._store.get(part.avd)
            manifest = get_snapshot(source, part.snapshot).manifest if part.snapshot is not None else None
        except EmulatorError as error:  # starting again would not help
            raise ConfigError(f"devices.pool: {error.message}", error.remedy) from error
        if manifest is not None:
            self._gpu = manifest.gpu  # a snapshot loads under no other one, nor after a cold boot
        self._closed = threading.Event()
        self._claims = Claims()
        self._ports: Ports | None = None
        self._process: EmulatorProcess | None = None

    def open(self) -> Device:
        """The emulator, started if it does not run."""
        if self._process is None or self._process.pid is None:
            self._start(self._snapshot)
        return looked_at(self._device())

    def probe(self) -> None:
        """Checks that its process runs, and runs `true` in its shell."""
        self._running().check()
        self._client().check("true", PROBE_S)

    def ladder(self) -> Sequence[RecoveryStep]:
        """From waiting to a new clone; what needs a snapshot or a running emulator only with it."""
        again = partial(self._start, self._snapshot)
        if self._process is None or self._process.pid is None:
            steps = [RecoveryStep("start again", again, self.open_limit_s, destructive=True)]
        else:
            steps = mild_steps(self._client(), self._server)
            if self._snapshot is not None:
                load = partial(self._load, self._snapshot)
                steps.append(RecoveryStep("load snapshot", load, LOAD_LIMIT_S, destructive=True))
                restart = RecoveryStep("restart from snapshot", again, self.open_limit_s, destructive=True)
                steps.append(restart)
        cold_s = self.open_limit_s + LOAD_LIMIT_S
        return [
            *steps,
            RecoveryStep("cold boot", self._boot_cold, cold_s, destructive=True),
            RecoveryStep("reclone", self._reclone, self.open_limit_s, destructive=True),
        ]

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

    def _start(self, snapshot: str | None) -> None:
        """Starts the emulator, in place of one that runs, and waits until it can be used."""
        self._stop(STOP_S)
        self._server.ensure_running(SERVER_START_S)
        with self._launch_lock:
            process = self._launch(snapshot)
            time.sleep(STAGGER_S)
        try:
            process.wait_booted(self._client(), self._part.boot_s)
        except EnvError as error:
            self._stop(CLOSE_S)
            if isinstance(error, PortInUse):
                self._release()  # the next attempt takes others
            raise

    def _launch(self, snapshot: str | None) -> EmulatorProcess:
        self._require_open()
        _end_orphans(self.id)
        avd = self._own_avd()
        if self._ports is None:
            self._ports = claim_ports(candidates=self.console_ports)
            # A pattern, of this pool or of another one, may stand for its serial: it is taken.
            self._claims.take(f"adb-{self._server.port}-{self._ports.serial}")
        options = EmulatorOptions(self._gpu, snapshot, extra=tuple(self._part.options))
        process = EmulatorProcess(self._sdk, avd, self._ports, options, adb_server_port=self._server.port)
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
        source = self._store.get(self._part.avd)
        if self._store.exists(self.id):
            with contextlib.suppress(EmulatorError):  # it is incomplete
                own = self._store.get(self.id)
                if not self._is_outdated(source, own):
                    return own
            self._store.delete(self.id)
        return clone(self._store, source.name, self.id)

    def _is_outdated(self, source: Avd, own: Avd) -> bool:
        snapshot = None if self._snapshot is None else source.snapshots / self._snapshot
        if snapshot is None or not snapshot.is_dir():
            return False
        saved = max(path.stat().st_mtime for path in (snapshot, *snapshot.iterdir()))
        return saved > own.ini.stat().st_mtime

    def _boot_cold(self) -> None:
        """Starts it without the snapshot, and loads that: of no use where episodes cannot begin from it."""
        self._start(None)
        if self._snapshot is not None:
            self._load(self._snapshot)

    def _load(self, snapshot: str) -> None:
        self._device().load_state(snapshot)

    def _reclone(self) -> None:
        """Makes another clone, and starts from that."""
        self._stop(STOP_S)
        if self._store.exists(self.id):
            self._store.delete(self.id)
        self._start(self._snapshot)

    def _stop(self, console_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop(console_s)

    def _release(self) -> None:
        ports, self._ports = self._ports, None
        if ports is not None:
            ports.release()
        self._claims.release_all()

    def _running(self) -> EmulatorProcess:
        process = self._process
        if process is None:
            raise EmulatorExited("its emulator does not run.", serial=self.id)
        return process

    def _client(self) -> AdbClient:
        if self._ports is None:
            raise DeviceDisconnected("its emulator does not run.", serial=self.id)
        return AdbClient(self._ports.serial, self._server.port)

    def _device(self) -> EmulatorDevice:
        return EmulatorDevice(self._client(), Console(self._running().ports.console))


def _end_orphans(avd: str) -> None:
    """Ends emulators of this AVD that a killed process of this tool left: they hold its locks."""
    registry = Registry()
    for entry in registry.entries():
        if entry.what.startswith(f"emulator of AVD {avd} at ") and entry.is_orphan:
            _log.warning("ending the %s, left by a process that is gone", entry.what)
            if end_process(entry.key, entry.console_port, STOP_S):
                registry.remove(entry)
