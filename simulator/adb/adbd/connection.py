"""The adb daemon of one simulated phone: a TCP port, and the connections of adb servers to it.

    CNXN ─► (AUTH, never accepted) or CNXN ─► OPEN ─► a task per stream ─► WRTE/OKAY … CLSE

Packets leave at the end of each round of the event loop, in one write. A hung phone keeps them and reads
nothing; at most one data packet of each stream is among them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable

from distrl.simulator.adb.adbd import services
from distrl.simulator.adb.adbd.stream import (
    AUTH,
    AUTH_SIGNATURE,
    AUTH_TOKEN,
    CHECKSUM_VERSION,
    CLSE,
    CNXN,
    MAX_PAYLOAD,
    MIN_PAYLOAD,
    OKAY,
    OPEN,
    VERSION,
    WRTE,
    Packet,
    PacketError,
    Reader,
    Stream,
    encode,
)
from distrl.simulator.adb.android import RESTART_S, AndroidSystem
from distrl.simulator.adb.faults import Fault, Faults, Kind
from distrl.workers.devices.errors import PortInUse

HOST = "127.0.0.1"
FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,fixed_push_symlink_timestamp"
MAX_STREAMS = 256
"""Most open streams of one connection; another is refused."""
MAX_UNREAD = 4 * MAX_PAYLOAD
"""While more than so many bytes wait for a peer to read them, nothing is read from it."""
_TOKEN_BYTES = 20
_log = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """A connection.

    Attributes:
        max_payload: Most bytes in one packet, as both sides agreed.
        reverse: The ports that the phone forwards to the host.
        faults: What is wrong with the phone.
    """

    def __init__(self, server: AdbdServer) -> None:
        self.server = server
        self.max_payload = MIN_PAYLOAD
        self.reverse = services.Reverse(server.system.network, self.open_stream)
        self.faults = server.faults
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self._hello: Packet | None = None
        self._is_online = False
        self._sent: list[bytes] = []
        self._to_pump: list[Stream] = []
        self._will_flush = False
        self._is_hung = self._is_full = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """An adb server has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(MAX_UNREAD)
        self.server.connections.add(self)
        self.fault_changed(self.faults.fault)

    def connection_lost(self, exc: Exception | None) -> None:
        """The adb server has gone."""
        self.server.connections.discard(self)
        self._transport = None
        self._end_streams()

    def data_received(self, data: bytes) -> None:
        """Handles the packets that have come."""
        try:
            for packet in self._reader.feed(data):
                self._handle(packet)
        except PacketError as error:
            _log.warning("%s: %s", self.server.system.serial, error)
            self.close()

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._is_full = True
        self._pace()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_full = False
        self._pace()

    def _pace(self) -> None:
        if self._transport is not None:
            if self._is_hung or self._is_full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        """Ends the connection at once; its services stop."""
        self._end_streams()
        if self._transport is not None:
            self._transport.abort()

    def restart(self) -> None:
        """Ends the connection after `RESTART_S`, when the client has the answer."""
        asyncio.get_running_loop().call_later(RESTART_S, self.close)

    def fault_changed(self, fault: Fault) -> None:
        """Hangs, continues, or answers a handshake that got no answer."""
        self._is_hung = fault.kind is Kind.HANG
        self._pace()
        if not self._is_hung:
            self._schedule_flush()
            if self._hello is not None and not self._is_online:
                self._greet()

    # The streams' side.

    def send(self, packet: Packet) -> None:
        """Sends a packet at the end of this round."""
        self._sent.append(encode(packet, self._reader.checksums))
        self._schedule_flush()

    def wants_flush(self, stream: Stream) -> None:
        """Pumps `stream` at the end of this round."""
        self._to_pump.append(stream)
        self._schedule_flush()

    def forget(self, stream: Stream) -> None:
        """`stream` has ended; packets to it are ignored from now on."""
        self._streams.pop(stream.local, None)

    def open_stream(self, service: str) -> Stream:
        """Asks the adb server for `service`, e.g. "tcp:7100" for a port of its machine."""
        stream = self._new_stream(0)
        self.send(Packet(OPEN, stream.local, 0, service.encode() + b"\0"))
        return stream

    # Packets.

    def _handle(self, packet: Packet) -> None:
        if packet.command == CNXN:
            self._meet(packet)
        elif packet.command == AUTH:
            if self.faults.kind is Kind.UNAUTHORIZED and packet.arg0 == AUTH_SIGNATURE:
                self._challenge()
        elif not self._is_online:
            raise PacketError("a stream before the handshake")
        elif packet.command == OPEN:
            self._open(packet)
        else:
            stream = self._streams.get(packet.arg1)
            if stream is not None and stream.remote in (0, packet.arg0):
                self._pass_on(stream, packet)

    def _pass_on(self, stream: Stream, packet: Packet) -> None:
        if packet.command == OKAY:
            stream.accepted(packet.arg0)
        elif packet.command == WRTE and stream.remote:
            if len(packet.payload) > self.max_payload:
                raise PacketError(f"a payload of {len(packet.payload)} bytes, agreed on {self.max_payload}")
            stream.received(packet.payload)
        elif packet.command == CLSE:
            self.forget(stream)
            if stream.remote:
                self.send(Packet(CLSE, stream.local, stream.remote))
            stream.ended_by_peer()

    def _meet(self, hello: Packet) -> None:
        version = min(VERSION, hello.arg0)
        if version < CHECKSUM_VERSION or hello.arg1 < MIN_PAYLOAD:
            raise PacketError(f"adb of version {hello.arg0:#x} with payloads of {hello.arg1} bytes")
        self._end_streams()
        self._hello = hello
        self._is_online = False
        self.max_payload = min(MAX_PAYLOAD, hello.arg1)
        self._reader.checksums = version < VERSION
        self._greet()

    def _greet(self) -> None:
        assert self._hello is not None
        if self.faults.kind is Kind.OFFLINE:
            return
        if self.faults.kind is Kind.UNAUTHORIZED:
            self._challenge()
            return
        self._is_online = True
        names = ("ro.product.name", "ro.product.model", "ro.product.device")
        properties = self.server.system.properties
        banner = "".join(f"{name}={properties.get(name, '')};" for name in names)
        version = min(VERSION, self._hello.arg0)
        self.send(Packet(CNXN, version, self.max_payload, f"device::{banner}features={FEATURES}".encode()))

    def _challenge(self) -> None:
        self.send(Packet(AUTH, AUTH_TOKEN, 0, os.urandom(_TOKEN_BYTES)))

    def _open(self, packet: Packet) -> None:
        service = packet.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        handler = services.find(service, self) if len(self._streams) < MAX_STREAMS else None
        if handler is None or not packet.arg0:
            self.send(Packet(CLSE, 0, packet.arg0))
            return
        stream = self._new_stream(packet.arg0)
        # The task starts before the flush that sends this OKAY: both leave together if the answer is quick.
        stream.task = asyncio.get_running_loop().create_task(self._serve(stream, handler))
        self.send(Packet(OKAY, stream.local, stream.remote))

    async def _serve(self, stream: Stream, handler: services.Handler) -> None:
        try:
            await handler(stream)
        except ConnectionError as error:
            _log.debug("%s: %s", self.server.system.serial, error)
        except Exception:  # noqa: BLE001 - one service must not end the phone
            _log.exception("%s: a service failed", self.server.system.serial)
        finally:
            stream.close()

    def _new_stream(self, remote: int) -> Stream:
        stream = Stream(self, self._next_id, remote)
        self._next_id = self._next_id % 0xFFFFFFFF + 1
        self._streams[stream.local] = stream
        return stream

    def _end_streams(self) -> None:
        self.reverse.clear()
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.ended_by_peer(is_gone=True)

    # Sending.

    def _schedule_flush(self) -> None:
        if not self._will_flush and self._transport is not None:
            self._will_flush = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        to_pump, self._to_pump = self._to_pump, []
        for stream in to_pump:
            stream.pump()
        self._will_flush = False
        if self._is_hung or self._transport is None or not self._sent:
            return
        self._transport.write(b"".join(self._sent) if len(self._sent) > 1 else self._sent[0])
        self._sent.clear()


class AdbdServer:
    """Speaks the adb device protocol for one phone, on 127.0.0.1 only."""

    def __init__(self, system: AndroidSystem, faults: Faults) -> None:
        self.system = system
        self.faults = faults
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        faults.on_change(self._fault_changed)
        system.on_restart(self.drop)

    async def start(self, port: int = 0) -> int:
        """Listens at `port`, 0 for a free one. Returns the port. Raises PortInUse."""
        self._server = await listen(lambda: Connection(self), port, self.system.serial)
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

    def _fault_changed(self, fault: Fault) -> None:
        if fault.kind in (Kind.OFFLINE, Kind.UNAUTHORIZED):
            self.drop()
        for connection in list(self.connections):
            connection.fault_changed(fault)


async def listen(make: Callable[[], asyncio.Protocol], port: int, serial: str) -> asyncio.Server:
    """A TCP server on 127.0.0.1; port 0 takes a free one. Raises PortInUse, which names the phone."""
    try:
        return await asyncio.get_running_loop().create_server(make, HOST, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortInUse(
            f"port {port} of 127.0.0.1 is in use.",
            "Choose other ports, or stop the process that uses it.",
            serial=serial,
        ) from error
