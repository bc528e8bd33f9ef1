"""An adb server of our own with one simulated phone, for each adb program that is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import adb_programs
import pytest
import sim_phones
from client_world import World

PROGRAMS: dict[str, Callable[[], str | None]] = {"adb": adb_programs.debian, "bundled": adb_programs.bundled}


def _world(kind: str, home: Path) -> Iterator[World]:
    program = PROGRAMS[kind]()
    if program is None:
        pytest.skip("needs adb on PATH" if kind == "adb" else "needs adbutils with its adb: not installed")
    token_file = home / ".emulator_console_auth_token"
    with (
        adb_programs.server(program, home) as server_port,
        sim_phones.phones(1, server_port, token_file=str(token_file)) as (phone,),
    ):
        adb_programs.wait_listed(server_port, phone.serial)
        yield World(program, server_port, phone, home)


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A phone behind the server of each adb program in turn."""
    yield from _world(request.param, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def any_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A phone behind the newest adb server that is here."""
    kind = "bundled" if adb_programs.bundled() else "adb"
    yield from _world(kind, tmp_path_factory.mktemp("home"))
