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
"""The pause before a dead process is started again."""
PATIENCE_S = 2.0
"""How long a process may take to stop after SIGTERM."""
MAX_PHONES = 256
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
        _check(num, base_port, processes, emulator_grpc.PORT_OFFSET if grpc else 0)
        if grpc:
            emulator_grpc.require()
        SimDevice(width, height).close()  # refuses impossible screens
        phones = [
            PhoneSpec(
                console_port=base_port + 2 * index,
                adb_port=base_port + 2 * index + 1,
                grpc_port=base_port + 2 * index + emulator_grpc.PORT_OFFSET if grpc else 0,
                width=width,
                height=height,
                snapshots=str(snapshots / f"emulator-{base_port + 2 * index}") if snapshots else "",
            )
            for index in range(num)
        ]
        phones = _with_faults(phones, faults or {})
        count = min(num, processes or os.cpu_count() or 1)
        self._specs = [
            ProcessSpec(tuple(phones[index::count]), adb_server_port, token_file) for index in range(count)
        ]
        self._children: list[Child | None] = [None] * count
        self._start_at = [0.0] * count
        self._scratch: Scratch | None = None

    @property
    def folder(self) -> Path | None:
        """The processes' logs, while it runs; None before its start and after its end."""
        return self._scratch.path if self._scratch is not None else None

    def start(self, timeout_s: float = 60.0, stop: threading.Event | None = None) -> list[HostedDevice]:
        """Starts all phones and waits until they listen, or until `stop` is set; after an error nothing runs.

        Raises PortInUse, EmulatorExited, BootTimeout, or ConfigError for the token file.
        """
        _make_token(self._specs[0].token_file)
        deadline = time.monotonic() + timeout_s
        self._scratch = Scratch("sim-host")
        try:
            for index in range(len(self._specs)):
                self._spawn(index)
            for index in range(len(self._specs)):
                while not (self._file(index, "ready").exists() or (stop is not None and stop.is_set())):
                    self._raise_if_dead(index)
                    if time.monotonic() > deadline:
                        raise BootTimeout(
                            f"simulated phones did not start within {timeout_s:g} s.",
                            f"See {self._file(index, 'log')}.",
                        )
                    time.sleep(_LOOK_S)
        except BaseException:
            self.stop()
            raise
        return self.devices()

    def devices(self) -> list[HostedDevice]:
        """The phones whose processes run now."""
        found = [
            HostedDevice(
                each.serial,
                each.console_port,
                each.adb_port,
                each.width,
                each.height,
                child.pid,
                each.grpc_port or None,
            )
            for spec, child in zip(self._specs, self._children, strict=True)
            if child is not None
            for each in spec.phones
        ]
        return sorted(found, key=lambda device: device.console_port)

    def check(self) -> None:
        """Notices processes that died and starts those whose pause is over; to be called often."""
        for index, child in enumerate(self._children):
            exit_code = child.poll() if child is not None else None
            if exit_code is not None:
                serials = ", ".join(phone.serial for phone in self._specs[index].phones)
                _log.warning("%s died with exit code %d; starts again in %g s", serials, exit_code, RESTART_S)
                self._children[index] = None
                self._start_at[index] = time.monotonic() + RESTART_S
            elif child is None and self._scratch is not None and time.monotonic() >= self._start_at[index]:
                self._spawn(index)

    def stop(self) -> None:
        """Stops all processes, at most `PATIENCE_S`, and removes what was written. May be called twice."""
        stop_all([(child, PATIENCE_S) for child in self._children if child is not None])
        self._children = [None] * len(self._children)
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def __enter__(self) -> SimHost:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _spawn(self, index: int) -> None:
        ready_file = self._file(index, "ready")
        ready_file.unlink(missing_ok=True)
        spec = replace(self._specs[index], ready_file=str(ready_file))
        command = [sys.executable, "-m", "distrl.simulator.adb.process", spec.dump()]
        self._children[index] = Child(f"phones-{index}", command, self._file(index, "log"), _MEMORY)

    def _file(self, index: int, kind: str) -> Path:
        assert self.folder is not None, "the host was not started"
        return self.folder / f"phones-{index}.{kind}"

    def _raise_if_dead(self, index: int) -> None:
        child = self._children[index]
        assert child is not None
        exit_code = child.poll()
        if exit_code is None:
            return
        told = last_error(self._file(index, "log"))
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
    known = [phone.serial for phone in phones]
    for serial, text in faults.items():
        if serial not in known:
            raise ConfigError(f"{serial!r} is not a phone of this host.", f"Known: {', '.join(known)}.")
        if parse(text).kind is Kind.CRASH:
            raise ConfigError("a phone cannot start with a crash.", "Use `sim fault crash` at its console.")
    return [replace(phone, fault=faults.get(phone.serial, "")) for phone in phones]
