"""Many simulated phones on this machine: processes with phones, kept alive, known to the adb server.

    SimHost (the caller's thread) ── Child processes, one per core ── phones (see process.py)
             └─ a ready file of each says that its ports listen; `check` restarts those that died

The caller's main thread starts and checks: Linux ties a child's life to the thread that spawned it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distrl.core.errors import ConfigError
from distrl.core.files import Scratch
from distrl.core.process import Child, stop_all
from distrl.core.supervisor import last_error
from distrl.simulator.adb import emulator_grpc
from distrl.simulator.adb.console import TOKEN_FILE, read_token
from distrl.simulator.adb.faults import Kind, parse
from distrl.simulator.adb.process import PhoneSpec, ProcessSpec
from distrl.simulator.device import SimDevice
from distrl.workers.devices.errors import BootTimeout, EmulatorExited, PortInUse

RESTART_S = 1.0
"""The pause before a dead process is started again; it doubles while it dies without having been ready."""
MAX_RESTART_S = 10.0
PATIENCE_S = 2.0
"""How long a process may take to stop after SIGTERM."""
MAX_PHONES = 256
GRPC_OFFSET = 3000
"""From a phone's console port to its gRPC port, as with the emulator."""
_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "PILLOW_BLOCKS_MAX": "8",
}
"""Buffers of pictures are kept for the next one: fresh memory for each costs as much as the rendering."""
_LOOK_S = 0.02
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostedDevice:
    """One phone of a host."""

    serial: str
    console_port: int
    adb_port: int
    width: int
    height: int
    pid: int
    grpc_port: int | None = None


@dataclass
class _Kept:
    name: str
    spec: ProcessSpec
    child: Child | None = None
    start_at: float = 0.0
    pause_s: float = RESTART_S


class SimHost:
    """Simulated phones as processes.

    Args:
        base_port: The first phone's console port, even; adb is at the next, the second phone two further. The
            adb server looks for emulators by itself at 5554 to 5585.
        processes: How many processes share them; one per core, at most one per phone, when None.
        adb_server_port: The adb server to announce them to; 0 for none. It is never started.
        token_file: The consoles' token; made if it is not there; "" for none.
        snapshots: A folder for the phones' snapshots, one folder each in it; None keeps them in memory.
        faults: Faults to start with, by serial, as the console's `sim fault` takes them.
        grpc: Whether the emulator's gRPC services are served too, each phone's at its console port plus 3000.
    """

    def __init__(
        self,
        num: int,
        width: int = 540,
        height: int = 1200,
        base_port: int = 5554,
        processes: int | None = None,
        adb_server_port: int = 5037,
        token_file: str = TOKEN_FILE,
        snapshots: Path | None = None,
        faults: Mapping[str, str] | None = None,
        grpc: bool = False,
    ) -> None:
        _check(num, base_port, processes, GRPC_OFFSET if grpc else 0)
        if grpc:
            emulator_grpc.require()
        SimDevice(width, height).close()  # refuses impossible screens
        phones = [
            PhoneSpec(
                console_port=base_port + 2 * index,
                adb_port=base_port + 2 * index + 1,
                grpc_port=base_port + 2 * index + GRPC_OFFSET if grpc else 0,
                width=width,
                height=height,
                snapshots=str(snapshots / f"emulator-{base_port + 2 * index}") if snapshots else "",
            )
            for index in range(num)
        ]
        self.phones = _with_faults(phones, faults or {})
        self._scratch: Scratch | None = None
        count = min(num, processes or os.cpu_count() or 1)
        shared = ProcessSpec((), adb_server_port, token_file)
        self._kept = [
            _Kept(f"phones-{index}", replace(shared, phones=tuple(self.phones[index::count])))
            for index in range(count)
        ]

    @property
    def folder(self) -> Path | None:
        """The processes' logs, while it runs; None before its start and after its end."""
        return self._scratch.path if self._scratch is not None else None

    def start(self, timeout_s: float = 60.0, stop: threading.Event | None = None) -> list[HostedDevice]:
        """Starts all phones and waits until they listen, or until `stop` is set; after an error nothing runs.

        Raises PortInUse, EmulatorExited, BootTimeout, or ConfigError for the token file.
        """
        _make_token(self._kept[0].spec.token_file)
        deadline = time.monotonic() + timeout_s
        self._scratch = Scratch("sim-host")
        try:
            for kept in self._kept:
                self._spawn(kept)
            for kept in self._kept:
                while not (self._is_ready(kept) or (stop is not None and stop.is_set())):
                    self._raise_if_dead(kept)
                    if time.monotonic() > deadline:
                        raise BootTimeout(
                            f"simulated phones did not start within {timeout_s:g} s.",
                            f"See {self._log(kept)}.",
                        )
                    time.sleep(_LOOK_S)
        except BaseException:
            self.stop()
            raise
        return self.devices()

    def devices(self) -> list[HostedDevice]:
        """The phones whose processes run now."""
        found = []
        for kept in self._kept:
            if kept.child is not None:
                for phone in kept.spec.phones:
                    ports = (phone.console_port, phone.adb_port)
                    size = (phone.width, phone.height)
                    device = HostedDevice(
                        phone.serial, *ports, *size, kept.child.pid, phone.grpc_port or None
                    )
                    found.append(device)
        return sorted(found, key=lambda device: device.console_port)

    def check(self) -> None:
        """Notices processes that died and starts those whose pause is over; to be called often."""
        for kept in self._kept:
            if kept.child is not None:
                exit_code = kept.child.poll()
                if exit_code is not None:
                    self._bury(kept, exit_code)
            elif time.monotonic() >= kept.start_at:
                self._spawn(kept)

    def stop(self) -> None:
        """Stops all processes, at most `PATIENCE_S`, and removes what was written. May be called twice."""
        stop_all([(kept.child, PATIENCE_S) for kept in self._kept if kept.child is not None])
        for kept in self._kept:
            kept.child = None
            kept.start_at = float("inf")
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def __enter__(self) -> SimHost:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _spawn(self, kept: _Kept) -> None:
        ready_file = self._file(kept, "ready")
        ready_file.unlink(missing_ok=True)
        spec = replace(kept.spec, ready_file=str(ready_file))
        command = [sys.executable, "-m", "distrl.simulator.adb.process", spec.dump()]
        kept.child = Child(kept.name, command, self._log(kept), _MEMORY)

    def _file(self, kept: _Kept, kind: str) -> Path:
        assert self.folder is not None, "the host was not started"
        return self.folder / f"{kept.name}.{kind}"

    def _log(self, kept: _Kept) -> Path:
        return self._file(kept, "log")

    def _is_ready(self, kept: _Kept) -> bool:
        file = self._file(kept, "ready")
        if kept.child is None or not file.exists():
            return False
        return file.read_text(encoding="ascii") == str(kept.child.pid)

    def _bury(self, kept: _Kept, exit_code: int) -> None:
        kept.pause_s = RESTART_S if self._is_ready(kept) else min(2 * kept.pause_s, MAX_RESTART_S)
        serials = ", ".join(phone.serial for phone in kept.spec.phones)
        _log.warning("%s died with exit code %d; starts again in %g s", serials, exit_code, kept.pause_s)
        kept.child = None
        kept.start_at = time.monotonic() + kept.pause_s

    def _raise_if_dead(self, kept: _Kept) -> None:
        assert kept.child is not None
        exit_code = kept.child.poll()
        if exit_code is None:
            return
        told = last_error(self._log(kept))
        if exit_code == PortInUse.exit_code and "in use" in told:
            raise PortInUse(told)
        raise EmulatorExited(f"simulated phones ended with exit code {exit_code}: {told}")


def _check(num: int, base_port: int, processes: int | None, beyond: int) -> None:
    if not 1 <= num <= MAX_PHONES:
        raise ConfigError(f"a host has 1 to {MAX_PHONES} phones, got {num}.", "Correct --num.")
    highest = 65534 - 2 * num - beyond
    if base_port % 2 or not 1024 <= base_port <= highest:
        raise ConfigError(
            f"the first console port must be even and in 1024..{highest} for {num} phones, got {base_port}.",
            "5554 is the emulator's own.",
        )
    if processes is not None and processes < 1:
        raise ConfigError(f"phones need at least 1 process, got {processes}.", "Correct --processes.")


def _make_token(token_file: str) -> None:
    if token_file:
        try:
            read_token(Path(token_file).expanduser())
        except OSError as error:
            raise ConfigError(
                f"the console's token file {token_file} cannot be used: {error.strerror}.", "Choose another."
            ) from error


def _with_faults(phones: Sequence[PhoneSpec], faults: Mapping[str, str]) -> list[PhoneSpec]:
    known = {phone.serial for phone in phones}
    for serial, text in faults.items():
        if serial not in known:
            raise ConfigError(f"{serial!r} is not a phone of this host.", f"Known: {', '.join(known)}.")
        if parse(text).kind is Kind.CRASH:
            raise ConfigError("a phone cannot start with a crash.", "Use `sim fault crash` at its console.")
    return [replace(phone, fault=faults.get(phone.serial, "")) for phone in phones]
