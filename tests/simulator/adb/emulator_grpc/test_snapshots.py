"""SnapshotService: states saved, listed, loaded and deleted, together with the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from grpc_phone import Client, connected

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import run_command
from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.emulator_grpc.server import ControlServer
from distrl.simulator.adb.faults import Faults
from distrl.simulator.adb.machine import Machine, Snapshots
from distrl.simulator.emulator.phone import AvdSnapshots

Details = messages.SnapshotDetails
FILE = "/data/local/tmp/f"


def run(test: Callable[[Client, Machine], Awaitable[None]], kept: Snapshots | None = None) -> None:
    """Runs a test with a client of a small phone."""

    async def main() -> None:
        system = AndroidSystem("emulator-5554", 90, 200)
        machine = Machine(system, Faults(), kept or Snapshots(), lambda: None)
        server = ControlServer(machine)
        port = await server.start()
        try:
            async with connected(port) as client:
                await test(client, machine)
        finally:
            await server.stop()

    asyncio.run(main())


async def listed(client: Client, status: int = messages.SnapshotFilter.All) -> dict[str, Any]:
    answer = await client.call("ListSnapshots", messages.SnapshotFilter(statusFilter=status))
    return {each.snapshot_id: each for each in answer.snapshots}


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_snapshot_brings_everything_back(tmp_path: Path, in_folder: bool) -> None:
    async def test(client: Client, machine: Machine) -> None:
        system = machine.system
        assert await listed(client) == {}
        system.files.write(FILE, b"before")
        assert (await client.snapshot("SaveSnapshot", "clean")).success
        system.files.write(FILE, b"after")
        system.activities.open("settings")
        answer = await client.snapshot("LoadSnapshot", "clean")
        assert (answer.success, answer.err, answer.snapshot_id) == (True, b"", "clean")
        assert system.files.read(FILE) == b"before"
        assert system.device.foreground() == "launcher"

    run(test, Snapshots(tmp_path if in_folder else None))


def test_the_list_tells_when_it_was_saved_how_big_it_is_and_which_was_loaded() -> None:
    async def test(client: Client, machine: Machine) -> None:
        before = int(time.time())
        for name in ("one", "two"):
            await client.snapshot("SaveSnapshot", name)
        found = await listed(client, messages.SnapshotFilter.CompatibleOnly)
        assert {name: each.status for name, each in found.items()} == dict.fromkeys(
            ("one", "two"), Details.Compatible
        )
        assert found["one"].size == len(machine.snapshots.load("one"))
        assert found["one"].details.logical_name == "one"
        assert before <= found["one"].details.creation_time <= time.time()
        await client.snapshot("LoadSnapshot", "two")
        assert (await listed(client))["two"].status == Details.Loaded
        await client.snapshot("DeleteSnapshot", "two")
        assert sorted(await listed(client)) == ["one"]

    run(test)


def test_the_console_has_the_same_snapshots() -> None:
    async def test(client: Client, machine: Machine) -> None:
        run_command(machine, "avd snapshot save by-console")
        await client.snapshot("SaveSnapshot", "by-grpc")
        assert sorted(await listed(client)) == ["by-console", "by-grpc"]
        assert "by-grpc" in "\n".join(run_command(machine, "avd snapshot list"))
        assert (await client.snapshot("LoadSnapshot", "by-console")).success
        run_command(machine, "avd snapshot load by-grpc")
        assert (await listed(client))["by-grpc"].status == Details.Loaded

    run(test)


@pytest.mark.parametrize(
    ("method", "name", "why"),
    [
        ("LoadSnapshot", "none", "Could not find none"),
        ("LoadSnapshot", "../clean", "Could not find ../clean"),
        ("LoadSnapshot", "", "Could not find "),
        ("SaveSnapshot", "clean", "SnapshotPackage with clean already exists!"),
        ("SaveSnapshot", "../x", "'../x' is not a valid snapshot name."),
        ("SaveSnapshot", "", "'' is not a valid snapshot name."),
        ("DeleteSnapshot", "none", ""),
    ],
)
def test_what_goes_wrong_is_told_in_the_answer(method: str, name: str, why: str) -> None:
    async def test(client: Client, machine: Machine) -> None:
        await client.snapshot("SaveSnapshot", "clean")
        before = machine.snapshots.load("clean")
        machine.system.files.write(FILE, b"after")
        answer = await client.snapshot(method, name)
        assert (answer.success, answer.err.decode(), answer.snapshot_id) == (not why, why, name)
        assert machine.snapshots.load("clean") == before
        assert machine.system.files.read(FILE) == b"after"

    run(test)


def test_damage_and_other_hardware_are_told(tmp_path: Path) -> None:
    AvdSnapshots(tmp_path, {"hw.gpu.mode": "host"}).save("other", b"")
    kept = AvdSnapshots(tmp_path, {"hw.gpu.mode": "auto"})
    kept.save("damaged", b"no phone")

    async def test(client: Client, machine: Machine) -> None:
        assert sorted(await listed(client, messages.SnapshotFilter.CompatibleOnly)) == ["damaged"]
        assert (await listed(client))["other"].status == Details.Incompatible
        answer = await client.snapshot("LoadSnapshot", "other")
        assert not answer.success
        assert b"hw.gpu.mode differs" in answer.err
        answer = await client.snapshot("LoadSnapshot", "damaged")
        assert not answer.success
        assert answer.err

    run(test, kept)


def test_a_read_only_emulator_refuses_all_but_the_list() -> None:
    async def test(client: Client, machine: Machine) -> None:
        machine.save("kept")
        machine.is_read_only = True
        assert list(await listed(client)) == ["kept"]
        for method, name in (("SaveSnapshot", "x"), ("LoadSnapshot", "kept"), ("DeleteSnapshot", "kept")):
            answer = await client.snapshot(method, name)
            assert not answer.success
            assert b"-read-only" in answer.err

    run(test)
