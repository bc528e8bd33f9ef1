"""The gRPC port of one phone: both services, on the phone's event loop and on 127.0.0.1 only.

    client ── grpc.aio server ── token ── method (at once, on the loop) ── delay of a slow phone ── answer

Clients may use gRPC's local credentials or none. A call that is refused ends with a gRPC status.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from distrl.core.errors import DistrlError
from distrl.simulator.adb.emulator_grpc import services
from distrl.simulator.adb.emulator_grpc.services import Method, Rejected, Then
from distrl.simulator.adb.machine import Machine
from distrl.workers.devices.errors import PortInUse

HOST = "127.0.0.1"
MAX_CALLS = 64
"""Most calls at a time; another is refused with RESOURCE_EXHAUSTED."""
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a taken port would be shared in silence
    ("grpc.max_send_message_length", -1),  # a picture has no limit but its size
    ("grpc.max_receive_message_length", 1 << 20),
]


class ControlServer:
    """The gRPC services of one phone.

    Args:
        token: What a client must send as `authorization: Bearer TOKEN`; "" for none.
    """

    def __init__(self, machine: Machine, token: str = "") -> None:
        self._machine = machine
        self._token = token
        self._server: Any = None

    async def start(self, port: int = 0) -> int:
        """Listens at `port`, 0 for a free one. Returns the port. Raises PortInUse."""
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
        server.add_generic_rpc_handlers(self._handlers())
        credentials = grpc.local_server_credentials(grpc.LocalConnectionType.LOCAL_TCP)
        try:
            bound: int = server.add_secure_port(f"{HOST}:{port}", credentials)
        except RuntimeError as error:  # all that gRPC says of it
            raise PortInUse(
                f"port {port} of {HOST} is in use.",
                "Choose other ports, or stop the process that uses it.",
                serial=self._machine.system.serial,
            ) from error
        await server.start()
        self._server = server
        return bound

    async def stop(self) -> None:
        """Stops listening and ends what is going on. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def _handlers(self) -> tuple[Any, ...]:
        control, kept = services.Controller(self._machine), services.SnapshotService(self._machine)
        found = []
        for name, methods in ((services.CONTROLLER, control.methods()), (services.SNAPSHOTS, kept.methods())):
            table = {
                method: grpc.unary_unary_rpc_method_handler(
                    self._call(function), request.FromString, _serialized
                )
                for method, (function, request) in methods.items()
            }
            found.append(grpc.method_handlers_generic_handler(name, table))
        return tuple(found)

    def _call(self, function: Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            await self._admit(context)
            started = time.monotonic()
            try:
                answer = function(request)
            except Rejected as rejected:
                await context.abort(grpc.StatusCode[rejected.code], rejected.text)
            except DistrlError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
            await asyncio.sleep(self._machine.faults.delay_s(time.monotonic() - started))
            if isinstance(answer, Then):
                loop, action = asyncio.get_running_loop(), answer.action
                context.add_done_callback(lambda _: loop.call_soon(action))
                return answer.message
            return answer

        return call

    async def _admit(self, context: Any) -> None:
        if not self._token:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(str(given).encode(), f"Bearer {self._token}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "The authorization header is not valid.")


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
