"""An Android emulator as a `Device`: what adb reaches, and snapshots by its console."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from distrl.workers.devices.adb.client import AdbClient
from distrl.workers.devices.adb.console import LOAD_S, SAVE_S, Console
from distrl.workers.devices.adb.deadline import Deadline
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.errors import ServiceRejected

_SERIAL = re.compile(r"emulator-(\d{1,5})")


def console_port(serial: str) -> int:
    """The console port in an emulator's serial.

    Raises:
        ServiceRejected: If it is no emulator's.
    """
    found = _SERIAL.fullmatch(serial)
    if found is None:
        raise ServiceRejected(
            f"{serial!r} is no emulator: their serials read emulator-PORT.",
            "Use kind `phone` or `adb` for it.",
        )
    return int(found[1])


class EmulatorDevice(AdbDevice):
    """One emulator.

    Args:
        client: The way to it through adb.
        console: Its console; by default at the port in its serial.
        sleep: Waits for so many seconds.

    Raises:
        ServiceRejected: If its serial is no emulator's.
    """

    def __init__(
        self,
        client: AdbClient,
        console: Console | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(client, sleep)
        self.console = Console(console_port(client.serial)) if console is None else console

    def save_state(self, name: str) -> None:
        """Saves everything as snapshot `name`, in place of an older one."""
        self.console.avd_snapshot_save(name, SAVE_S)

    def load_state(self, name: str) -> None:
        """Brings snapshot `name` back, and waits until the device answers again.

        Raises:
            SnapshotMissing, SnapshotFailed: If it cannot be loaded.
            DeviceTimeout: If all that takes too long.
            EmulatorExited: If the emulator ends meanwhile.
        """
        deadline = Deadline(LOAD_S, f"the load of snapshot {name!r}", self.serial)
        self.console.avd_snapshot_load(name, deadline.remaining())
        self._size = None  # the screen may have been turned
        self.client.wait_ready(deadline.remaining(), self.console.require_running)
