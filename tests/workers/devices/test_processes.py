"""Processes that were started, and how they end; tests/cli/test_cleanup.py tells them from strangers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from emulator_programs import bystander

from distrl.workers.devices import processes
from distrl.workers.devices.processes import Registry

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def child() -> Iterator[int]:
    """A process with the arguments of an emulator."""
    process = bystander("-avd", "pixel")
    yield process.pid
    process.kill()
    process.communicate()


def test_what_is_no_entry_is_left_alone(registry: Registry, caplog) -> None:
    registry.directory.mkdir(parents=True)
    (registry.directory / "1-2-3.json").write_text('{"what": 1}')
    assert registry.entries() == []
    assert "not a valid entry" in caplog.text


def test_a_process_is_the_same_when_the_clock_is_set(child: int, monkeypatch) -> None:
    key = processes.key_of(child)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: time.time() - 5.0)
    assert key is not None
    assert processes.is_alive(key)
    assert processes.end_process(key) == "SIGTERM"
    assert processes.end_process(key) == "gone"


def test_sigkill_is_for_one_that_does_not(monkeypatch) -> None:
    monkeypatch.setattr(processes, "TERM_S", 0.1)
    command = ["/bin/sh", "-c", "trap '' TERM; echo deaf; read line; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"deaf\n"
        key = processes.key_of(deaf.pid)
        assert key is not None
        assert processes.end_process(key) == "SIGKILL"


def test_a_console_of_another_process_is_not_told_to_kill(child: int, registry: Registry) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        assert processes.listens(os.getpid(), port)
        assert not processes.listens(child, port)
        entry = registry.add(child, "emulator", port)
        assert processes.end_process(entry.key, port) == "SIGTERM"
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
