"""Working with one emulator: the one that runs from an AVD already, or one started for the purpose.

What was started here is stopped at the end; what ran before is left running.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from distrl.core.errors import ConfigError
from distrl.workers.devices.adb.client import AdbClient
from distrl.workers.devices.adb.console import Console
from distrl.workers.devices.adb.server import AdbServer
from distrl.workers.devices.emulator.avd import Avd
from distrl.workers.devices.emulator.boot import BootTimes
from distrl.workers.devices.emulator.discovery import Running, running
from distrl.workers.devices.emulator.ports import PortAllocator
from distrl.workers.devices.emulator.process import GPU, EmulatorOptions, EmulatorProcess
from distrl.workers.devices.emulator.procfs import cmdline, is_alive
from distrl.workers.devices.emulator.registry import Registry
from distrl.workers.devices.emulator.sdk import Sdk, emulator_version
from distrl.workers.devices.emulator.snapshots import Snapshotter
from distrl.workers.devices.errors import (
    AvdLocked,
    DeviceError,
    DeviceNotFound,
    EmulatorError,
    EmulatorExited,
)

_Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


@dataclass(frozen=True)
class Open:
    """An emulator that can be used.

    Attributes:
        serial: Its name in adb.
        snapshotter: Its snapshots.
        client: The way to Android on it.
        times: How long it took to boot; None if it ran already.
    """

    serial: str
    snapshotter: Snapshotter
    client: AdbClient
    times: BootTimes | None


def running_from(avd: Avd, environ: Mapping[str, str] = os.environ) -> Running | None:
    """The emulator that runs from this AVD, if one announces itself."""
    for one in running(environ):
        if one.avd_name == avd.name and (one.avd_dir is None or one.avd_dir == avd.directory):
            return one
    return None


class Session:
    """A context manager that gives an `Open` emulator.

    Args:
        sdk: Whose emulator.
        avd: Which virtual device.
        options: How it is started, if it must be.
        server: The adb server; started when it does not run.
        console_port: The port to start it at; a free one when None. One that runs must be there.
        boot_s: Longest time for the boot; the usual when None.
        must_run: Only an emulator that runs already will do; none is started.
        note: Told in words what is going on.
        environ: Where the environment's variables are.
    """

    def __init__(
        self,
        sdk: Sdk,
        avd: Avd,
        options: EmulatorOptions,
        server: AdbServer,
        *,
        console_port: int | None = None,
        boot_s: float | None = None,
        must_run: bool = False,
        note: Callable[[str], object] = lambda text: None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._sdk, self._avd, self._options, self._server = sdk, avd, options, server
        self._console_port, self._boot_s, self._must_run = console_port, boot_s, must_run
        self._note, self._environ = note, environ
        self._stack = ExitStack()

    def __enter__(self) -> Open:
        with ExitStack() as stack:
            opened = self._open(stack)
            self._stack = stack.pop_all()
        return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _open(self, stack: ExitStack) -> Open:
        stack.callback(self._server.stop)
        self._server.ensure_running()
        there = running_from(self._avd, self._environ)
        if there is None:
            if self._must_run:
                raise DeviceNotFound(
                    f"no emulator runs from the AVD {self._avd.name!r}.",
                    f"Start one (`emulator -avd {self._avd.name}`), or make the snapshot with `create`.",
                )
            return self._started(stack)
        require_ours(there)
        if self._console_port not in (None, there.console_port):
            raise ConfigError(
                f"an emulator runs from the AVD {self._avd.name!r} already, at port {there.console_port}, "
                f"so none is started at {self._console_port}.",
                "Leave --port out to work with that one, or stop it first.",
            )
        client = AdbClient(there.serial, self._server.port)
        client.wait_ready(10.0)
        # An emulator that others started says only on its command line which options it took.
        words = cmdline(there.key.pid)
        return self._wrap(there.console_port, client, _gpu_of(words, self._avd), words, None)

    def _started(self, stack: ExitStack) -> Open:
        ports = stack.enter_context(PortAllocator().claim(self._console_port))
        process = EmulatorProcess(
            self._sdk,
            self._avd,
            ports,
            self._options,
            registry=Registry(),
            adb_server_port=self._server.port,
            environ=self._environ,
        )
        stack.callback(process.stop)
        stack.callback(self._note, "stopping the emulator")
        stack.push(_tell_of_the_end(process))
        self._note(f"starting {self._avd.name} at port {ports.console}")
        process.start()
        client = AdbClient(ports.serial, self._server.port)
        self._note(f"booting {ports.serial} (log: {process.log.path})")
        times = process.wait_booted(client, self._boot_s)
        return self._wrap(ports.console, client, self._options.gpu, self._options.extra, times)

    def _wrap(
        self, port: int, client: AdbClient, gpu: str, options: Sequence[str], times: BootTimes | None
    ) -> Open:
        version = emulator_version(self._sdk)
        snapshotter = Snapshotter(self._avd, Console(port), client, gpu, version, options)
        return Open(client.serial, snapshotter, client, times)


def _tell_of_the_end(process: EmulatorProcess) -> _Exit:
    """For an `ExitStack`: when work fails because the emulator has ended, that is the error to tell."""

    def tell(
        kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_vague = isinstance(error, EmulatorExited) or not isinstance(error, EmulatorError)
        if isinstance(error, DeviceError) and is_vague and process.pid is None:
            try:
                process.check()
            except EmulatorError as why:
                raise why from error

    return tell


def require_ours(there: Running) -> None:
    """Refuses an emulator that another process of this tool works with, which would lose its state.

    Raises:
        AvdLocked: If there is such a process.
    """
    for entry in Registry().entries():
        owner = entry.owner
        if entry.key == there.key and owner is not None and owner.pid != os.getpid() and is_alive(owner):
            raise AvdLocked(
                f"the {entry.what} is in use by process {owner.pid} of this tool.",
                "Wait until that is done, or work on a clone of the AVD.",
                serial=there.serial,
            )


def _gpu_of(words: Sequence[str], avd: Avd) -> str:
    if "-gpu" in words[:-1]:
        return words[words.index("-gpu") + 1]
    return avd.config().get("hw.gpu.mode", GPU)
