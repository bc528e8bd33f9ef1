"""A gRPC client of simulated phones: the services' methods by name, over a channel of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from distrl.simulator.adb.emulator_grpc import messages, services

DEADLINE_S = 60.0
XKB = messages.KeyboardEvent.XKB

_METHODS: dict[str, tuple[str, Any]] = {
    "getStatus": (services.CONTROLLER, messages.EmulatorStatus),
    "getScreenshot": (services.CONTROLLER, messages.Image),
    "sendTouch": (services.CONTROLLER, messages.Empty),
    "sendKey": (services.CONTROLLER, messages.Empty),
    "setVmState": (services.CONTROLLER, messages.Empty),
    "getGps": (services.CONTROLLER, messages.Empty),
    "ListSnapshots": (services.SNAPSHOTS, messages.SnapshotList),
    "SaveSnapshot": (services.SNAPSHOTS, messages.SnapshotPackage),
    "LoadSnapshot": (services.SNAPSHOTS, messages.SnapshotPackage),
}
"""Each method's service and the class of its answer; getGps is not served."""


class Client:
    """The services at the other end of a channel.

    Args:
        channel: The channel.
        token: What it says it knows; "" for nothing.
    """

    def __init__(self, channel: Any, token: str = "") -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def call(self, method: str, request: Any = None) -> Any:
        """The answer of a method with one."""
        service, answer = _METHODS[method]
        call = self._channel.unary_unary(
            f"/{service}/{method}", lambda message: message.SerializeToString(), answer.FromString
        )
        given = messages.Empty() if request is None else request
        return await call(given, timeout=DEADLINE_S, metadata=self._metadata)

    async def touch(self, *touches: tuple[int, int, int, int]) -> None:
        """Fingers as (identifier, x, y, pressure)."""
        made = [messages.Touch(identifier=i, x=x, y=y, pressure=pressure) for i, x, y, pressure in touches]
        await self.call("sendTouch", messages.TouchEvent(touches=made))

    async def tap(self, x: int, y: int) -> None:
        """One finger touches and lifts."""
        await self.touch((0, x, y, 1))
        await self.touch((0, 0, 0, 0))

    async def key(self, code: int, event: int = messages.KeyboardEvent.keypress, kind: int = XKB) -> None:
        """A keyboard event, by an X code unless `kind` says otherwise."""
        await self.call("sendKey", messages.KeyboardEvent(codeType=kind, keyCode=code, eventType=event))

    async def snapshot(self, method: str, name: str) -> Any:
        """What a method says about the snapshot `name`."""
        return await self.call(method, messages.SnapshotPackage(snapshot_id=name))


@contextlib.asynccontextmanager
async def connected(port: int, token: str = "") -> AsyncIterator[Client]:
    """A client of the phone whose gRPC port is `port`, with gRPC's local credentials."""
    options = [("grpc.max_receive_message_length", -1)]
    credentials = grpc.local_channel_credentials()
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options) as channel:
        yield Client(channel, token)
