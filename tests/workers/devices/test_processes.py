"""Processes that were started: entered, told from strangers, and ended."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
from collections.abc import Iterator

import pytest
from emulator_programs import bystander, dead_pid

from distrl.workers.devices import processes
from distrl.workers.devices.errors import EmulatorError
from distrl.workers.devices.processes import Registry

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def child() -> Iterator[int]:
    """A process with the arguments of an emulator."""
    process = bystander("-avd", "pixel")
    yield process.pid
    process.kill()
    process.communicate()


def test_an_entry_is_found_by_others(child: int, registry: Registry) -> None:
    entered = registry.add(child, "emulator of AVD pixel", 5554)
    assert Registry().entries() == [entered]
    assert entered.is_running
    assert not entered.is_orphan
    assert entered.owner is not None
    past = dataclasses.replace(entered.owner, started=entered.owner.started - 10)
    assert dataclasses.replace(entered, owner=past).is_orphan
    registry.remove(entered)
    registry.remove(entered)
    assert registry.entries() == []
    with pytest.raises(EmulatorError, match="ended at once"):
        registry.add(dead_pid(), "emulator")
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert processes.key_of(pid) is None  # a zombie
    os.waitpid(pid, 0)


def test_a_number_that_was_used_again_is_another_process(child: int, registry: Registry) -> None:
    entry = registry.add(child, "emulator")
    stale = dataclasses.replace(entry, key=dataclasses.replace(entry.key, started=1))
    assert not stale.is_running
    assert processes.end_process(stale.key) == "gone"
    assert entry.is_running


def test_what_is_no_entry_is_left_alone(registry: Registry, caplog) -> None:
    registry.directory.mkdir(parents=True)
    (registry.directory / "1-2-3.json").write_text('{"what": 1}')
    assert registry.entries() == []
    assert "not a valid entry" in caplog.text


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
