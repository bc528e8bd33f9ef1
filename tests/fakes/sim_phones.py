"""Simulated phones with their servers, in a thread of this process: what a `sim-host` process does."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distrl.simulator.adb.process import PhoneSpec, ProcessSpec, serve

START_S = 60.0


_PAIRS = range(10_000, 32_000, 2)
"""Outside what adb servers look into, and below the ports that systems give to outgoing connections."""
_given: set[int] = set()


def free_pair(*beyond: int) -> int:
    """An even port whose next is free too, and those so far `beyond` it; no two calls get the same."""
    for port in random.SystemRandom().sample(_PAIRS, 200):
        wanted = [port, port + 1, *(port + distance for distance in beyond)]
        if not _given & set(wanted):
            with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
                for each in wanted:
                    opened.enter_context(socket.socket()).bind(("127.0.0.1", each))
                _given.update(wanted)
                return port
    raise AssertionError("no free ports")


@dataclass(frozen=True)
class Console:
    """A phone's console without a token."""

    port: int

    def say(self, line: str) -> str:
        """Sends a line. Returns all that is said until OK or KO."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            stream = connection.makefile("rw", encoding="utf-8", newline="")
            _answer(stream)
            stream.write(f"{line}\r\n")
            stream.flush()
            return _answer(stream)


def _answer(stream: object) -> str:
    said = ""
    for line in stream:  # type: ignore[attr-defined]
        said += line
        if line.startswith(("OK", "KO")):
            return said
    return said


@contextlib.contextmanager
def phones(
    count: int = 1,
    adb_server_port: int = 0,
    width: int = 540,
    height: int = 1200,
    token_file: str = "",
    grpc: bool = False,
    ports: Sequence[int] = (),
) -> Iterator[list[PhoneSpec]]:
    """Phones that listen while the context lasts; a crash ends the phone, never this process.

    Their console ports are free ones, or those that `free_pair` has given as `ports`.
    """
    specs = []
    for port in ports or [free_pair() for _ in range(count)]:
        grpc_port = free_pair() if grpc else 0
        specs.append(PhoneSpec(port, port + 1, width, height, grpc_port=grpc_port))
    spec = ProcessSpec(tuple(specs), adb_server_port, token_file)
    started, failure = threading.Event(), []
    loop_of: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loop_of.append((asyncio.get_running_loop(), stop))
        await serve(spec, stop, started.set)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            failure.append(error)
            started.set()

    thread = threading.Thread(target=run, name="phones", daemon=True)
    thread.start()
    assert started.wait(START_S), "the phones did not start"
    try:
        if failure:
            raise failure[0]
        yield specs
    finally:
        if thread.is_alive():
            loop, stop = loop_of[0]
            loop.call_soon_threadsafe(stop.set)
            thread.join(START_S)
        assert not thread.is_alive(), "the phones did not stop"
