"""Bringing an emulator back to its snapshot before an episode, by one of two ways; never by copying an AVD.

writable clone   a clone of its own for each emulator, and `avd snapshot load` in the running one: 3 s or so
read-only        all emulators share one AVD, and each episode starts a process anew from the snapshot
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from distrl.workers.devices.emulator.boot import BootClient
from distrl.workers.devices.emulator.process import EmulatorProcess
from distrl.workers.devices.emulator.snapshots import READY_S, SnapshotConsole
from distrl.workers.devices.errors import EmulatorError


class ResetMode(str, Enum):
    """How emulators are reset; the values are those of the configuration."""

    WRITABLE_CLONE = "writable-clone"
    READ_ONLY = "read-only"


class Reset(Protocol):
    """One way to reset one emulator."""

    def run(self) -> float:
        """Resets it and waits until it can be used. Returns the seconds that took. Raises DeviceError."""
        ...


class ReadyClient(Protocol):
    """What is needed of an `AdbClient`."""

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until the device answers its shell."""
        ...


class SnapshotReset:
    """Loads the snapshot in the running emulator.

    Args:
        console: Its console.
        client: The way to Android on it.
        snapshot: The snapshot's name.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        console: SnapshotConsole,
        client: ReadyClient,
        snapshot: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._client, self._snapshot, self._clock = console, client, snapshot, clock

    def run(self) -> float:
        """As `Reset.run`.

        Raises:
            SnapshotMissing, SnapshotPending, SnapshotFailed: By what the emulator says.
            DeviceTimeout: If it does not answer afterwards.
        """
        started = self._clock()
        self._console.avd_snapshot_load(self._snapshot)
        self._client.wait_ready(READY_S)
        return self._clock() - started


class RestartReset:
    """Ends the read-only emulator and starts it again from the snapshot.

    Args:
        process: The emulator; its options name the snapshot and say read-only.
        client: The way to Android on it.
        boot_s: Longest time for the start; the usual when None.
        stop_s: How long it may take to end by itself: nothing is saved, so not long.
        clock: Seconds that never go back.

    Raises:
        EmulatorError: If the process would boot cold or could write the AVD.
    """

    def __init__(
        self,
        process: EmulatorProcess,
        client: BootClient,
        boot_s: float | None = None,
        stop_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not process.options.read_only or process.options.snapshot is None:
            raise EmulatorError(
                "a reset by restart needs an emulator that is read-only and starts from a snapshot.",
                'Name the snapshot, or take the mode "writable-clone".',
                serial=process.serial,
            )
        self._process, self._client = process, client
        self._boot_s, self._stop_s, self._clock = boot_s, stop_s, clock

    def run(self) -> float:
        """As `Reset.run`.

        Raises:
            EmulatorError: If it does not start, by what its log says.
        """
        started = self._clock()
        self._process.stop(self._stop_s)
        self._process.start()
        self._process.wait_booted(self._client, self._boot_s)
        return self._clock() - started
