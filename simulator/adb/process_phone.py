"""One simulated phone with its servers: adbd, console, perhaps gRPC; started together, crashed, booted anew.

A server is anything that starts at a port and stops (`Endpoint`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image

from distrl.core.errors import DistrlError
from distrl.simulator.adb import emulator_grpc
from distrl.simulator.adb.adbd.connection import AdbdServer
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import ConsoleServer
from distrl.simulator.adb.console_snapshots import Snapshots
from distrl.simulator.adb.faults import CRASH_S, Fault, Faults, Kind, parse
from distrl.simulator.adb.machine import Machine
from distrl.simulator.phone.nodes import Node
from distrl.simulator.phone.render import RenderCache

CRASHED = 70
"""Exit code of a process whose only phone has crashed."""
_REBIRTH_PAUSE_S = 1.0
"""The pause before trying again to start a phone whose port was taken meanwhile."""
_log = logging.getLogger(__name__)


class Pictures(RenderCache):
    """Few pictures, and no copies: on a hosted phone nobody draws on them. At 1080x2400 one takes 10 MB."""

    def picture(self, tree: Node, width: int, height: int) -> Image.Image:
        """The picture of `tree`, not to be changed."""
        return self.shown(tree, width, height)


_PICTURES = Pictures(capacity=8)


class Endpoint(Protocol):
    """A server of one phone."""

    async def start(self, port: int) -> int:
        """Listens at `port`; gives the port."""
        ...

    async def stop(self) -> None:
        """Stops, and ends its connections. May be called twice."""
        ...


@dataclass(frozen=True)
class PhoneSpec:
    """What a phone is to be.

    Attributes:
        console_port: Even by convention; the serial is emulator-CONSOLE_PORT.
        adb_port: By convention the console's plus 1.
        width, height: Screen size in pixels.
        api_level: The Android API level.
        snapshots: The folder of its snapshots; "" keeps them in memory.
        fault: A fault to start with, as `sim fault` takes it; "" for none.
        grpc_port: By convention the console's plus 3000; 0 for no gRPC.
    """

    console_port: int
    adb_port: int
    width: int = 540
    height: int = 1200
    api_level: int = 34
    snapshots: str = ""
    fault: str = ""
    grpc_port: int = 0

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console_port}"


class HostedPhone:
    """A phone and its servers.

    Args:
        spec: What it is to be.
        token: The console's token.
        token_file: Where clients find it.
        is_alone: Whether the process has no other phone: then a crash ends the process.

    Attributes:
        system, faults: The phone; None while it is down.
    """

    def __init__(self, spec: PhoneSpec, token: str, token_file: str, is_alone: bool) -> None:
        self.spec = spec
        self.system: AndroidSystem | None = None
        self.faults: Faults | None = None
        self._token, self._token_file = token, token_file
        self._is_alone = is_alone
        self._first_fault = spec.fault
        self._snapshots = Snapshots(Path(spec.snapshots) if spec.snapshots else None)
        self._endpoints: list[Endpoint] = []
        self._rebirth: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether its servers listen."""
        return bool(self._endpoints)

    async def start(self) -> None:
        """Boots it.

        Raises:
            PortInUse: If one of its ports is taken.
            MissingDependency: If it is to serve gRPC and lacks a package.
        """
        spec = self.spec
        system = AndroidSystem(spec.serial, spec.width, spec.height, spec.api_level, cache=_PICTURES)
        faults = Faults()
        faults.on_change(self._fault_changed)
        adbd = AdbdServer(system, faults)
        machine = Machine(
            system, faults, self._snapshots, self._kill, reboot=adbd.reboot, avd_path=spec.snapshots
        )
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
        except DistrlError:
            for server in started:
                await server.stop()
            raise
        self.system, self.faults, self._endpoints = system, faults, started
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
        if self.faults is not None:
            self.faults.close()
        endpoints, self._endpoints = self._endpoints, []
        for endpoint in endpoints:
            await endpoint.stop()
        self.system = self.faults = None

    def _fault_changed(self, fault: Fault) -> None:
        if self.system is not None:
            self.system.blank = fault.kind is Kind.BLANK
        if fault.kind is Kind.CRASH:
            self._crash(CRASH_S if fault.seconds is None else fault.seconds)

    def _kill(self) -> None:
        self._crash(CRASH_S)

    def _crash(self, away_s: float) -> None:
        """The phone is gone, and comes back after `away_s`."""
        if self._is_alone and away_s <= CRASH_S:
            _log.warning("%s: crashed, as asked", self.spec.serial)
            os._exit(CRASHED)  # without a goodbye to anybody; the host starts the process again
        if self._rebirth is None or self._rebirth.done():
            self._rebirth = asyncio.get_running_loop().create_task(self._reborn(away_s))

    async def _reborn(self, away_s: float) -> None:
        await self._down()
        await asyncio.sleep(away_s)
        while True:
            try:
                await self.start()
            except DistrlError as error:
                _log.warning("%s", error)
                await asyncio.sleep(_REBIRTH_PAUSE_S)
            else:
                return
