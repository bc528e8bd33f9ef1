"""The emulator's console: who may speak, what it says, snapshots, faults and its end."""

from __future__ import annotations

import asyncio
import secrets
import stat
from pathlib import Path

import pytest

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import ConsoleServer, read_token
from distrl.simulator.adb.faults import Faults, Kind
from distrl.simulator.adb.machine import AvdSnapshots, Machine, Snapshots

TOKEN, TOKEN_FILE = "s3cret", "/home/me/.emulator_console_auth_token"
DEADLINE_S = 30.0
UNKNOWN = "KO: unknown command, try 'help'\r\n"


@pytest.fixture
def killed() -> list[bool]:
    return []


@pytest.fixture
def machine(killed: list[bool]) -> Machine:
    phone = AndroidSystem("emulator-5554", 90, 200)
    end = lambda: killed.append(True)  # noqa: E731
    return Machine(phone, Faults(), Snapshots(), end, avd_name="Pixel", avd_path="/avd")


def talk(machine: Machine, *lines: str, token: str = TOKEN) -> str:
    """All that a console says on one connection."""

    async def main() -> str:
        server = ConsoleServer(machine, token, TOKEN_FILE)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write("".join(f"{line}\n" for line in (*lines, "quit")).encode())
        try:
            return (await asyncio.wait_for(reader.read(), DEADLINE_S)).decode()
        except ConnectionResetError:
            return ""
        finally:
            await server.stop()

    return asyncio.run(main())


def answers(machine: Machine, *lines: str) -> str:
    """The answers to one who gave the token."""
    return talk(machine, f"auth {TOKEN}", *lines).partition("list of commands\r\nOK\r\n")[2]


def test_before_the_token_only_harmless_commands_exist(machine: Machine, killed: list[bool]) -> None:
    lines = ("kill", "avd snapshot list", "sim fault blank", "ping", "avd name", "auth wrong", "avd status")
    said = talk(machine, *lines)
    assert said.startswith("Android Console: Authentication required\r\n")
    wrong = f"KO: authentication token does not match {TOKEN_FILE}\r\n"
    allowed = "I am alive!\r\nOK\r\nPixel\r\nOK\r\n"
    assert said.endswith(f"'{TOKEN_FILE}'\r\nOK\r\n" + 3 * UNKNOWN + allowed + wrong + UNKNOWN)
    assert (killed, machine.faults.kind) == ([], Kind.NONE)


def test_without_a_token_everybody_may_speak(machine: Machine) -> None:
    assert talk(machine, "avd status", token="") == (
        "Android Console: type 'help' for a list of commands\r\nOK\r\nvirtual device is running\r\nOK\r\n"
    )


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
        ("geo fix 1 2", UNKNOWN),
        ("sim fault", "fault: none\r\nOK\r\n"),
        ("sim fault dance", "KO: 'dance' is not a fault.\r\n"),
        ("kill", "OK: killing emulator, bye bye\r\n"),
        ("x" * 100_000, ""),  # ends the session
    ],
)
def test_what_it_answers(machine: Machine, killed: list[bool], line: str, answer: str) -> None:
    assert answers(machine, line) == answer
    assert killed == [True] * (line == "kill")


def test_a_damaged_snapshot_is_named(machine: Machine, tmp_path: Path) -> None:
    machine.snapshots = AvdSnapshots(tmp_path / "not made yet")
    assert answers(machine, "avd snapshot save kept") == "OK\r\n"
    (machine.snapshots.folder / "kept" / "snapshot.pb").write_bytes(b"\xff")
    for line in ("avd snapshot list", "avd snapshot load kept"):
        assert answers(machine, line).startswith("KO: the snapshot 'kept' is damaged: ")


def test_snapshots_of_a_read_only_emulator_are_refused_but_listed(machine: Machine) -> None:
    machine.is_read_only = True
    said = answers(machine, *(f"avd snapshot {words}" for words in ("save x", "load x", "del x", "list")))
    assert said.count("KO: Snapshot operations") == 3
    assert said.endswith("OK\r\n")


def test_a_token_that_another_process_makes_meanwhile_is_the_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"

    def slow(size: int) -> str:
        file.write_text("theirs")
        return "mine"

    monkeypatch.setattr(secrets, "token_urlsafe", slow)
    assert read_token(file) == "theirs"
    assert list(tmp_path.iterdir()) == [file]


def test_the_token_file_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert len(token) >= 16
    assert read_token(file) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
