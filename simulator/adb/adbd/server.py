"""The adb daemon of one simulated phone: a TCP port, the connections to it, and starting anew."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from distrl.simulator.adb.adbd.connection import Connection
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.faults import Fault, Faults, Kind
from distrl.workers.devices.errors import PortInUse

HOST = "127.0.0.1"


class AdbdServer:
    """Speaks the adb device protocol for one phone, on 127.0.0.1 only.

    Args:
        system: The phone.
        faults: What is wrong with it.

    Attributes:
        connections: The present ones; usually one, of one adb server.
    """

    def __init__(self, system: AndroidSystem, faults: Faults) -> None:
        self.system = system
        self.faults = faults
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        faults.on_change(self._fault_changed)
        system.on_load(self.drop)  # as with a real emulator: Android is another one, and knows none of them

    async def start(self, port: int = 0) -> int:
        """Listens.

        Args:
            port: Where; 0 takes a free one.

        Returns:
            The port.

        Raises:
            PortInUse: If another process listens there.
        """
        self._server = await listen(lambda: Connection(self), port, self.system.serial)
        self._fault_changed(self.faults.fault)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stops listening and drops the connections; their services end. May be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()
        await asyncio.sleep(0)  # lets the cancelled services end

    def drop(self) -> None:
        """Drops all connections; an adb server comes back within a second."""
        for connection in list(self.connections):
            connection.close()

    def reboot(self) -> None:
        """Restarts the phone: connections end, its programs too, what lasts stays."""
        self.drop()
        self.system.network.clear()
        self.system.reboot()

    def _fault_changed(self, fault: Fault) -> None:
        if fault.kind in (Kind.OFFLINE, Kind.UNAUTHORIZED):
            self.drop()
        for connection in list(self.connections):
            connection.fault_changed(fault)


async def listen(make: Callable[[], asyncio.Protocol], port: int, serial: str) -> asyncio.Server:
    """A TCP server on 127.0.0.1.

    Args:
        make: Makes the protocol of a connection.
        port: Where; 0 takes a free one.
        serial: The phone, for the error.

    Raises:
        PortInUse: If another process listens there.
    """
    try:
        return await asyncio.get_running_loop().create_server(make, HOST, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortInUse(
            f"port {port} of 127.0.0.1 is in use.", "Choose other ports, or stop who uses it.", serial=serial
        ) from error
