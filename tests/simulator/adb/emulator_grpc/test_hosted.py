"""gRPC of phones in a host's processes: each its own, gone and back with its phone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from grpc_phone import Client, connected
from sim_phones import Console, free_pair
from waiting import until

from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.host import GRPC_OFFSET, SimHost
from distrl.workers.devices.errors import PortInUse

RunState = messages.VmRunState


def host_of(num: int, base_port: int) -> SimHost:
    """Small phones in one process, unknown to any adb server."""
    return SimHost(num, 90, 200, base_port, 1, adb_server_port=0, token_file="", grpc=True)


def ask(port: int | None, question: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a phone answers."""
    assert port is not None

    async def main() -> Any:
        async with connected(port) as client:
            return await question(client)

    return asyncio.run(main())


def status(client: Client) -> Awaitable[Any]:
    return client.call("getStatus")


def listed(client: Client) -> Awaitable[Any]:
    return client.call("ListSnapshots")


def answers(port: int | None) -> bool:
    try:
        return bool(ask(port, status).booted)
    except grpc.aio.AioRpcError:
        return False


def test_each_phone_has_a_port_and_a_crash_takes_only_its_own() -> None:
    base = free_pair(2, 3, GRPC_OFFSET, GRPC_OFFSET + 2)
    with host_of(2, base) as host:
        one, other = (device.grpc_port for device in host.start())
        assert (one, other) == (base + GRPC_OFFSET, base + 2 + GRPC_OFFSET)
        Console(base).say("avd snapshot save mine")
        assert [each.snapshot_id for each in ask(one, listed).snapshots] == ["mine"]
        assert list(ask(other, listed).snapshots) == []
        ask(one, lambda client: client.call("setVmState", RunState(state=RunState.SHUTDOWN)))
        assert answers(other)
        until(lambda: answers(one), "the phone")


def test_a_taken_port_stops_the_start_with_one_line() -> None:
    base = free_pair(GRPC_OFFSET)
    taken = base + GRPC_OFFSET
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(PortInUse) as failure:
        host_of(1, base).start()
    assert f"port {taken} of 127.0.0.1 is in use" in str(failure.value)
    assert "\n" not in str(failure.value)
