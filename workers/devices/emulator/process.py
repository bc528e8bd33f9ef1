"""One emulator process: started in a session of its own, followed by its log, waited for, and ended for sure.

Used by one thread at a time, but `stop` and `pid` may be called by another. The process is entered in the
registry as soon as it runs, so that `distrl cleanup` finds it if this process dies without having stopped it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distrl.workers.devices.emulator import procfs
from distrl.workers.devices.emulator.avd import Avd
from distrl.workers.devices.emulator.boot import COLD_S, SNAPSHOT_S, BootClient, BootTimes, BootWait
from distrl.workers.devices.emulator.ending import CONSOLE_S, end
from distrl.workers.devices.emulator.log_lines import (
    LogFollower,
    fault_of,
    last_complaint,
    snapshot_fault_of,
)
from distrl.workers.devices.emulator.ports import Ports
from distrl.workers.devices.emulator.registry import Entry, Registry
from distrl.workers.devices.emulator.sdk import ROOT_VARIABLES, Sdk
from distrl.workers.devices.emulator.snapshots import require_same_hardware
from distrl.workers.devices.emulator.state_dir import state_dir
from distrl.workers.devices.errors import (
    BootTimeout,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    SnapshotMissing,
)

GPU = "swiftshader_indirect"
"""The GPU mode for machines without a GPU; a snapshot loads only under the mode it was saved with."""

LEAST_FREE_BYTES = 64 * 2**20
"""Free space below which no emulator is started. Emulators themselves refuse with less than about 2 GB."""
MAX_LOGS = 100
"""Most logs that are kept in the state directory."""


@dataclass(frozen=True)
class EmulatorOptions:
    """How an emulator is started.

    Attributes:
        gpu: Its GPU mode.
        snapshot: The snapshot to start from; None boots cold.
        read_only: Shares the AVD with others; its console can then neither save, load nor delete snapshots.
        extra: Further options for its command line.
    """

    gpu: str = GPU
    snapshot: str | None = None
    read_only: bool = False
    extra: tuple[str, ...] = ()

    def flags(self, avd: str, ports: Ports) -> list[str]:
        """The command line behind the program's name."""
        start = ["-snapshot", self.snapshot] if self.snapshot else ["-no-snapshot-load"]
        return [
            # `-grpc PORT` would serve the whole emulator to everyone, on all interfaces. Without it emulators
            # choose a port of the loopback interface and ask for a token; old ones ask only when told to.
            *("-avd", avd, "-port", str(ports.console), "-grpc-use-token"),
            *("-no-window", "-no-audio", "-no-boot-anim", "-gpu", self.gpu, "-no-snapshot-save"),
            *start,
            *(["-read-only"] if self.read_only else []),
            *self.extra,
        ]


class EmulatorProcess:
    """One emulator.

    Args:
        sdk: Whose emulator.
        avd: Which virtual device.
        ports: Its claimed ports; the caller releases them after `stop`.
        options: How it is started.
        registry: Where it is entered; the user's when None.
        log_file: Receives its output; one in the state directory when None.
        adb_server_port: The adb server it tells of itself; where the environment says when None.
        environ: The environment it gets, with what is said above changed.

    Attributes:
        log: Its output.
    """

    def __init__(
        self,
        sdk: Sdk,
        avd: Avd,
        ports: Ports,
        options: EmulatorOptions = EmulatorOptions(),
        *,
        registry: Registry | None = None,
        log_file: Path | None = None,
        adb_server_port: int | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.sdk, self.avd, self.ports, self.options = sdk, avd, ports, options
        self.serial = ports.serial
        self._registry = registry or Registry()
        self.log = LogFollower(log_file or _log_file(avd.name, ports.console))
        self._environ = dict(environ, ANDROID_AVD_HOME=str(avd.home))
        if sdk.root is not None:  # else it would look for system images where the environment says
            self._environ |= dict.fromkeys(ROOT_VARIABLES, str(sdk.root))
        if adb_server_port is not None:
            self._environ["ANDROID_ADB_SERVER_PORT"] = str(adb_server_port)
        self._child: subprocess.Popen[bytes] | None = None
        self._entry: Entry | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Starts it and returns at once; `wait_booted` tells whether that went well.

        Raises:
            AvdLocked, SnapshotPending: If another emulator holds the AVD.
            LowDisk: If the AVD's disk is full.
            SnapshotMissing, SnapshotFailed: If it shall start from a snapshot that is not there, or was saved
                with other hardware.
            EmulatorError: If it runs already, or the program cannot be started.
        """
        if self.pid is not None:
            raise EmulatorError("the emulator runs already.", "Stop it first.", serial=self.serial)
        self.avd.require_unused(shared=self.options.read_only)
        self._require_disk()
        self._require_snapshot()
        command = [str(self.sdk.emulator), *self.options.flags(self.avd.name, self.ports)]
        self.log.path.parent.mkdir(parents=True, exist_ok=True)
        self.log.lines()  # a start begins where the last one ended
        try:
            with self.log.path.open("ab") as output:
                self._child = child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    start_new_session=True,
                )
        except OSError as error:
            raise EmulatorError(f"{command[0]} cannot be started: {error}.", "Reinstall it.") from error
        self._enter(child)

    def _enter(self, child: subprocess.Popen[bytes]) -> None:
        if procfs.key_of(child.pid) is None:
            return  # it has ended already; `check` says why
        what = f"emulator of AVD {self.avd.name} at port {self.ports.console}"
        marks = ("-avd", self.avd.name, str(self.ports.console))
        try:
            self._entry = self._registry.add(child.pid, what, marks, self.ports.console)
        except EmulatorError:
            child.kill()  # what nobody could find again shall not run
            child.wait()
            raise

    def _require_disk(self) -> None:
        """An emulator that cannot write its locks says that another process holds them."""
        free = shutil.disk_usage(self.avd.directory).free
        if free < LEAST_FREE_BYTES:
            raise LowDisk(
                f"the disk of the AVD {self.avd.name!r} is full: {free / 2**20:.0f} MB are left, and an "
                f"emulator needs {LEAST_FREE_BYTES / 2**20:.0f} MB for its locks and logs alone.",
                f"Free some GB on the disk of {self.avd.directory}.",
                serial=self.serial,
            )

    def _require_snapshot(self) -> None:
        name = self.options.snapshot
        if name is not None and not (self.avd.snapshots / name).is_dir():
            raise SnapshotMissing(
                f"the AVD {self.avd.name!r} has no snapshot {name!r}.",
                f"Make it with `distrl snapshot-avd create {self.avd.name} {name}`.",
                serial=self.serial,
            )
        if name is not None:
            require_same_hardware(self.avd, name, self.options.extra)

    def check(self) -> None:
        """Returns if it runs and has not said that it cannot.

        Raises:
            EmulatorError: By what its log says, or `EmulatorExited` with its last words.
        """
        child = self._child  # another thread may be stopping it
        has_ended = child is None or child.poll() is not None
        for line in self.log.lines():
            fault = fault_of(line, self.serial)
            if fault is None and self.options.snapshot is not None:
                fault = snapshot_fault_of(line, self.serial)
            if fault is not None:
                raise fault
        if has_ended:
            status = "does not run" if child is None else _status(child.returncode)
            said = last_complaint(self.log.tail())
            raise EmulatorExited(
                f"the emulator {status}{f', saying: {said}' if said else ''}.".replace("..", "."),
                f"See its log, {self.log.path}.",
                serial=self.serial,
                evidence=self.log.tail(),
            )

    def wait_booted(self, client: BootClient, timeout_s: float | None = None) -> BootTimes:
        """Waits until Android can be used.

        Args:
            client: The way to it.
            timeout_s: By default 180 s, from a snapshot 60 s.

        Raises:
            BootTimeout: If it is not ready in time, with the end of its log.
            EmulatorError: If it ends or says why it cannot.
        """
        patience_s = timeout_s or (SNAPSHOT_S if self.options.snapshot else COLD_S)
        try:
            return BootWait(client, self.check).wait(patience_s, self.serial)
        except BootTimeout as error:
            error.evidence = f"{error.evidence}\n{self.log.tail()}"
            raise

    def stop(self, console_s: float = CONSOLE_S) -> str:
        """Ends it: console, SIGTERM, SIGKILL. May be called twice, and without `start`.

        Args:
            console_s: How long it may take after the console's `kill`.

        Returns:
            What ended it, as `ending.end`.
        """
        child, entry = self._child, self._entry
        if child is None:
            return "gone"
        how = "gone"
        # Without an entry another thread is starting it at this moment.
        key = entry.key if entry is not None else procfs.key_of(child.pid)
        if key is not None:
            # Our child cannot be another process before we have collected it: no marks to compare.
            how = end(key, (), self.ports.console, console_s, lambda: child.poll() is not None)
            if not how:
                raise EmulatorError(
                    f"the emulator (process {child.pid}) does not end, not even by SIGKILL.",
                    "It hangs in the kernel; see `dmesg`.",
                    serial=self.serial,
                )
        if entry is not None:
            self._registry.remove(entry)
        child.poll()
        self._child = self._entry = None
        return how


def _status(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"


def _log_file(avd: str, port: int) -> Path:
    """A new log's path; of the old ones the newest stay."""
    folder = state_dir() / "logs"
    for path in sorted(folder.glob("emulator-*.log"), key=_modified)[: -MAX_LOGS + 1 or None]:
        path.unlink(missing_ok=True)
    return folder / f"emulator-{port}-{avd}-{time.strftime('%Y%m%d-%H%M%S')}.log"


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process removes old ones, too
        return 0.0
