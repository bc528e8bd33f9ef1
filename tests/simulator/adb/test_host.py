"""A host of simulated phones: processes that start, are started again, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim_phones import Console, free_pair
from waiting import until

from distrl.core.errors import ConfigError
from distrl.simulator.adb import process
from distrl.simulator.adb.adbd.connection import AdbdServer
from distrl.simulator.adb.host import SimHost
from distrl.workers.devices.errors import PortInUse


def free_range(count: int) -> int:
    """The first of `count` free pairs of ports, one after the other."""
    return free_pair(*range(2, 2 * count))


def small(num: int = 1, base_port: int | None = None, **options: object) -> SimHost:
    """A host with small screens that tells no adb server."""
    base = free_range(num) if base_port is None else base_port
    return SimHost(num, 90, 200, base, adb_server_port=0, token_file="", **options)  # type: ignore[arg-type]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def host() -> Iterator[SimHost]:
    """Three phones in two processes."""
    with small(3, processes=2) as started:
        started.start()
        yield started


def answers(port: int) -> bool:
    try:
        return Console(port).say("ping").endswith("OK\r\n")
    except OSError:
        return False


def test_every_phone_listens_and_the_processes_share_them(host: SimHost) -> None:
    devices = host.devices()
    assert [device.serial for device in devices] == [f"emulator-{device.console_port}" for device in devices]
    assert [device.adb_port for device in devices] == [device.console_port + 1 for device in devices]
    assert all(answers(device.console_port) for device in devices)
    assert len({device.pid for device in devices}) == 2
    assert devices[0].pid == devices[2].pid


def test_a_crash_among_others_takes_one_phone_only_and_it_comes_back_empty(host: SimHost) -> None:
    first, second, third = (device.console_port for device in host.devices())
    Console(first).say("avd snapshot save kept")
    Console(first).say("sim fault blank")
    pid = host.devices()[0].pid
    Console(first).say("sim fault crash 0.1")
    until(lambda: answers(first) and "fault: none" in Console(first).say("sim fault"), "the phone")
    assert answers(second)
    assert answers(third)
    assert "kept" in Console(first).say("avd snapshot list")
    assert host.devices()[0].pid == pid


def test_a_process_that_dies_is_started_again(host: SimHost) -> None:
    victim = host.devices()[1]
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: not answers(victim.console_port), "its death")
    until(lambda: answers(victim.console_port), "its successor", meanwhile=host.check)
    assert host.devices()[1].pid != victim.pid


def test_stopping_leaves_no_process_and_no_file() -> None:
    host = small(faults={})
    (device,) = host.start()
    folder = host.folder
    assert is_running(device.pid)
    assert folder is not None
    assert folder.exists()
    host.stop()
    assert not is_running(device.pid)
    assert host.devices() == []
    assert not folder.exists()
    host.stop()
    host.check()
    assert host.devices() == []


def test_a_port_in_use_stops_the_start_with_one_line() -> None:
    base = free_range(1)
    with socket.create_server(("127.0.0.1", base + 1)), pytest.raises(PortInUse) as failure:
        small(base_port=base).start()
    assert f"port {base + 1} of 127.0.0.1 is in use" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_an_unknown_serial_is_refused_with_the_known_ones_in_order() -> None:
    known = "emulator-5554, emulator-5556, emulator-5558, emulator-5560, emulator-5562, emulator-5564"
    with pytest.raises(ConfigError, match=f"Known: {known}"):
        SimHost(6, faults={"emulator-1": "blank"})


async def test_a_phone_comes_back_however_its_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_REBIRTH_PAUSE_S", 0.0)
    pair, failures = free_pair(), [OSError(24, "Too many open files")]
    start = AdbdServer.start

    async def fails_once(server: AdbdServer, port: int = 0) -> int:
        if failures:
            raise failures.pop()
        return await start(server, port)

    phone = process.HostedPhone(process.PhoneSpec(pair, pair + 1, 90, 200), "", "")
    await phone.start()
    monkeypatch.setattr(AdbdServer, "start", fails_once)
    _, writer = await asyncio.open_connection("127.0.0.1", pair)
    writer.write(b"sim fault crash 0\n")
    deadline = asyncio.get_running_loop().time() + 20
    while failures or not phone.is_up:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    await phone.stop()


def test_a_token_file_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    host = SimHost(1, base_port=free_range(1), adb_server_port=0, token_file=str(tmp_path / "none" / "token"))
    with pytest.raises(ConfigError, match="cannot be used: No such file or directory"):
        host.start()


@pytest.mark.parametrize(
    "options",
    [
        {"num": 0},
        {"num": 100_000},
        {"base_port": 5555},
        {"base_port": 65530, "num": 8},
        {"base_port": 62540, "grpc": True},
        {"processes": 0},
        {"width": 10},
        {"faults": {"emulator-1": "blank"}},
        {"faults": {"emulator-5554": "dance"}},
        {"faults": {"emulator-5554": "crash"}},
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        SimHost(**{"num": 1, **options})  # type: ignore[arg-type]
