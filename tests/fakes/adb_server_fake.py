"""An adb server for tests: it speaks the real bytes over loopback, and its devices do what a test says.

One thread accepts, and each connection has one of its own; `close` ends them all.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PATIENCE_S = 20.0


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, over: threading.Event) -> None:
        self.sock = sock
        self._over = over

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the client hung up")
            data += part
        return data

    def request(self) -> str:
        return self.read(int(self.read(4), 16)).decode()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def okay(self, text: str | None = None) -> None:
        self.send(b"OKAY" + (b"" if text is None else b"%04x" % len(text.encode()) + text.encode()))

    def fail(self, text: str) -> None:
        self.send(b"FAIL%04x" % len(text.encode()) + text.encode())

    def packet(self, kind: int, data: bytes) -> None:
        self.send(struct.pack("<BI", kind, len(data)) + data)

    def hang(self) -> None:
        """Says nothing until the test is over."""
        self._over.wait(PATIENCE_S)


def refuse(service: str, peer: Peer) -> None:
    peer.fail("closed")


Serve = Callable[[str, Peer], None]
Answer = tuple[bytes, bytes, int]


@dataclass
class FakeDevice:
    """A device: what it can do, how it serves, and what it was asked."""

    state: str = "device"
    serve: Serve = refuse
    asked: list[str] = field(default_factory=list)
    reconnects: int = 0


def runs(answer: Callable[[str], Answer | bytes | str]) -> Serve:
    """Serves shell v2 and exec by a function from the command to (out, err, status) or to the out."""

    def serve(service: str, peer: Peer) -> None:
        name, _, command = service.partition(":")
        got = answer(command)
        out, err, status = got if isinstance(got, tuple) else (got, b"", 0)
        out = out.encode() if isinstance(out, str) else out
        peer.okay()
        if name.startswith("shell,v2"):
            for kind, data in ((1, out), (2, err), (3, bytes([status]))):
                peer.packet(kind, data)
        else:
            peer.send(out + err)

    return serve


def _part(sock: socket.socket) -> None:
    """Ends a connection so that the client gets all that was sent: what it says in between is read, too."""
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(PATIENCE_S)
    while sock.recv(2**16):
        pass


class FakeAdbServer:
    """The server, at any free port. Its devices are in `devices`, by serial."""

    def __init__(self) -> None:
        self.devices: dict[str, FakeDevice] = {}
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def change(self, edit: Callable[[dict[str, FakeDevice]], object]) -> None:
        """Changes the devices; trackers are notified."""
        with self._changed:
            edit(self.devices)
            self._changed.notify_all()

    def hang_up(self) -> None:
        """Ends all connections; new ones are taken."""
        for sock in list(self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                self._open.discard(sock)

    def close(self) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        self._open.add(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the real server does
        with sock, suppress(OSError):  # the client has seen enough
            self._answer(Peer(sock, self._over))
            _part(sock)
        self._open.discard(sock)

    def _answer(self, peer: Peer) -> None:
        request = peer.request()
        if request == "host:version":
            peer.okay("0029")
        elif request == "host:devices":
            peer.okay(self.listing())
        elif request == "host:track-devices":
            self._track(peer)
        elif request.startswith("host:tport:serial:"):
            self._transport(peer, request.removeprefix("host:tport:serial:"))
        elif request.startswith("host-serial:"):
            serial, _, what = request.removeprefix("host-serial:").rpartition(":")
            self._about(peer, serial, what)
        else:
            peer.fail("unknown host service")

    def listing(self) -> str:
        return "".join(f"{serial}\t{device.state}\n" for serial, device in self.devices.items())

    def _track(self, peer: Peer) -> None:
        peer.send(b"OKAY")
        while not self._over.is_set():
            with self._changed:
                text = self.listing().encode()
                peer.send(b"%04x" % len(text) + text)
                self._changed.wait(PATIENCE_S)

    def _about(self, peer: Peer, serial: str, what: str) -> None:
        device = self.devices.get(serial)
        if device is None:
            peer.fail(f"device '{serial}' not found")
        elif device.state != "device" and what != "reconnect":
            peer.fail(f"device {device.state}")
        elif what == "get-state":
            peer.okay("device")
        else:
            device.reconnects += 1
            peer.okay(f"reconnecting {serial}")

    def _transport(self, peer: Peer, serial: str) -> None:
        device = self.devices.get(serial)
        if device is None:
            peer.fail(f"device '{serial}' not found")
        elif device.state != "device":
            peer.fail(f"device {device.state}")
        else:
            peer.send(b"OKAY" + (7).to_bytes(8, "little"))
            service = peer.request()
            device.asked.append(service)
            device.serve(service, peer)


@contextmanager
def fake_server(**devices: FakeDevice) -> Iterator[FakeAdbServer]:
    """A server with these devices."""
    server = FakeAdbServer()
    server.devices.update(devices)
    try:
        yield server
    finally:
        server.close()
