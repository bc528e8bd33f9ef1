"""Services of a phone's adbd: what sync and reverse refuse, and how, and a terminal's manners.

What they do for adb and its libraries is in ../clients.
"""

from __future__ import annotations

import asyncio
import errno
import stat
import struct

import pytest
from adb_peer import AdbPeer, Seen
from adb_phone import AdbPhone

from distrl.simulator.adb.adbd import sync
from distrl.simulator.adb.adbd.services import Terminal
from distrl.simulator.adb.runtime import Pipe
from distrl.simulator.adb.uiautomator import UiautomatorServer

PATH = "/data/local/tmp/a file"
QUIT = b"QUIT" + bytes(4)
OK = b"OKAY" + bytes(4)


def request(name: bytes, path: str) -> bytes:
    """A request of the sync protocol."""
    return name + struct.pack("<I", len(path.encode())) + path.encode()


def sent(path: str, size: int) -> bytes:
    """All of a SEND of `size` bytes."""
    pieces = (min(65536, size - start) for start in range(0, size, 65536))
    data = b"".join(b"DATA" + struct.pack("<I", piece) + bytes(piece) for piece in pieces)
    return request(b"SEND", f"{path},{0o100644}") + data + b"DONE" + struct.pack("<I", 5)


def fail(text: str) -> bytes:
    return b"FAIL" + struct.pack("<I", len(text)) + text.encode()


async def test_a_file_that_cannot_be_stored_is_refused_and_the_session_goes_on(
    phone: AdbPhone, peer: AdbPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "MAX_BYTES", phone.system.files.used() + 100_000)
    stdin = sent("/system/app/x", 100_000) + sent(PATH, 100_001) + sent(PATH, 100_000) + QUIT
    answer = await peer.run(b"sync:", 1, stdin)
    assert answer.startswith(b"FAIL")
    assert b"Read-only file system" in answer or b"Permission denied" in answer
    assert answer.endswith(fail("couldn't create file: No space left on device") + OK)


async def test_an_unknown_sync_request_is_refused_and_ends_the_stream(peer: AdbPeer) -> None:
    assert await peer.run(b"sync:", 1, request(b"WHAT", "/")) == fail("unknown command WHAT")


@pytest.mark.parametrize(("name", "kind"), [(b"STA2", stat.S_IFREG), (b"LST2", stat.S_IFLNK)])
async def test_stat_follows_links_and_lstat_does_not(
    phone: AdbPhone, peer: AdbPeer, name: bytes, kind: int
) -> None:
    phone.system.files.write("/data/local/tmp/f", b"12345", mtime=99)
    phone.system.files.symlink("f", "/data/local/tmp/l")
    stdin = request(name, "/data/local/tmp/l") + request(name, "/nowhere") + QUIT
    there, absent = struct.iter_unpack("<4sIQQIIIIQqqq", await peer.run(b"sync:", 1, stdin))
    assert (there[0], there[1], stat.S_IFMT(there[4])) == (name, 0, kind)
    assert absent == (name, errno.ENOENT, *[0] * 10)


@pytest.mark.parametrize(("mode", "kept"), [(0o100600, b"old"), (0o120777, b"old"), (10**20, b"old")])
async def test_a_push_replaces_a_link_and_does_not_write_through_it(
    phone: AdbPhone, peer: AdbPeer, mode: int, kept: bytes
) -> None:
    phone.system.files.write("/data/local/tmp/f", b"old")
    for link, target in (("/data/local/tmp/l", "f"), ("/data/local/tmp/m", "/nowhere")):
        phone.system.files.symlink(target, link)
        data = b"DATA" + struct.pack("<I", 4) + b"/new" + b"DONE" + struct.pack("<I", 5)
        assert await peer.run(b"sync:", 1, request(b"SEND", f"{link},{mode}") + data + QUIT) == OK
        there = phone.system.files.lstat(link)
        assert (there.is_link, there.size) == (mode == 0o120777, 4)
    assert phone.system.files.read("/data/local/tmp/f") == kept


async def test_a_command_sees_the_end_of_its_input_when_the_client_is_gone(
    phone: AdbPhone, peer: AdbPeer
) -> None:
    """In shell v2 too, where clients that are killed do not close the standard input first."""
    remote = await peer.open(b"shell,v2,raw:cat > /sdcard/f; echo ended > /sdcard/g", 1)
    peer.send("WRTE", 1, remote, b"\0" + struct.pack("<I", 2) + b"hi")
    peer.send("CLSE", 1, remote)
    await peer.until("CLSE")
    for _ in range(100):
        await asyncio.sleep(0)
    assert phone.system.files.read("/sdcard/f") == b"hi"
    assert phone.system.files.read("/sdcard/g") == b"ended\n"


async def test_a_reboot_from_the_shell_ends_the_connection_and_all_ports(
    phone: AdbPhone, peer: AdbPeer
) -> None:
    phone.system.network.listen(7000, echo)
    boot_id = phone.system.boot_id
    assert await peer.run(b"shell,v2,raw:reboot", 1) == b"\x03" + struct.pack("<I", 1) + b"\0"
    assert await peer.ended()
    assert phone.system.network.answer(7000) is None
    assert phone.system.boot_id != boot_id


@pytest.mark.parametrize(
    "body",
    [
        b'{"method": ["x"]}',
        b'{"method": "click", "params": [1e999, 2]}',
        b'{"method": "exist", "params": ["text"]}',
        b'{"method": "pressKey", "params": [3]}',
        b"[" * 100_000,
    ],
)
async def test_uiautomators_server_answers_any_request(phone: AdbPhone, peer: AdbPeer, body: bytes) -> None:
    phone.system.network.listen(9008, UiautomatorServer(phone.system).answer)
    remote = await peer.open(b"tcp:9008", 1)
    peer.send("WRTE", 1, remote, b"POST /jsonrpc/0 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b'"code": -32602' in [seen.payload for seen in await peer.until("WRTE")][-1]


async def test_uiautomators_text_does_not_reach_a_dark_screen(phone: AdbPhone) -> None:
    server = UiautomatorServer(phone.system)
    phone.system.activities.open("browser")
    phone.system.change(lambda state: state.update(focus="browser.query"))
    await server.rpc_setClipboard(None, "typed")
    await server.rpc_pasteClipboard()
    phone.system.power(False)
    await server.rpc_pasteClipboard()
    await server.rpc_clearInputText()
    assert phone.system.state["fields"]["browser.query"] == "typed"


async def echo(pipe: Pipe) -> None:
    """Sends back what comes."""
    while data := await pipe.read(1024):
        await pipe.write(data)


async def test_reverse_connections_that_the_host_refuses_are_closed_and_forwards_end_with_their_connection(
    phone: AdbPhone, peer: AdbPeer
) -> None:
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1)
    inside = await peer.open(b"tcp:6100", 2)
    asked = await peer.next()
    peer.send("CLSE", 0, asked.arg0)
    assert await peer.next() == Seen("CLSE", inside, 2)
    phone.server.drop()
    assert await peer.ended()
    assert phone.system.network.answer(6100) is None


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"forward:norebind:tcp:6100;tcp:7200", b"cannot rebind existing socket"),
        (b"forward:localabstract:x;tcp:7200", b"only tcp ports can be forwarded"),
        (b"forward:tcp:7000;tcp:7200", b"cannot bind listener: Address already in use"),
        (b"forward:tcp:%s;tcp:7200" % (b"1" * 5000), b"only tcp ports can be forwarded"),
        (b"killforward:\xff", b"listener '\xff' not found"),
        (b"what", b"unknown request 'reverse:what'"),
    ],
)
async def test_reverse_says_why_it_refuses(
    phone: AdbPhone, peer: AdbPeer, request_: bytes, answer: bytes
) -> None:
    phone.system.network.listen(7000, echo)
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1)
    assert await peer.run(b"reverse:" + request_, 2) == b"FAIL%04x" % len(answer) + answer


class Keys:
    """A client that types what is given and keeps what it sees."""

    def __init__(self, typed: list[bytes]) -> None:
        self._typed = typed
        self.seen = b""

    async def read(self, size: int) -> bytes:
        return self._typed.pop(0) if self._typed else b""

    async def out(self, data: bytes) -> None:
        self.seen += data

    err = out


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
def test_a_terminal_echoes_keys_and_is_read_line_by_line(
    keys: list[bytes], read: list[bytes], seen: bytes
) -> None:
    async def main() -> tuple[list[bytes], bytes]:
        client = Keys(keys)
        terminal = Terminal(client)
        await terminal.type()
        lines = []
        while line := await terminal.read(1024):
            lines.append(line)
        return lines, client.seen

    assert asyncio.run(main()) == (read, seen)


async def test_a_terminal_takes_no_more_keys_while_nobody_reads_its_lines() -> None:
    client = Keys([b"x\n" * 2048] * 100)
    terminal = Terminal(client)
    typing = asyncio.ensure_future(terminal.type())
    await asyncio.sleep(0)
    assert len(client.seen) <= 2 * 3 * 2048
    while line := await terminal.read(1024):
        assert line == b"x\n"
    assert client.seen == b"x\r\n" * 2048 * 100
    await typing
