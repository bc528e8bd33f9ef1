"""The emulator's console: who may speak, what it says, snapshots, faults and its end."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import ConsoleServer, read_token
from distrl.simulator.adb.faults import Faults, Kind
from distrl.simulator.adb.machine import Machine, Snapshots

TOKEN = "s3cret"
DEADLINE_S = 30.0


class Telnet:
    """A connection to a console."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> str:
        """All lines up to OK or KO; or to the end."""
        said = ""
        while line := await asyncio.wait_for(self.reader.readline(), DEADLINE_S):
            said += line.decode()
            assert line.endswith(b"\r\n")
            if line.startswith((b"OK", b"KO")):
                break
        return said

    async def say(self, line: str) -> str:
        self.writer.write(f"{line}\n".encode())
        return await self.answer()


class World:
    """A phone's console and what it controls."""

    def __init__(self, machine: Machine, server: ConsoleServer, port: int, killed: list[bool]) -> None:
        self.machine, self.server, self.port, self.killed = machine, server, port, killed

    async def connect(self) -> Telnet:
        return Telnet(*await asyncio.open_connection("127.0.0.1", self.port))

    async def known(self) -> Telnet:
        telnet = await self.connect()
        await telnet.answer()
        assert (await telnet.say(f"auth {TOKEN}")).endswith("OK\r\n")
        return telnet


@contextlib.asynccontextmanager
async def console(token: str = TOKEN) -> AsyncIterator[World]:
    killed: list[bool] = []
    machine = Machine(
        AndroidSystem("emulator-5554", 90, 200),
        Faults(),
        Snapshots(),
        lambda: killed.append(True),
        avd_name="Pixel",
        avd_path="/avd",
    )
    server = ConsoleServer(machine, token, "/home/me/.emulator_console_auth_token")
    port = await server.start()
    try:
        yield World(machine, server, port, killed)
    finally:
        await server.stop()


@pytest.fixture
def world() -> contextlib.AbstractAsyncContextManager[World]:
    return console()


async def test_before_the_token_only_harmless_commands_exist(world: World) -> None:
    telnet = await world.connect()
    await telnet.answer()
    assert await telnet.say("kill") == "KO: unknown command, try 'help'\r\n"
    assert await telnet.say("avd snapshot list") == "KO: unknown command, try 'help'\r\n"
    assert await telnet.say("sim fault blank") == "KO: unknown command, try 'help'\r\n"
    assert await telnet.say("ping") == "I am alive!\r\nOK\r\n"
    assert await telnet.say("avd name") == "Pixel\r\nOK\r\n"
    assert (await telnet.say("auth wrong")).startswith("KO: authentication token does not match")
    assert await telnet.say("avd status") == "KO: unknown command, try 'help'\r\n"
    assert world.killed == []
    assert world.machine.faults.kind is Kind.NONE


async def test_without_a_token_everybody_may_speak() -> None:
    async with console(token="") as world:
        telnet = await world.connect()
        assert await telnet.answer() == "Android Console: type 'help' for a list of commands\r\nOK\r\n"
        assert await telnet.say("avd status") == "virtual device is running\r\nOK\r\n"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("avd name", "Pixel\r\nOK\r\n"),
        ("avd path", "/avd\r\nOK\r\n"),
        ("avd dance", "KO: bad sub-command\r\n"),
        ("avd snapshot", "KO: missing sub-command\r\n"),
        ("avd snapshot save", "KO: argument missing, try 'avd snapshot save <name>'\r\n"),
        ("avd snapshot save ../x", "KO: '../x' is not a valid snapshot name.\r\n"),
        ("avd snapshot load none", "KO: Device 'cache' does not have the requested snapshot 'none'\r\n"),
        ("avd snapshot del none", "KO: Device 'cache' does not have the requested snapshot 'none'\r\n"),
        ("avd snapshot list", "There is no snapshot available.\r\nOK\r\n"),
        ("power status full", "KO: unknown command, try 'help'\r\n"),
        ("geo fix 1 2", "KO: unknown command, try 'help'\r\n"),
        ("sim fault", "fault: none\r\nOK\r\n"),
        ("sim fault dance", "KO: 'dance' is not a fault.\r\n"),
    ],
)
async def test_what_it_answers(world: World, line: str, answer: str) -> None:
    assert await (await world.known()).say(line) == answer


async def test_snapshots_of_a_read_only_emulator_are_refused_but_listed(world: World) -> None:
    world.machine.is_read_only = True
    telnet = await world.known()
    for verb in ("save", "load", "del"):
        assert (await telnet.say(f"avd snapshot {verb} x")).startswith("KO: Snapshot operations")
    assert (await telnet.say("avd snapshot list")).endswith("OK\r\n")


async def test_kill_says_goodbye_and_ends_the_emulator(world: World) -> None:
    telnet = await world.known()
    assert await telnet.say("kill") == "OK: killing emulator, bye bye\r\n"
    assert await telnet.answer() == ""
    assert world.killed == [True]


def test_the_token_file_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert len(token) >= 16
    assert read_token(file) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_an_endless_line_ends_the_session(world: World) -> None:
    telnet = await world.known()
    telnet.writer.write(b"x" * 100_000)
    with contextlib.suppress(ConnectionResetError):
        assert await telnet.answer() == ""
    assert telnet.reader.at_eof() or telnet.reader.exception() is not None
