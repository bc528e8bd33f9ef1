"""Pools made from a configuration: members of each kind, mistakes, and an evaluation on simulated phones."""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_devices import Clock, FakeMember
from waiting import until

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, MissingDependency
from distrl.core.terminal import Console
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.progress import EvaluationProgress
from distrl.simulator.emulator.sdk import make_avd, make_sdk
from distrl.workers.devices import pool as pools
from distrl.workers.devices.adb_server import AdbServer, DeviceEntry
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceDisconnected, ServerUnavailable
from distrl.workers.devices.pool import AdbTracker, DevicePool, make_pool, postmortem_folder
from distrl.workers.devices.table import Health, SlotState

DEADLINE_S = 20.0


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


def test_emulators_are_named_after_their_avd(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    make_avd(sdk.store, "pixel")
    part = {"kind": "avd", "avd": "pixel", "count": 2, "sdk": str(sdk.root), "avd_home": str(sdk.store.home)}
    pool = make_pool(config(part, {"kind": "adb", "serials": ["host:5555"]}), 8)
    assert set(pool.states()) == {"pixel-distrl-0", "pixel-distrl-1", "host:5555"}


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


@pytest.mark.parametrize("named", [True, False])
def test_a_missing_sdk_is_to_be_named_in_the_configuration(tmp_path: Path, monkeypatch, named: bool) -> None:
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    part = {"kind": "avd", "avd": "pixel"} | ({"sdk": str(tmp_path)} if named else {})
    match = r"no Android emulator was found.*name it by `sdk` in devices\.pool"
    with pytest.raises(MissingDependency, match=match):
        make_pool(config(part), 8)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"kind": "phone", "serials": ["R5"], "recipe": {"clear": ["a b"]}}, r"recipe\.clear\.0"),
        ({"kind": "phone", "serials": ["R5"], "guard": {"call": False}}, r"guard\.call"),
        ({"kind": "phone", "serials": ["R5"], "recipe": {"hook": "no_such_module:reset"}}, "no_such_module"),
        ({"kind": "phone", "serials": ["R5"], "recipe": {"time_zone": "Foo/Bar"}}, "not a time zone"),
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


def test_post_mortems_lie_in_the_run_if_it_is_here(tmp_path: Path) -> None:
    settings = config(runs_dir=str(tmp_path), name="mine")
    assert postmortem_folder(settings) == tmp_path / ".postmortems" / "mine"
    (tmp_path / "mine").mkdir()
    assert postmortem_folder(settings) == tmp_path / "mine" / "postmortems"


def test_an_evaluation_uses_the_pool(tmp_path: Path) -> None:
    settings = config(
        {"kind": "sim", "count": 2},
        tasks={"suite": "quickstart", "test": ["test"]},
        evaluate={"slots": 4, "episodes": 6},
        runs_dir=str(tmp_path),
    )
    done = measure(
        settings,
        Measured(agent="expert"),
        tmp_path / "out",
        progress=EvaluationProgress(console=Console(file=io.StringIO())),
    )
    overall = done.splits["test"].overall
    assert (overall.successes, overall.episodes) == (6, 6)


class FakeServer(AdbServer):
    """Its list is what `say` was called with last.

    Attributes:
        starts: How often it was to be started.
        refuses: What its start raises.
    """

    def __init__(self) -> None:
        super().__init__(port=1)
        self.lists: queue.Queue[list[DeviceEntry] | None] = queue.Queue()
        self.starts = 0
        self.refuses: Exception | None = None

    def say(self, **states: str) -> None:
        self.lists.put([DeviceEntry(serial, state) for serial, state in states.items()])

    def go_away(self) -> None:
        self.lists.put(None)

    def ensure_running(self, timeout_s: float = 20.0) -> None:
        self.starts += 1
        if self.refuses is not None:
            raise self.refuses

    def track(self, stop: threading.Event) -> Iterator[list[DeviceEntry] | None]:
        while not stop.is_set():
            try:
                yield self.lists.get(timeout=0.01)
            except queue.Empty:
                continue


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


def test_a_lost_server_is_started_again_and_excuses_its_devices(rig: Rig) -> None:
    rig.pool.start()
    rig.server.say(named="device")
    rig.wait(named="ready")
    assert rig.server.starts == 1
    lease = rig.pool.acquire(DEADLINE_S)
    rig.server.go_away()
    until(lambda: rig.server.starts == 2, "the new server", DEADLINE_S)
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
    assert rig.server.starts == 1


def test_a_server_that_does_not_start_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "START_AGAIN_S", 0.01)
    rig.server.refuses = ServerUnavailable("the port is in use.")
    rig.pool.start()
    until(lambda: rig.server.starts >= 3, "more tries", DEADLINE_S)
    rig.server.refuses = None
    rig.server.say(named="device")
    rig.wait(named="ready")


def test_without_an_adb_program_there_is_no_pool(rig: Rig) -> None:
    rig.server.refuses = MissingDependency("there is no adb program.")
    rig.pool.start()
    with pytest.raises(MissingDependency, match="no adb program"):
        rig.pool.acquire(DEADLINE_S)
