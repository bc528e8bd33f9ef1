"""A small simulated phone with its gRPC server and a client, for tests."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_phone import Client, connected

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.emulator_grpc.server import ControlServer
from distrl.simulator.adb.faults import Faults
from distrl.simulator.adb.machine import Machine, Snapshots

WIDTH, HEIGHT = 270, 600


class World:
    """A phone with its server and a client."""

    def __init__(self, machine: Machine, server: ControlServer, port: int, client: Client) -> None:
        self.machine, self.system, self.server, self.port = machine, machine.system, server, port
        self.client = client

    @property
    def field(self) -> str:
        """The text of the focused field."""
        state = self.system.state
        return str(state["fields"].get(state["focus"], ""))


@asynccontextmanager
async def grpc_world(token: str = "", known: str = "") -> AsyncIterator[World]:
    """A small phone whose gRPC asks for `token`, and a client that says `known`."""
    system = AndroidSystem("emulator-5554", WIDTH, HEIGHT)
    machine = Machine(system, Faults(), Snapshots(), lambda: None, avd_name="Pixel")
    system.settings.put("secure", "long_press_timeout", "600000")  # a slow machine is no long press
    server = ControlServer(machine, token)
    port = await server.start()
    try:
        async with connected(port, known) as client:
            yield World(machine, server, port, client)
    finally:
        await server.stop()


def middle(system: AndroidSystem, name: str) -> tuple[int, int]:
    """The middle of the first element with this text, description or class."""
    for node in ET.fromstring(system.device.hierarchy()).iter("node"):
        if name in (node.get("text"), node.get("content-desc"), node.get("class")):
            left, top, right, bottom = map(int, re.findall(r"\d+", node.get("bounds", "")))
            return (left + right) // 2, (top + bottom) // 2
    raise AssertionError(f"no {name} on the screen")


async def refused(call: Awaitable[object]) -> tuple[str, str]:
    """The status and the text of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details()
