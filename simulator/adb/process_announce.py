"""Telling the adb server which phones there are: `host:emulator:PORT`, again whenever one is missing there.

A connection with `host:track-devices` is kept open: it tells what the server lists, and its end tells that
the server has gone. No server is ever started or stopped from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

_RETRY_S = 0.5
"""The pause before looking for a server again."""
_CHECK_S = 1.0
"""How often the list is compared with the phones, besides at every change of it."""
_AGAIN_S = 2.0
"""The same phone is not announced again before this time: the server may still be shaking hands."""
_DEADLINE_S = 3.0
"""Longest wait for the server's answer to a request."""
_MAX_LIST = 1 << 16
_log = logging.getLogger(__name__)


class Announcer:
    """Keeps phones known to one adb server.

    Args:
        server_port: The adb server's port on 127.0.0.1.
        phones: Gives the phones that are up: adb port by serial.
    """

    def __init__(self, server_port: int, phones: Callable[[], Mapping[str, int]]) -> None:
        self._port = server_port
        self._phones = phones
        self._announced: dict[str, float] = {}

    async def run(self) -> None:
        """Announces until cancelled."""
        while True:
            try:
                reader, writer = await self._connect("host:track-devices")
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                await asyncio.sleep(_RETRY_S)
                continue
            self._announced.clear()
            try:
                await self._follow(reader)
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                _log.info("the adb server at port %d has gone: %s", self._port, error)
                await asyncio.sleep(_RETRY_S)
            finally:
                writer.close()

    async def _connect(self, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = await asyncio.wait_for(connecting, _DEADLINE_S)
        try:
            writer.write(f"{len(request):04x}{request}".encode())
            if await asyncio.wait_for(reader.readexactly(4), _DEADLINE_S) != b"OKAY":
                raise ConnectionRefusedError(f"the server refused {request}")
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Compares every list that comes, and the last one every `_CHECK_S`, until the connection ends."""
        listed: set[str] = set()
        update = asyncio.ensure_future(_read_list(reader))
        try:
            while True:
                done, _ = await asyncio.wait([update], timeout=_CHECK_S)
                if done:
                    listed = update.result()
                    update = asyncio.ensure_future(_read_list(reader))
                await self._announce_missing(listed)
        finally:
            update.cancel()
            await asyncio.gather(update, return_exceptions=True)

    async def _announce_missing(self, listed: set[str]) -> None:
        now = time.monotonic()
        for serial, port in self._phones().items():
            if serial not in listed and now - self._announced.get(serial, -_AGAIN_S) >= _AGAIN_S:
                self._announced[serial] = now
                await self._announce(port)

    async def _announce(self, port: int) -> None:
        """Says that an emulator listens at `port`; the server connects to it and answers nothing."""
        connecting = asyncio.open_connection("127.0.0.1", self._port)
        _, writer = await asyncio.wait_for(connecting, _DEADLINE_S)
        request = f"host:emulator:{port}"
        writer.write(f"{len(request):04x}{request}".encode())
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):  # the list tells how it went
            await asyncio.wait_for(writer.wait_closed(), _DEADLINE_S)


async def _read_list(reader: asyncio.StreamReader) -> set[str]:
    """The serials of the next list.

    Raises:
        ValueError: If it is no list.
        asyncio.IncompleteReadError: If the server closes.
    """
    size = int(await reader.readexactly(4), 16)
    if size > _MAX_LIST:
        raise ValueError(f"a device list of {size} bytes")
    text = (await reader.readexactly(size)).decode("utf-8", "replace")
    return {line.split("\t")[0] for line in text.splitlines() if line}
