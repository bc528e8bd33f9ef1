"""A terminal's manners: echo, lines, backspace, Ctrl-C and Ctrl-D, CR LF; and the shell's on a terminal."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from adb_peer import DEADLINE_S, AdbPeer, PeerStream
from adb_phone import AdbPhone

from distrl.simulator.adb.adbd.services import Terminal


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


@pytest.mark.parametrize(
    ("keys", "read", "seen"),
    [
        ([b"ls", b" /\r"], [b"ls /\n"], b"ls /\r\n"),
        ([b"ls"], [], b"ls"),
        # backspace takes back one key and stops at the line's start
        ([b"lx\x7fs\x7f\x7f\x7fok\n"], [b"ok\n"], b"lx\b \bs\b \b\b \bok\r\n"),
        # Ctrl-U takes back the line, Ctrl-C drops what was typed
        ([b"rm\x15ls\n"], [b"ls\n"], b"rm\b \b\b \bls\r\n"),
        ([b"one\nrm -rf\x03ls\n"], [b"ls\n"], b"one\r\nrm -rf^C\r\nls\r\n"),
        # Ctrl-D gives what was typed, and ends the input where that is nothing
        ([b"a\x04b\n\x04never\n"], [b"a", b"b\n"], b"ab\r\nnever\r\n"),
    ],
)
def test_what_is_typed_is_echoed_and_read_line_by_line(
    keys: list[bytes], read: list[bytes], seen: bytes
) -> None:
    assert typed(*keys) == (read, seen)


def test_output_has_carriage_returns() -> None:
    async def main() -> bytes:
        client = Keys()
        await Terminal(client).out(b"one\ntwo\n")
        await Terminal(client).err(b"three\n")
        return client.seen

    assert asyncio.run(main()) == b"one\r\ntwo\r\nthree\r\n"


class Session(PeerStream):
    """A terminal session over the adb protocol (shell v2)."""

    seen = b""
    status: int | None = None

    async def start(self, command: bytes = b"") -> None:
        self.remote = await self.peer.open(b"shell,v2,TERM=xterm-256color,pty:" + command, 1)

    async def _take(self) -> None:
        command = await self.take()
        assert command in ("OKAY", "WRTE"), f"{command} after {self.seen!r}"
        while len(self.data) >= 5:
            kind, size = struct.unpack_from("<BI", self.data)
            if len(self.data) < 5 + size:
                return
            piece = bytes(self.data[5 : 5 + size])
            del self.data[: 5 + size]
            if kind == 3:
                self.status = piece[0]
            else:
                self.seen += piece

    async def type(self, keys: bytes) -> None:
        """Types, once the phone has taken what was typed before."""
        self.send(struct.pack("<BI", 0, len(keys)) + keys)

    async def until(self, text: bytes) -> None:
        """Waits for output, and forgets all up to it."""

        async def wait() -> None:
            while text not in self.seen:
                await self._take()

        try:
            await asyncio.wait_for(wait(), DEADLINE_S)
        except (asyncio.TimeoutError, AssertionError):
            pytest.fail(f"no {text!r} in {self.seen!r}")
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    async def ended(self) -> int:
        """The exit status, once there is one."""
        while self.status is None:
            await asyncio.wait_for(self._take(), DEADLINE_S)
        return self.status


@pytest.fixture
def shell(phone: object) -> Callable[[AdbPhone], Awaitable[Session]]:
    async def connected(phone: AdbPhone) -> Session:
        return Session(await AdbPeer.online(phone.port))

    return connected


PROMPT = b"simphone:/ $ "


@pytest.mark.parametrize(
    "command", ["sleep 600", "cat", "logcat -s nothing", "sleep 600 | cat", "sh -c 'sleep 600'"]
)
async def test_ctrl_c_ends_the_command_in_the_foreground(shell: Session, command: str) -> None:
    await shell.start()
    await shell.until(PROMPT)
    await shell.type(f"echo go; {command}\n".encode())
    await shell.until(b"\ngo\r\n")
    await shell.type(b"\x03")
    await shell.until(b"^C\r\n" + PROMPT)
    await shell.type(b"echo status $?\n")
    await shell.until(b"\nstatus 130\r\n")
    await shell.type(b"exit 7\n")
    assert await shell.ended() == 7


async def test_ctrl_c_spares_the_background_and_drops_an_unfinished_command(shell: Session) -> None:
    await shell.start()
    await shell.type(b"sleep 600 & echo job $!\n")
    await shell.until(b"\njob ")
    await shell.type(b"echo 'two\n")
    await shell.until(b"> ")
    await shell.type(b"\x03")
    await shell.until(PROMPT)
    await shell.type(b"echo a''live\n")
    await shell.until(b"alive\r\n")
    await shell.type(b"exit\n")
    assert await shell.ended() == 0


async def test_ctrl_d_ends_a_command_s_input_and_then_the_shell(shell: Session) -> None:
    await shell.start()
    await shell.until(PROMPT)
    await shell.type(b"cat; echo status $?\n")
    await shell.type(b"line\n")
    await shell.until(b"\nline\r\nline\r\n")
    await shell.type(b"\x04")
    await shell.until(b"status 0\r\n" + PROMPT)
    await shell.type(b"sh -c 'exit 5'\n")
    await shell.until(PROMPT)
    await shell.type(b"\x04")
    assert await shell.ended() == 5


@pytest.mark.parametrize("way", ["exit 3\n", "sh -c 'exit 3'\n\x04"])
async def test_the_shell_ends_while_a_job_runs_in_the_background(shell: Session, way: str) -> None:
    await shell.start()
    await shell.type(b"sleep 600 &\n")
    await shell.until(PROMPT)
    await shell.type(way.encode())
    assert await shell.ended() == 3


async def test_ctrl_c_ends_a_command_that_was_given_a_terminal(shell: Session) -> None:
    await shell.start(b"echo go; sleep 600; echo never")
    await shell.until(b"go\r\n")
    await shell.type(b"\x03")
    assert await shell.ended() == 130
    assert b"never" not in shell.seen
