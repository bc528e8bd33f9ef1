"""`adb reverse`: ports inside the phone whose connections go to ports of the adb server's machine.

A request is answered as adbd answers it: OKAY or FAIL with a text, its length before it in four hex digits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from distrl.simulator.adb.adbd.stream import Stream
from distrl.simulator.adb.network import Network, Pipe

_OPEN_S = 10.0
"""How long the adb server may take to connect; then the phone's connection is closed."""
_CHUNK = 64 * 1024
_SERIAL = "host-1"
"""What adbd calls the transport in its list."""


class Reverse:
    """The forwards of one connection; they end with it.

    Args:
        network: The phone's ports.
        open_stream: Opens a stream to a service of the adb server.
    """

    def __init__(self, network: Network, open_stream: Callable[[str], Stream]) -> None:
        self._network = network
        self._open_stream = open_stream
        self._forwards: dict[int, str] = {}

    def request(self, text: str) -> bytes:
        """Carries out a request (what follows "reverse:") and gives the answer."""
        verb, _, rest = text.partition(":")
        if verb == "forward":
            return self._forward(rest)
        if verb == "list-forward":
            lines = (f"{_SERIAL} tcp:{port} {remote}\n" for port, remote in self._forwards.items())
            return _text("".join(lines))
        if verb == "killforward-all":
            self.clear()
            return b"OKAY"
        if verb == "killforward":
            port = _port(rest)
            if port is None or port not in self._forwards:
                return _fail(f"listener '{rest}' not found")
            self._remove(port)
            return b"OKAY"
        return _fail(f"unknown request 'reverse:{text}'")

    def clear(self) -> None:
        """Removes all forwards."""
        for port in list(self._forwards):
            self._remove(port)

    def _remove(self, port: int) -> None:
        del self._forwards[port]
        self._network.close(port)

    def _forward(self, text: str) -> bytes:
        rebinds = not text.startswith("norebind:")
        local, _, remote = text.removeprefix("norebind:").partition(";")
        port = _port(local)
        if port is None or _port(remote) is None:
            return _fail("only tcp ports can be forwarded")
        wants_any = port == 0
        if wants_any:
            port = self._network.free_port()
        if port in self._forwards:
            if not rebinds:
                return _fail("cannot rebind existing socket")
        else:
            try:
                self._network.listen(port, lambda pipe: self._answer(pipe, port))
            except OSError as error:
                return _fail(f"cannot bind listener: {error.strerror}")
        self._forwards[port] = remote
        return b"OKAY" + (_text(str(port)) if wants_any else b"")

    async def _answer(self, pipe: Pipe, port: int) -> None:
        """One connection to a forwarded port."""
        stream = self._open_stream(self._forwards[port])
        try:
            if await asyncio.wait_for(stream.opened(), _OPEN_S):
                await relay(pipe, stream)
        except asyncio.TimeoutError:
            return
        finally:
            stream.close()


async def relay(left: Pipe, right: Pipe) -> None:
    """Passes bytes on in both directions until one side ends."""
    tasks = [asyncio.ensure_future(_copy(left, right)), asyncio.ensure_future(_copy(right, left))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: Pipe, target: Pipe) -> None:
    while data := await source.read(_CHUNK):
        await target.write(data)


def _port(spec: str) -> int | None:
    """The number of "tcp:N", None if it is something else."""
    kind, _, number = spec.partition(":")
    return int(number) if kind == "tcp" and number.isdecimal() and int(number) < 65536 else None


def _text(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):04x}".encode() + data


def _fail(text: str) -> bytes:
    return b"FAIL" + _text(text)
