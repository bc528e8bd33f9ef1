"""One simulated phone's adbd on the running event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from distrl.simulator.adb.adbd.connection import AdbdServer
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.faults import Faults, parse


@dataclass
class AdbPhone:
    """A phone that listens."""

    system: AndroidSystem
    faults: Faults
    server: AdbdServer
    port: int

    def fault(self, text: str) -> None:
        """Sets a fault as the console does."""
        self.faults.set(parse(text))


@contextlib.asynccontextmanager
async def adb_phone(width: int = 90, height: int = 200) -> AsyncIterator[AdbPhone]:
    """A phone with a small screen, and its adbd at a free port."""
    system, faults = AndroidSystem("emulator-5554", width, height), Faults()
    server = AdbdServer(system, faults)
    port = await server.start()
    try:
        yield AdbPhone(system, faults, server, port)
    finally:
        await server.stop()
