"""The pool with its threads: waiting, healing, hanging devices, joining and leaving, closing."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pool_devices import STEPS, Clock, FakeMember
from waiting import until

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, MissingDependency
from distrl.simulator.emulator.sdk import make_avd, make_sdk
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceTimeout,
    LowDisk,
    PoolExhausted,
)
from distrl.workers.devices.pool import AdbTracker, DevicePool, make_pool
from distrl.workers.devices.table import Health, SlotState

DEADLINE_S = 20.0
FAULT = DeviceTimeout("it does not answer.")


class Pools:
    """Makes pools and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.close_s = folder, Clock(), DEADLINE_S
        self.made: list[DevicePool] = []

    def __call__(self, *members: FakeMember, limit: int = 100, **health: Any) -> DevicePool:
        settings = Health(**health)
        claims = Claims(self.folder / "claims")
        pool = DevicePool(
            members,
            settings,
            limit,
            lambda: self.folder / "postmortems",
            claims,
            close_s=self.close_s,
            clock=self.clock,
        )
        self.made.append(pool)
        return pool.start()

    def bundles(self) -> list[dict[str, object]]:
        files = sorted(self.folder.glob("postmortems/*/fault.json"))
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    made = Pools(tmp_path)
    yield made
    for pool in made.made:
        pool.close()


def wait_for(pool: DevicePool, **states: str) -> None:
    until(
        lambda: {name: state.value for name, state in pool.states().items()} == states,
        f"the states {states}",
        DEADLINE_S,
        details=lambda: str(pool.states()),
    )


def test_devices_are_opened_and_lent(pools: Pools) -> None:
    pool = pools(FakeMember("a"), FakeMember("b"))
    with pool.acquire(DEADLINE_S) as first, pool.acquire(DEADLINE_S) as second:
        assert {first.id, second.id} == {"a", "b"}
        assert pool.stats() == dict.fromkeys(pool.stats(), 0) | {"devices_busy": 2}
        with pytest.raises(PoolExhausted, match=r"no device was free within 0 s: 2 busy\."):
            pool.acquire(0.0)
    wait_for(pool, a="ready", b="ready")


def test_a_fault_is_repaired_while_others_work_and_recorded(pools: Pools) -> None:
    a, b = FakeMember("a", mended_by="reconnect"), FakeMember("b")
    pool = pools(a, b)
    wait_for(pool, a="ready", b="ready")
    lease = pool.acquire(0.0)
    a.fail()
    pool.release(lease, FAULT, {"screen-0.jpg": b"picture"})
    with pool.acquire(DEADLINE_S) as other:
        assert other.id == "b"
        wait_for(pool, a="ready", b="busy")
    assert a.log == ["open", "wait", "probe", "evidence", "reconnect", "probe", "open"]
    with pool.acquire(0.0) as again:
        assert (again.id, again.generation) == ("a", lease.generation + 1)
    (told,) = pools.bundles()
    assert [step["name"] for step in told["ladder"]] == ["wait", "reconnect"]  # type: ignore[attr-defined]
    assert told["result"] == "ready"
    (folder,) = pools.folder.glob("postmortems/*")
    assert (folder / "screen-0.jpg").read_bytes() == b"picture"
    assert (folder / "logcat.txt").exists()


def test_a_device_that_cannot_be_had_is_named_with_the_reason(pools: Pools) -> None:
    other = Claims(pools.folder / "claims")
    assert other.take("claimed")
    taken, gone, spare = FakeMember("taken", claim="claimed"), FakeMember("gone"), FakeMember("spare")
    pool = pools(FakeMember("a"), taken, spare, limit=1)
    pool.join(gone)
    wait_for(pool, a="ready", taken="absent", spare="absent", gone="absent")
    assert pool.line() == "3 absent, 1 ready (gone: adb does not list it)"  # the others are spares

    alone = pools(taken)
    pools.made.remove(pool)
    pool.close()
    until(
        lambda: "taken: another process has it" in alone.line(), "the reason", DEADLINE_S, details=alone.line
    )
    other.release("claimed")
    pools.clock.now += 10.0
    wait_for(alone, taken="ready")
    assert alone.line() == "1 ready"


def test_a_device_that_nothing_repairs_rests_and_is_tried_again(pools: Pools) -> None:
    a = FakeMember("a", mended_by=None)
    pool = pools(a, pause_s=10.0)
    pool.release(pool.acquire(DEADLINE_S), None)
    lease = pool.acquire(DEADLINE_S)
    a.fail()
    pool.release(lease, FAULT)
    wait_for(pool, a="quarantined")
    assert pool.stats()["devices_quarantined"] == 1
    assert pool.line() == "1 quarantined (a (next try in 10 s): it does not answer.)"
    a.broken = None
    pools.clock.now += 9.0
    with pytest.raises(PoolExhausted, match="1 quarantined"):
        pool.acquire(0.05)
    pools.clock.now += 1.0
    wait_for(pool, a="ready")
    (told,) = pools.bundles()
    names = [step["name"] for step in told["ladder"]]  # type: ignore[attr-defined]
    assert names == [*STEPS, STEPS[0]]  # one fault, one post-mortem


def test_trouble_of_the_whole_machine_ends_the_repair(pools: Pools) -> None:
    a = FakeMember("a", mended_by="cold boot")
    pool = pools(a)
    lease = pool.acquire(DEADLINE_S)
    a.broken = LowDisk("the disk is full.")
    pool.release(lease, FAULT)
    wait_for(pool, a="quarantined")
    assert [entry for entry in a.log if entry in STEPS] == ["wait"]


def test_the_reasons_of_many_devices_are_told_in_full(pools: Pools) -> None:
    """Devices that come back while they rest are absent, and say why they are not used."""
    names = [f"emulator-{5554 + 2 * number}" for number in range(16)]
    pool = pools(max_faults=1)
    for name in names:
        pool.join(FakeMember(name))
    pool.listed(dict.fromkeys(names, "device"))
    wait_for(pool, **dict.fromkeys(names, "ready"))
    leases = [pool.acquire(DEADLINE_S) for _ in names]
    for lease in leases:
        pool.release(lease, DeviceTimeout("it does not answer.", serial=lease.id))
    wait_for(pool, **dict.fromkeys(names, "quarantined"))
    pool.listed(dict.fromkeys(names))
    assert pool.line() == f"16 absent ({', '.join(names)}: adb does not list it)"
    pool.listed(dict.fromkeys(names, "device"))
    each = ", ".join(f"{name} (next try in 10 s)" for name in names)
    assert pool.line() == f"16 absent ({each}: it does not answer.)"
    assert pool.stats()["devices_quarantined"] == 16


def test_a_hung_probe_is_bounded_and_holds_up_nobody(pools: Pools) -> None:
    a, b = FakeMember("a"), FakeMember("b")
    pool = pools(a, b, probe_every_s=10.0)
    wait_for(pool, a="ready", b="ready")
    gate = a.hang = threading.Event()
    try:
        pools.clock.now += 10.0
        until(lambda: a.log[-1] == "probe" and b.log[-1] == "probe", "the probes", DEADLINE_S)
        with pool.acquire(DEADLINE_S) as lease:  # b, as soon as its probe is over
            assert lease.id == "b"
        pools.clock.now += 5.0
        until(lambda: pool.states()["a"] is SlotState.RECOVERING, "the end of a's probe", DEADLINE_S)
        with pool.acquire(DEADLINE_S) as lease:
            assert lease.id == "b"
    finally:
        gate.set()
    wait_for(pool, a="ready", b="ready")
    assert pools.bundles()[0]["error"]["message"] == "a: its probe did not end in time."  # type: ignore[index]


def test_who_came_first_is_served_first(pools: Pools) -> None:
    """Also before whoever gives the device back and wants it again at once."""
    pool = pools(FakeMember("a"))
    lease = pool.acquire(DEADLINE_S)
    served: list[int] = []

    def wait(index: int) -> None:
        taken = pool.acquire(DEADLINE_S)
        served.append(index)
        pool.release(taken)

    with ThreadPoolExecutor(3) as executor:
        waiting = []
        for index in range(3):
            waiting.append(executor.submit(wait, index))
            until(lambda index=index: len(pool._waiters) == index + 1, "the next waiter", DEADLINE_S)
        pool.release(lease)
        pool.release(pool.acquire(DEADLINE_S))
        assert served == [0, 1, 2]
        for done in waiting:
            done.result(DEADLINE_S)


def test_a_device_that_falls_due_for_a_probe_as_it_is_lent_is_lent(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools(FakeMember("a"))
    until(lambda: pool.states() == {"a": SlotState.READY}, "the device", DEADLINE_S)
    picks = iter([pool._table.pick()])  # seen ready once, and not an instant later
    monkeypatch.setattr(pool._table, "pick", lambda: next(picks, None))
    with pool.acquire(0.0) as slot:
        assert slot.id == "a"


def test_devices_join_and_leave_while_others_work(pools: Pools) -> None:
    pool = pools(FakeMember("a"))
    with pool.acquire(DEADLINE_S), ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(pool.acquire, DEADLINE_S)
        pool.join(FakeMember("b"))
        assert pool.capacity == 2
        pool.listed({"b": "device", "stranger": "device"})
        with waiting.result(DEADLINE_S) as joined:
            assert joined.id == "b"
            pool.listed({"b": None})
        wait_for(pool, a="busy", b="absent")
        pool.listed({"b": "device"})
        wait_for(pool, a="busy", b="ready")


def test_closing_releases_all_and_wakes_those_who_wait(pools: Pools) -> None:
    members = [FakeMember("a", claim="a"), FakeMember("b", claim="b")]
    pool = pools(*members)
    leases = [pool.acquire(DEADLINE_S) for _ in members]
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(pool.acquire, DEADLINE_S)
        pool.close()
        with pytest.raises(PoolExhausted, match="closed"):
            waiting.result(DEADLINE_S)
    pool.release(leases[0], FAULT)  # late, and harmless
    assert [member.log[-1] for member in members] == ["close", "close"]
    assert Claims(pools.folder / "claims").take("a")
    pool.close()
    assert [member.log.count("close") for member in members] == [1, 1]


def test_a_device_that_opens_after_the_pool_is_closed_is_closed_again(pools: Pools) -> None:
    a = FakeMember("a")
    gate = a.hang = threading.Event()
    pools.close_s = 0.0
    pool = pools(a)
    until(lambda: a.log == ["open"], "the opening", DEADLINE_S)
    pool.close()
    gate.set()
    until(lambda: a.devices and a.devices[0].is_closed, "the end of the late device", DEADLINE_S)
    assert pool.states() == {}


def test_a_bug_in_a_device_is_seen(pools: Pools) -> None:
    class Broken(FakeMember):
        def probe(self) -> None:
            raise ZeroDivisionError("a bug")

    pool = pools(Broken("a"))
    pool.release(pool.acquire(DEADLINE_S), FAULT)
    with pytest.raises(ZeroDivisionError):
        pool.acquire(DEADLINE_S)
    with pytest.raises(ZeroDivisionError):
        pool.check()


# Pools made from a configuration: members of each kind, mistakes, and the tracker of an adb server.


def config(*pool: dict[str, object], **sections: object) -> Config:
    return Config.model_validate({"devices": {"adb_server_port": 5901, "pool": list(pool)}, **sections})


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))


def test_simulated_phones_are_ready_at_once() -> None:
    with make_pool(config({"kind": "sim", "count": 2, "width": 720, "height": 1600}), 8) as pool:
        with pool.acquire(DEADLINE_S) as one, pool.acquire(DEADLINE_S) as two:
            assert one.device.size == (720, 1600)
            assert one.id != two.id
        assert pool.capacity == 2


@pytest.mark.parametrize(
    ("serial", "is_address"),
    [
        ("127.0.0.1:5555", True),
        ("[::1]:5555", True),
        ("127.0.0.1:55*", False),
        ("10.0.0.?:5555", False),
        ("10.0.0.[12]:5555", False),
        ("[ab]*:5555", False),
    ],
)
def test_addresses_are_connected_to_and_patterns_of_them_wait_for_what_fits(
    serial: str, is_address: bool
) -> None:
    pool = make_pool(config({"kind": "adb", "serials": [serial]}), 8)
    assert list(pool.states()) == ([serial] if is_address else [])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"kind": "phone", "serials": ["R5"], "recipe": {"clear": ["a b"]}}, r"recipe\.clear\.0"),
        ({"kind": "phone", "serials": ["R5"], "guard": {"call": False}}, r"guard\.call"),
        ({"kind": "avd", "avd": "pixl"}, "Did you mean 'pixel'"),
        ({"kind": "avd", "avd": "pixel", "snapshot": "clean"}, r"devices\.pool: .* no snapshot 'clean'"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, part: dict[str, object], message: str
) -> None:
    if part["kind"] == "avd":
        sdk = make_sdk(tmp_path / "sdk")
        make_avd(sdk.store, "pixel")
        part = {**part, "sdk": str(sdk.root), "avd_home": str(sdk.store.home)}
    with pytest.raises(ConfigError, match=message):
        make_pool(config(part), 8)


def test_a_missing_sdk_is_to_be_named_in_the_configuration(tmp_path: Path) -> None:
    match = r"no Android emulator was found.*name it by `sdk` in devices\.pool"
    with pytest.raises(MissingDependency, match=match):
        make_pool(config({"kind": "avd", "avd": "pixel", "sdk": str(tmp_path)}), 8)


class FakeServer(AdbServer):
    """Its list is what was put into `lists` last; an exception is raised."""

    def __init__(self) -> None:
        super().__init__(port=1)
        self.lists: queue.Queue[dict[str, str] | Exception | None] = queue.Queue()

    def say(self, **states: str) -> None:
        self.lists.put(states)

    def track(self, stop: threading.Event) -> Iterator[dict[str, str] | None]:
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                said = self.lists.get(timeout=0.01)
                if isinstance(said, Exception):
                    raise said
                yield said


class Rig:
    """A pool of one named device and two patterns."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.server = Clock(), FakeServer()
        tracker = AdbTracker(
            self.server, [("named", FakeMember), ("new*", FakeMember), ("10.0.0.1:55*", FakeMember)]
        )
        self.pool = DevicePool(
            health=Health(max_faults=1),
            claims=Claims(folder / "claims"),
            tracker=tracker,
            clock=self.clock,
        )

    def wait(self, **states: str) -> None:
        wanted = {name: SlotState(state) for name, state in states.items()}
        until(lambda: self.pool.states() == wanted, str(states), DEADLINE_S, details=self.pool.line)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.pool.close()


def test_named_devices_are_known_from_the_beginning_and_others_join(rig: Rig) -> None:
    rig.pool.start()
    rig.wait(named="absent")
    rig.server.say(**{"named": "device", "10.0.0.1:5555": "device", "10.0.0.2:5555": "device"})
    rig.wait(**{"named": "ready", "10.0.0.1:5555": "ready"})
    rig.server.say(**{"10.0.0.1:5555": "device", "new2": "device"})
    rig.wait(**{"named": "absent", "10.0.0.1:5555": "ready", "new2": "ready"})


def test_a_lost_server_excuses_its_devices(rig: Rig) -> None:
    rig.pool.start()
    rig.server.say(named="device")
    rig.wait(named="ready")
    lease = rig.pool.acquire(DEADLINE_S)
    rig.server.lists.put(None)
    rig.server.say()
    until(rig.server.lists.empty, "the tracker's look at the first of these", DEADLINE_S)
    rig.pool.release(lease, DeviceDisconnected("the connection broke."))
    rig.server.say(named="device")
    rig.wait(named="ready")  # one fault of its own would have put it to rest


def test_the_only_device_that_goes_is_no_lost_server(rig: Rig) -> None:
    """Its list is empty then; what the device did wrong is its own fault all the same."""
    rig.pool.start()
    rig.server.say(named="device")
    rig.wait(named="ready")
    lease = rig.pool.acquire(DEADLINE_S)
    rig.server.say()
    rig.server.say(named="device", new1="device")
    rig.wait(named="busy", new1="ready")
    rig.pool.release(lease, DeviceDisconnected("the connection broke."))
    rig.wait(named="quarantined", new1="ready")  # one fault opens its circuit


def test_without_an_adb_program_there_is_no_pool(rig: Rig) -> None:
    rig.server.lists.put(MissingDependency("there is no adb program."))
    rig.pool.start()
    with pytest.raises(MissingDependency, match="no adb program"):
        rig.pool.acquire(DEADLINE_S)
