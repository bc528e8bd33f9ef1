"""A terminal's manners: echo, lines, backspace, Ctrl-C and Ctrl-D, CR LF."""

from __future__ import annotations

import asyncio

from distrl.workers.simhost.adbd.terminal import Terminal


class Keys:
    """A client that types what is given and keeps what it sees."""

    def __init__(self, *typed: bytes) -> None:
        self._typed = list(typed)
        self.seen = b""

    async def read(self, size: int) -> bytes:
        return self._typed.pop(0) if self._typed else b""

    async def out(self, data: bytes) -> None:
        self.seen += data

    async def err(self, data: bytes) -> None:
        self.seen += data


def typed(*keys: bytes) -> tuple[list[bytes], bytes]:
    """What the shell reads, and what the client sees."""

    async def main() -> tuple[list[bytes], bytes]:
        client = Keys(*keys)
        terminal = Terminal(client)
        await terminal.type()
        lines = []
        while line := await terminal.read(1024):
            lines.append(line)
        return lines, client.seen

    return asyncio.run(main())


def test_a_line_is_echoed_and_read_when_it_is_finished() -> None:
    assert typed(b"ls", b" /\r") == ([b"ls /\n"], b"ls /\r\n")


def test_an_unfinished_line_is_not_read() -> None:
    assert typed(b"ls") == ([], b"ls")


def test_backspace_takes_back_one_key_and_stops_at_the_line_s_start() -> None:
    assert typed(b"lx\x7fs\x7f\x7f\x7fok\n") == ([b"ok\n"], b"lx\b \bs\b \b\b \bok\r\n")


def test_ctrl_c_drops_the_line() -> None:
    assert typed(b"rm -rf\x03ls\n") == ([b"\nls\n"], b"rm -rf^C\r\nls\r\n")


def test_ctrl_d_ends_the_input_at_the_start_of_a_line_only() -> None:
    assert typed(b"a\x04b\n\x04") == ([b"ab\n"], b"ab\r\n")


def test_output_has_carriage_returns() -> None:
    async def main() -> bytes:
        client = Keys()
        await Terminal(client).out(b"one\ntwo\n")
        await Terminal(client).err(b"three\n")
        return client.seen

    assert asyncio.run(main()) == b"one\r\ntwo\r\nthree\r\n"
