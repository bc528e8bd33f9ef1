"""A process with simulated phones: `python -m distrl.simulator.adb.process JSON`, started by `SimHost`.

    one event loop:  phones (adbd, console, one task per stream) · announcer · SIGTERM ends all

It writes its ready file when all its ports listen, and is started again by its host when it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Union

from distrl.core.errors import DistrlError
from distrl.core.logs import setup
from distrl.simulator.adb import emulator_grpc
from distrl.simulator.adb.adbd.connection import AdbdServer
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import TOKEN_FILE, ConsoleServer, read_token
from distrl.simulator.adb.faults import CRASH_S, Fault, Faults, Kind, parse
from distrl.simulator.adb.machine import AvdSnapshots, Machine, Snapshots
from distrl.simulator.phone.render import RenderCache

if TYPE_CHECKING:
    from distrl.simulator.adb.emulator_grpc.server import ControlServer

_CHECK_S = 0.5
"""How often the adb server's list is compared with the phones."""
_DEADLINE_S = 3.0
"""Longest wait for the adb server."""
_log = logging.getLogger(__name__)


class Announcer:
    """Keeps phones known to one adb server: those that `phones` gives, adb port by serial."""

    def __init__(self, server_port: int, phones: Callable[[], Mapping[str, int]]) -> None:
        self._port = server_port
        self._phones = phones

    async def run(self) -> None:
        """Announces what the server does not list, until cancelled; the server may come and go."""
        while True:
            announcing = asyncio.create_task(self._announce())
            try:  # not by wait_for, which loses a cancellation that comes as its task ends
                await asyncio.wait({announcing}, timeout=_DEADLINE_S)
            finally:
                announcing.cancel()
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                if announcing.done():
                    announcing.result()
            await asyncio.sleep(_CHECK_S)

    async def _announce(self) -> None:
        reader, writer = await self._request("host:devices")
        try:
            if await reader.readexactly(4) != b"OKAY":
                raise ConnectionRefusedError("the server refused to list its devices")
            size = int(await reader.readexactly(4), 16)
            text = (await reader.readexactly(size)).decode("utf-8", "replace")
        finally:
            writer.close()
        listed = {line.split("\t")[0] for line in text.splitlines()}
        for serial, port in self._phones().items():
            if serial not in listed:  # the server connects to the port, and answers nothing
                _, writer = await self._request(f"host:emulator:{port}")
                writer.close()
                await writer.wait_closed()

    async def _request(self, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"{len(request):04x}{request}".encode())
        return reader, writer


_REBIRTH_PAUSE_S = 1.0
"""The pause before trying again to start a phone whose port was taken meanwhile."""


_PICTURES = RenderCache(capacity=8)  # few: at 1080x2400 one takes 10 MB
Endpoint = Union[AdbdServer, ConsoleServer, "ControlServer"]
"""A server of one phone."""


@dataclass(frozen=True)
class PhoneSpec:
    """What a phone is to be.

    Attributes:
        console_port: Even by convention; the serial is emulator-CONSOLE_PORT.
        adb_port: By convention the console's plus 1.
        snapshots: The folder of its snapshots; "" keeps them in memory.
        fault: A fault to start with, as `sim fault` takes it; "" for none.
        grpc_port: By convention the console's plus 3000; 0 for no gRPC.
    """

    console_port: int
    adb_port: int
    width: int = 540
    height: int = 1200
    snapshots: str = ""
    fault: str = ""
    grpc_port: int = 0

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console_port}"


class HostedPhone:
    """A phone and its servers."""

    def __init__(self, spec: PhoneSpec, token: str, token_file: str) -> None:
        self.spec = spec
        self._faults: Faults | None = None
        self._token, self._token_file = token, token_file
        self._first_fault = spec.fault
        self._snapshots = AvdSnapshots(Path(spec.snapshots)) if spec.snapshots else Snapshots()
        self._endpoints: list[Endpoint] = []
        self._rebirth: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether its servers listen."""
        return bool(self._endpoints)

    async def start(self) -> None:
        """Boots it. Raises PortInUse or MissingDependency."""
        spec = self.spec
        system = AndroidSystem(spec.serial, spec.width, spec.height, cache=_PICTURES)
        faults = Faults()
        faults.on_change(self._fault_changed)
        adbd = AdbdServer(system, faults)
        kill = partial(self._crash, CRASH_S)
        machine = Machine(system, faults, self._snapshots, kill, avd_path=spec.snapshots)
        servers: list[tuple[Endpoint, int]] = [
            (adbd, spec.adb_port),
            (ConsoleServer(machine, self._token, self._token_file), spec.console_port),
        ]
        if spec.grpc_port:
            servers.append((emulator_grpc.serve(machine), spec.grpc_port))
        started: list[Endpoint] = []
        try:
            for server, port in servers:
                await server.start(port)
                started.append(server)
        except (DistrlError, OSError):
            for server in started:
                await server.stop()
            raise
        self._faults, self._endpoints = faults, started
        if self._first_fault:
            faults.set(parse(self._first_fault))
            self._first_fault = ""

    async def stop(self) -> None:
        """Takes it down for good."""
        if self._rebirth is not None:
            self._rebirth.cancel()
            await asyncio.gather(self._rebirth, return_exceptions=True)
        await self._down()

    async def _down(self) -> None:
        if self._faults is not None:
            self._faults.close()
        endpoints, self._endpoints = self._endpoints, []
        for endpoint in endpoints:
            await endpoint.stop()
        self._faults = None

    def _fault_changed(self, fault: Fault) -> None:
        if fault.kind is Kind.CRASH:
            self._crash(CRASH_S if fault.seconds is None else fault.seconds)

    def _crash(self, away_s: float) -> None:
        """The phone is gone, and comes back after `away_s`."""
        if self._rebirth is None or self._rebirth.done():
            self._rebirth = asyncio.get_running_loop().create_task(self._reborn(away_s))

    async def _reborn(self, away_s: float) -> None:
        await self._down()
        await asyncio.sleep(away_s)
        while True:
            try:
                await self.start()
            except (DistrlError, OSError) as error:
                _log.warning("%s does not start: %s", self.spec.serial, error)
                await asyncio.sleep(_REBIRTH_PAUSE_S)
            else:
                return


@dataclass(frozen=True)
class ProcessSpec:
    """What a process is to host.

    Attributes:
        adb_server_port: The adb server to announce them to; 0 for none.
        ready_file: Made when all ports listen.
    """

    phones: tuple[PhoneSpec, ...]
    adb_server_port: int = 0
    token_file: str = TOKEN_FILE
    ready_file: str = ""

    def dump(self) -> str:
        """The spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> ProcessSpec:
        """Reads what `dump` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "phones": tuple(PhoneSpec(**phone) for phone in fields["phones"])})


async def serve(spec: ProcessSpec, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Hosts the phones until `stop` is set; calls `ready` when all ports listen. Raises PortInUse."""
    token = read_token(Path(spec.token_file).expanduser()) if spec.token_file else ""
    phones = [HostedPhone(phone, token, spec.token_file) for phone in spec.phones]
    announcing: asyncio.Task[None] | None = None
    try:
        for phone in phones:
            await phone.start()
        if spec.adb_server_port:
            announcer = Announcer(
                spec.adb_server_port,
                lambda: {phone.spec.serial: phone.spec.adb_port for phone in phones if phone.is_up},
            )
            announcing = asyncio.ensure_future(announcer.run())
        ready()
        await stop.wait()
    finally:
        if announcing is not None:
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)
        for phone in phones:
            await phone.stop()


async def _main(spec: ProcessSpec) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(spec, stop, Path(spec.ready_file).touch if spec.ready_file else lambda: None)


def main() -> int:
    """Runs the process. Returns its exit code."""
    setup(role="sim-host")
    try:
        asyncio.run(_main(ProcessSpec.load(sys.argv[1])))
    except DistrlError as error:
        with contextlib.suppress(BrokenPipeError):
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
