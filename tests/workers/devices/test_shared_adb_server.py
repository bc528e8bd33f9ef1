"""One adb server for all threads of a pool: started once, and never after its end."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import adb_programs
import pytest

from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.errors import ServerUnavailable

pytestmark = [
    pytest.mark.needs("adbutils"),
    pytest.mark.skipif(
        adb_programs.bundled() is None, reason="needs an adb: adbutils brings none for this machine"
    ),
]


def servers_at(port: int) -> list[int]:
    """Process ids of children of ours that serve the port."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
            words = (path / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        if is_ours and str(port).encode() in words:
            found.append(int(path.name))
    return found


def test_many_threads_start_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    server = AdbServer(port=adb_programs.free_port())
    try:
        with ThreadPoolExecutor(8) as executor:
            for done in [executor.submit(server.ensure_running) for _ in range(8)]:
                done.result(60.0)
        assert servers_at(server.port) == [server.own_pid]
    finally:
        server.end()
    assert servers_at(server.port) == []
    with pytest.raises(ServerUnavailable, match="the pool of devices is closed"):
        server.ensure_running()
    assert servers_at(server.port) == []


def test_a_server_that_was_there_is_left_alone(tmp_path: Path) -> None:
    program = adb_programs.bundled()
    assert program is not None
    with adb_programs.server(program, tmp_path) as port:
        server = AdbServer(port=port)
        server.ensure_running()
        server.end()
        assert adb_programs.ask(port, "host:version")
