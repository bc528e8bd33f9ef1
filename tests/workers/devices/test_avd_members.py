"""A pool that starts emulators itself, with the stand-in for Android's emulator and a real adb server."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import adb_programs
import pytest
from waiting import until

from distrl.configs.devices import AvdMembers
from distrl.configs.schema import Config
from distrl.simulator.emulator.sdk import SimSdk, make_avd, make_sdk
from distrl.workers.devices import members, snapshots
from distrl.workers.devices.adb_device import EmulatorDevice
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.emulator import GPU, EmulatorOptions, EmulatorProcess
from distrl.workers.devices.errors import EmulatorExited, SnapshotFailed
from distrl.workers.devices.members import AvdMember
from distrl.workers.devices.pool import DevicePool, make_pool
from distrl.workers.devices.processes import Registry
from distrl.workers.devices.snapshots import Manifest
from distrl.workers.devices.table import Health, SlotState

pytestmark = [
    pytest.mark.needs("adbutils", "isal"),
    pytest.mark.skipif(
        adb_programs.bundled() is None, reason="needs an adb: adbutils brings none for this machine"
    ),
]

DEADLINE_S = 120.0
TO_RECLONE = ["load snapshot", "restart from snapshot", "cold boot", "reclone"]


class World:
    """An SDK with the stand-in emulator, an adb server, and a pool on the AVD "pixel"."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.sdk: SimSdk = make_sdk(folder / "sdk")
        make_avd(self.sdk.store, "pixel", 270, 600, config={"sim.boot_s": "0", "sim.lock_s": "0.1"})
        self.place = {"sdk": str(self.sdk.root), "avd_home": str(self.sdk.store.home)}
        program = adb_programs.bundled()
        assert program is not None
        self.port = stack.enter_context(adb_programs.server(program, folder / "home"))

    def pool(self, **avd: object) -> DevicePool:
        part = {"kind": "avd", "avd": "pixel", **self.place, **avd}
        quick = Health(probe_every_s=0.5, pause_s=0.3, max_pause_s=0.3, max_faults=100)
        config = Config.model_validate(
            {
                "runs_dir": str(self.folder / "runs"),
                "devices": {"adb_server_port": self.port, "pool": [part]},
            }
        )
        return self.stack.enter_context(make_pool(config, 100, quick))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(members, "STAGGER_S", 0.0)
    (tmp_path / "runtime").mkdir()
    with ExitStack() as stack:
        yield World(tmp_path, stack)
    assert [entry.what for entry in Registry().entries() if entry.is_running] == []


def wait_for(pool: DevicePool, name: str, state: SlotState) -> None:
    until(lambda: pool.states()[name] is state, f"{name} {state.value}", DEADLINE_S, details=pool.line)


def pids() -> list[int]:
    return [entry.key.pid for entry in Registry().entries() if entry.is_running]


def test_clones_are_booted_lent_and_stopped(world: World) -> None:
    pool = world.pool(count=2)
    with pool.acquire(DEADLINE_S) as one, pool.acquire(DEADLINE_S) as two:
        assert {one.id, two.id} == {"pixel-distrl-0", "pixel-distrl-1"}
        one.device.save_state("mine")
        one.device.load_state("mine")
        assert two.device.screenshot().size == (270, 600)
        # As on sim-host's phones, where uiautomator2 starts its server by this.
        said = two.device.client.shell("app_process / no.Class", DEADLINE_S).said
        assert "could not find class 'no.Class'" in said
        assert len(pids()) == 2
    pool.close()
    assert pids() == []
    assert {avd.name for avd in world.sdk.store.list()} == {"pixel", "pixel-distrl-0", "pixel-distrl-1"}


def test_an_emulator_that_dies_is_started_again(world: World) -> None:
    pool = world.pool()
    with pool.acquire(DEADLINE_S) as lease:
        first = lease.generation
    os.kill(pids()[0], signal.SIGKILL)
    until(lambda: pool.states()["pixel-distrl-0"] is not SlotState.READY, "its fault", DEADLINE_S)
    wait_for(pool, "pixel-distrl-0", SlotState.READY)
    with pool.acquire(DEADLINE_S) as lease:
        assert lease.generation == first + 1
        lease.device.screenshot()
    (bundle,) = world.folder.glob("runs/.postmortems/run/*")
    assert b"emulator" in (bundle / "emulator.log").read_bytes().lower()
    told = json.loads((bundle / "fault.json").read_text())
    assert (told["error"]["type"], told["result"]) == ("EmulatorExited", "ready")
    assert [step["name"] for step in told["ladder"]] == ["start again"]


@pytest.mark.parametrize(
    ("snapshot", "running", "ladder"),
    [
        ("clean", True, "wait, reconnect, load snapshot, restart from snapshot, cold boot, reclone"),
        (None, True, "wait, reconnect, cold boot, reclone"),
        ("clean", False, "start again, cold boot, reclone"),
    ],
)
def test_the_ladder_has_what_can_help(world: World, snapshot: str | None, running: bool, ladder: str) -> None:
    member = make_member(world)
    member._snapshot = snapshot
    if running:
        member._process = SimpleNamespace(pid=1)  # type: ignore[assignment]
        member._ports = SimpleNamespace(serial="emulator-6554")  # type: ignore[assignment]
    assert ", ".join(step.name for step in member.ladder()) == ladder


def test_every_step_of_the_ladder_works(world: World) -> None:
    """Taken one after the other on an emulator that runs: after each it runs again."""
    member = make_member(world)
    member.open().save_state("clean")
    member._snapshot = "clean"
    try:
        for step in member.ladder():
            if step.name == "reclone":  # the new clone has no snapshot of that name
                member._snapshot = None
            step.run()
            member.probe()  # in the pool's order: nothing opens what does not answer
            member.open()
    finally:
        member.close()


def test_a_clone_that_has_lost_its_snapshot_is_made_anew(world: World) -> None:
    """Emulators delete a snapshot that does not load. A cold boot is then no help: no episode can begin."""
    save_snapshot(world, "clean")
    pool = world.pool(snapshot="clean")
    with pool.acquire(DEADLINE_S) as lease:
        lease.device.load_state("clean")
        assert isinstance(lease.device, EmulatorDevice)
        lease.device.console.snapshot("delete", "clean")
    lease = pool.acquire(DEADLINE_S)
    with pytest.raises(SnapshotFailed) as caught:
        lease.device.load_state("clean")
    pool.release(lease, caught.value)
    with pool.acquire(DEADLINE_S) as lease:
        lease.device.load_state("clean")
    (file,) = world.folder.glob("runs/.postmortems/run/*/fault.json")
    assert [step["name"] for step in json.loads(file.read_text())["ladder"]] == TO_RECLONE


def test_emulators_of_a_killed_process_are_no_obstacle(world: World) -> None:
    killed = make_member(world)
    killed.open()
    (entry,) = Registry().entries()
    (file,) = Registry().directory.glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "owner": None}))
    member = make_member(world)
    try:
        member.open()
        assert entry.key.pid not in pids()
        assert len(pids()) == 1
    finally:
        member.close()
        killed.close()


def test_a_pool_that_closes_while_an_emulator_starts_leaves_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = make_member(world)

    class Late(EmulatorProcess):
        def start(self) -> None:
            member.close()
            super().start()

    monkeypatch.setattr(members, "EmulatorProcess", Late)
    with pytest.raises(EmulatorExited, match="the pool is closed"):
        member.open()
    assert pids() == []


@pytest.mark.parametrize("snapshot", ["clean", None])
def test_every_start_may_take_as_long_as_the_configuration_says(
    world: World, monkeypatch: pytest.MonkeyPatch, snapshot: str | None
) -> None:
    """It is the remedy for a start that took too long."""
    waits: list[float] = []
    monkeypatch.setattr(EmulatorProcess, "start", lambda process: None)
    monkeypatch.setattr(EmulatorProcess, "wait_booted", lambda process, client, most_s: waits.append(most_s))
    member = make_member(world, boot_s=600.0)
    member._start(snapshot)
    member.close()
    assert waits == [600.0]


def make_member(world: World, **fields: object) -> AvdMember:
    part = AvdMembers.model_validate({"kind": "avd", "avd": "pixel", **world.place, **fields})
    member = AvdMember(part, 0, AdbServer(port=world.port), threading.Lock())
    member.console_ports = range(6554, 6602, 2)
    return member


def test_emulators_take_the_gpu_mode_of_their_snapshot_and_a_new_clone_after_it(world: World) -> None:
    """Under another GPU mode it does not load."""
    saved = world.sdk.store.get("pixel").snapshots / "clean"
    saved.mkdir(parents=True)
    snapshots.write_manifest(Manifest(0.0, 34, "image", "host", "", {}, 440, 540, 1200), saved)
    member = make_member(world, snapshot="clean")
    assert "host" in EmulatorOptions(member._gpu).flags("pixel", 5554)
    assert make_member(world)._gpu == GPU
    mark = member._own_avd().directory / "mark"
    mark.touch()
    assert member._own_avd().directory == mark.parent
    assert mark.exists()
    os.utime(saved, (2**31, 2**31))  # it was saved again
    member._own_avd()
    assert not mark.exists()


def save_snapshot(world: World, name: str) -> None:
    """Boots the AVD itself once, and saves a snapshot of it."""
    with ExitStack() as stack:
        world_stack, world.stack = world.stack, stack
        pool = world.pool()
        with pool.acquire(DEADLINE_S) as lease:
            lease.device.save_state(name)
        world.stack = world_stack
    # Only clones are written by pools: the clone becomes the AVD.
    own, source = world.sdk.store.get("pixel-distrl-0"), world.sdk.store.get("pixel")
    (own.directory / "snapshots").rename(source.directory / "snapshots")
    world.sdk.store.delete("pixel-distrl-0")
