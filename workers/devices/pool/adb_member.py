"""Devices behind adb that somebody else started, as pool members: emulators, phones, simulated phones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from distrl.core.errors import EnvError
from distrl.workers.devices.adb.client import DEFAULT_DISPLAY, AdbClient, Display
from distrl.workers.devices.adb.server import AdbServer
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.base import Device
from distrl.workers.devices.emulator.boot import BootWait
from distrl.workers.devices.emulator_device import EmulatorDevice
from distrl.workers.devices.errors import BlankFrame, TransportError
from distrl.workers.devices.pool.member import RecoveryStep
from distrl.workers.devices.recipes import Cook, Recipe

OPEN_S = 60.0
"""Longest opening: the server's start, a connection, a screenshot, a key and another screenshot."""
WAKE_S = 5.0

WAIT_S = 5.0
PROBE_S = 4.0
"""Shorter than the pool's limit, so that the device's own error is told."""

SERVER_START_S, CONNECT_S = 20.0, 10.0
SETTLE_S = 10.0
"""Until a reconnected device answers its shell."""

LOAD_LIMIT_S, RESET_LIMIT_S, REBOOT_S = 70.0, 180.0, 180.0
DOWN_S, LOOK_S = 60.0, 0.5
"""How long a phone that restarts may go on running, and how often that is looked at."""
_BOOT = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || getprop ro.boottime.init"
EVIDENCE_S = 4.0
LOG_LINES = 500


class AdbMember:
    """One device behind adb.

    Args:
        serial: As the adb server lists it.
        server: The adb server.
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
        self._client = AdbClient(serial, server.port, server.host, display=display)

    def open(self) -> Device:
        """The device, after it has shown its screen."""
        connect(self.id, self._server)
        return looked_at(device_of(self._client))

    def probe(self) -> None:
        """Has its shell do nothing."""
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
        """Nothing is held: the device is somebody else's."""


class PhoneMember(AdbMember):
    """One physical phone, which has no snapshots.

    Args:
        serial, server: As for `AdbMember`.
        recipe: What resets it.
        may_reboot: Whether it may be restarted.
        display, options: As for `AdbMember`.
    """

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
        reset = RecoveryStep("reset", Cook(self._client, self._recipe).apply, RESET_LIMIT_S)
        reboot = RecoveryStep("reboot", self._reboot, DOWN_S + REBOOT_S + 4 * WAIT_S, True)
        return [*mild_steps(self._client, self._server), reset, *([reboot] if self._may_reboot else [])]

    def _reboot(self) -> None:
        before = self._boot()
        with contextlib.suppress(TransportError):  # it may go before it answers
            self._client.shell("reboot", WAIT_S)
        # The system that is going down would pass for one that has booted.
        deadline = time.monotonic() + DOWN_S
        while before and self._boot() == before and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        BootWait(self._client, screencap=self._client.display.screencap).wait(REBOOT_S, self.id)

    def _boot(self) -> str:
        """What names the boot that it runs in; "" while it does not answer."""
        try:
            return self._client.shell(_BOOT, WAIT_S, reads=True).text.strip()
        except EnvError:
            return ""


def connect(serial: str, server: AdbServer) -> None:
    """Makes sure that there is a server, and that it knows a device on the network, which it may forget."""
    server.ensure_running(SERVER_START_S)
    if ":" in serial:
        server.connect(serial, CONNECT_S)


def device_of(client: AdbClient) -> AdbDevice:
    """The device behind `client`; one whose serial is an emulator's has a console."""
    return EmulatorDevice(client) if client.serial.startswith("emulator-") else AdbDevice(client)


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
        client.wait_for_state("device", WAIT_S)

    def reconnect() -> None:
        client.reconnect()
        client.wait_ready(SETTLE_S)

    return [
        RecoveryStep("wait", wait, SERVER_START_S + CONNECT_S + WAIT_S),
        RecoveryStep("reconnect", reconnect, SETTLE_S + WAIT_S),
    ]


def evidence_of(client: AdbClient) -> dict[str, bytes]:
    """What a device behind adb can tell; it ends at the first question that gets no answer."""
    questions: tuple[tuple[str, Callable[[], bytes]], ...] = (
        ("adb-state.txt", lambda: client.state().encode()),
        ("logcat.txt", lambda: client.shell(f"logcat -d -t {LOG_LINES}", EVIDENCE_S).out),
        ("screen-now.png", lambda: client.exec_out(client.display.screencap, EVIDENCE_S)),
    )
    told: dict[str, bytes] = {}
    for name, ask in questions:
        try:
            told[name] = ask()
        except EnvError as error:
            told[f"no-{name}.txt"] = str(error).encode(errors="backslashreplace")
            break
    return told
