"""A pool on simulated phones behind a real adb server: joining, faults, crashes, a server that restarts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import adb_programs
import pytest
import sim_phones
from adb_server_fake import FakeDevice, fake_server, runs
from waiting import until

from distrl.configs.devices import PhoneMembers
from distrl.configs.schema import Config
from distrl.simulator.adb.commands.screen import DISPLAY_ID
from distrl.simulator.adb.process import PhoneSpec
from distrl.workers.devices import adb, members, table
from distrl.workers.devices.adb import DEFAULT_DISPLAY, AdbClient, ShellResult
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.errors import BlankFrame, DeviceError, DeviceNotFound, FrameTruncated, NotReady
from distrl.workers.devices.members import AdbMember
from distrl.workers.devices.pool import DevicePool, make_pool
from distrl.workers.devices.table import Health, SlotState

pytestmark = [
    pytest.mark.needs("adbutils", "isal"),
    pytest.mark.skipif(
        adb_programs.bundled() is None, reason="needs an adb: adbutils brings none for this machine"
    ),
]

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")  # of a server that a pool starts
    monkeypatch.setattr(members, "WAIT_S", 1.0)
    monkeypatch.setattr(members, "SETTLE_S", 2.0)
    monkeypatch.setattr(members, "PROBE_S", 2.0)
    monkeypatch.setattr(table, "CLAIM_S", 0.5)
    monkeypatch.setattr(adb, "RETRY_AFTER_S", (0.05, 0.1))


class World:
    """An adb server, phones that are announced to it, and a pool on them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.server = folder, stack, ExitStack()
        self.port = self.start_server()
        stack.callback(adb_programs.kill, self.port)  # one that a pool has started
        stack.callback(self.server.close)

    def start_server(self, port: int | None = None) -> int:
        program = adb_programs.bundled()
        assert program is not None
        return self.server.enter_context(adb_programs.server(program, self.folder / "home", port))

    def phones(self, count: int, ports: Sequence[int] = ()) -> list[PhoneSpec]:
        return self.stack.enter_context(sim_phones.phones(count, self.port, ports=ports))

    def pool(self, *serials: str, display: int | None = None, **health: Any) -> DevicePool:
        quick = {"probe_every_s": 0.5, "pause_s": 0.3, "max_pause_s": 0.3, "max_faults": 100}
        config = Config.model_validate(
            {
                "runs_dir": str(self.folder / "runs"),
                "devices": {
                    "adb_server_port": self.port,
                    "pool": [{"kind": "adb", "serials": list(serials), "display": display}],
                },
            }
        )
        return self.stack.enter_context(make_pool(config, 100, Health(**{**quick, **health})))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def wait_for(pool: DevicePool, serial: str, *states: SlotState) -> None:
    until(
        lambda: pool.states().get(serial) in states,
        f"{serial} {' or '.join(state.value for state in states)}",
        DEADLINE_S,
        details=pool.line,
    )


@pytest.mark.parametrize("fault", ["offline", "unauthorized", "blank"])
def test_a_device_with_a_fault_is_out_until_it_is_well_again(world: World, fault: str) -> None:
    (phone,) = world.phones(1)
    pool = world.pool(phone.serial)
    console = sim_phones.Console(phone.console_port)
    lease = pool.acquire(DEADLINE_S)
    console.say(f"sim fault {fault}")
    with pytest.raises(DeviceError) as caught:
        lease.device.screenshot()
    pool.release(lease, caught.value)
    wait_for(pool, phone.serial, SlotState.QUARANTINED, SlotState.ABSENT)
    console.say("sim fault none")
    wait_for(pool, phone.serial, SlotState.READY)
    with pool.acquire(DEADLINE_S) as again:
        again.device.screenshot()
    assert list(world.folder.glob("runs/.postmortems/run/*/fault.json"))


def test_a_device_that_sleeps_is_woken(world: World) -> None:
    """Nobody has touched it for a while: its screen is black, but nothing is wrong with it."""
    (phone,) = world.phones(1)
    adb_programs.wait_listed(world.port, phone.serial)
    client = AdbClient(phone.serial, world.port)
    client.check("input keyevent KEYCODE_SLEEP", DEADLINE_S)
    with pytest.raises(BlankFrame):
        AdbDevice(client).screenshot()
    pool = world.pool(phone.serial)
    with pool.acquire(DEADLINE_S) as lease:
        lease.device.screenshot()
    assert not list(world.folder.glob("runs/.postmortems/run/*"))


def test_a_hung_device_is_found_by_its_probe_and_comes_back(world: World) -> None:
    (phone,) = world.phones(1)
    pool = world.pool(f"{phone.serial[:-1]}?")  # by a pattern
    wait_for(pool, phone.serial, SlotState.READY)
    console = sim_phones.Console(phone.console_port)
    console.say("sim fault hang")
    wait_for(pool, phone.serial, SlotState.QUARANTINED, SlotState.RECOVERING)
    console.say("sim fault none")
    wait_for(pool, phone.serial, SlotState.READY)


def test_a_device_on_the_network_is_connected_to_again_and_again(world: World) -> None:
    """A server that restarts has forgotten it."""
    (phone,) = world.stack.enter_context(sim_phones.phones(1))  # not announced to the server
    serial = f"127.0.0.1:{phone.adb_port}"
    pool = world.pool(serial)
    with pool.acquire(DEADLINE_S) as lease:
        assert lease.id == serial
        lease.device.screenshot()
    world.server.close()
    world.start_server(world.port)

    def answers() -> bool:
        try:
            with pool.acquire(1.0) as again:
                again.device.screenshot()
        except DeviceError:
            return False
        return True

    until(answers, "a screenshot by way of the new server", DEADLINE_S, details=pool.line)


@pytest.mark.parametrize("step", ["reconnect", "reset"])
def test_a_repair_may_begin_with_any_step_of_a_phone_on_the_network(world: World, step: str) -> None:
    """That of a second fault does. After a minute off the network the server has forgotten the phone."""
    (phone,) = world.stack.enter_context(sim_phones.phones(1))
    recipe = {"min_free_mib": 0}
    member = phone_member(f"127.0.0.1:{phone.adb_port}", world.port, recipe=recipe)
    next(one for one in member.ladder() if one.name == step).run()
    member.probe()


def phone_member(serial: str, port: int, **fields: Any) -> AdbMember:
    return AdbMember(serial, PhoneMembers(kind="phone", serials=[serial], **fields), AdbServer(port=port))


def test_every_step_of_a_phone_s_ladder_works(world: World) -> None:
    (phone,) = world.phones(1)
    adb_programs.wait_listed(world.port, phone.serial)
    recipe = {"settings": {"global/test": "1"}, "min_free_mib": 0}
    member = phone_member(phone.serial, world.port, recipe=recipe, reboot=True, display=int(DISPLAY_ID))
    assert member.open().screenshot().size == (540, 1200)
    steps = member.ladder()
    assert [step.name for step in steps] == ["wait", "reconnect", "reset", "reboot"]
    for step in steps:
        step.run()
        member.probe()
        member.open()
    assert set(member.evidence()) == {"adb-state.txt", "logcat.txt", "screen-now.png"}
    careful = phone_member(phone.serial, world.port, recipe={"ready_s": 300.0}).ladder()
    assert [step.name for step in careful] == ["wait", "reconnect", "reset"]
    assert careful[2].limit_s > 300.0, "resetting waits until the phone is ready"


def test_a_device_that_boots_is_opened_when_it_has_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell answers, and its screen shows the boot animation."""
    monkeypatch.setattr(members, "LOOK_S", 0.0)
    looks: list[str] = []

    def answer(command: str) -> bytes:
        looks.append(command)
        return b"1\n" if looks.count(command) > 3 else b"\n"

    with fake_server(phone=FakeDevice(serve=runs(answer))) as server:
        member = phone_member("phone", server.port)
        with pytest.raises(FrameTruncated):  # this one has no screen
            member.open()
        assert looks[:5] == [*["getprop sys.boot_completed"] * 4, "screencap -p"]
        looks.clear()
        monkeypatch.setattr(members, "BOOT_S", 0.0)
        with pytest.raises(NotReady, match="it has not booted"):
            member.open()


def test_a_phone_that_goes_down_slowly_has_not_booted_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers for a while after `reboot`, and looks as if it were ready."""
    monkeypatch.setattr(members, "LOOK_S", 0.0)
    member = phone_member("phone", 1, reboot=True)
    asked: list[str] = []

    class Phone:
        display = DEFAULT_DISPLAY
        boots = iter(["old", "old", "old", None])

        def shell(self, command: str, timeout_s: float, reads: bool = False) -> ShellResult:
            asked.append(command)
            said = "1"
            if "boot_id" in command:
                answer = next(self.boots)
                if answer is None:
                    raise DeviceNotFound("it is gone.")
                said = answer
            return ShellResult(said.encode(), b"", 0)

    waited: list[int] = []
    monkeypatch.setattr(member, "_client", Phone())
    monkeypatch.setattr(members, "wait_booted", lambda *_: waited.append(len(asked)))
    member.ladder()[-1].run()
    assert [command[:6] for command in asked] == ["cat /p", "reboot", "cat /p", "cat /p", "cat /p"]
    assert waited == [5]
