"""One simulated phone as its emulator has it: what the console and gRPC control besides the screen.

Both act on the same machine, so that a snapshot saved by one is there for the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from distrl import __version__
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console_snapshots import Snapshots
from distrl.simulator.adb.faults import Fault, Faults, Kind


class Refused(Exception):
    """What was asked for cannot be done; the text is what the console says after "KO: "."""


@dataclass
class Machine:
    """What a console or a gRPC client controls.

    Attributes:
        system: The phone.
        faults: What is wrong with it.
        snapshots: Its snapshots.
        kill: Ends the emulator.
        reboot: Restarts the phone; its system alone when None.
        avd_name: The AVD's name.
        avd_path: The AVD's folder, for those who ask.
        is_read_only: Whether snapshots are refused, as by an emulator with -read-only.
        booted_at: When the phone started, by the monotonic clock.
        is_stopped: Whether `avd stop` froze it.
        loaded: The snapshot that it was last brought to, "" for none.
        version, hardware: What it says of itself: the emulator's version, and keys of the hardware.
    """

    system: AndroidSystem
    faults: Faults
    snapshots: Snapshots
    kill: Callable[[], None]
    reboot: Callable[[], None] | None = None
    avd_name: str = "distrl"
    avd_path: str = ""
    is_read_only: bool = False
    booted_at: float = field(default_factory=time.monotonic)
    is_stopped: bool = False
    loaded: str = ""
    version: str = f"{__version__} (simulated phone)"
    hardware: Mapping[str, str] = field(default_factory=dict)

    def pause(self) -> None:
        """Freezes the phone; nothing if it is frozen."""
        if not self.is_stopped:
            self.is_stopped = True
            self.faults.set(Fault(Kind.HANG))

    def resume(self) -> None:
        """Lets the phone go on; nothing if it does."""
        if self.is_stopped:
            self.is_stopped = False
            self.faults.clear()

    def reset(self) -> None:
        """Restarts the phone."""
        self.resume()
        (self.reboot or self.system.reboot)()

    def save(self, name: str) -> None:
        """Keeps the present state as the snapshot `name`, in place of an older one.

        Raises:
            Refused: If the emulator is read-only.
            SnapshotFailed: If it cannot be kept.
        """
        self._check_writable()
        self.snapshots.save(name, self.system.dump(), time.monotonic() - self.booted_at)

    def load(self, name: str) -> None:
        """Brings back the snapshot `name`.

        Raises:
            Refused: If the emulator is read-only.
            SnapshotMissing: If there is none.
            EnvError: If it does not load.
        """
        self._check_writable()
        self.system.load(self.snapshots.load(name))
        self.loaded = name

    def delete(self, name: str) -> None:
        """Forgets the snapshot `name`.

        Raises:
            Refused: If the emulator is read-only.
            SnapshotMissing: If there is none.
        """
        self._check_writable()
        self.snapshots.delete(name)
        if self.loaded == name:
            self.loaded = ""

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise Refused("Snapshot operations are not allowed: the emulator runs with -read-only")
