"""Environments for slots: their own, and environments that stay with the devices of a pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_envs
from counting_env import counting_task
from pool_devices import Clock, DeviceEnv, FakeMember
from waiting import until

from distrl.configs.schema import Config, EnvConfig
from distrl.core.errors import EnvError
from distrl.core.types import Fault, Trajectory
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.table import Health, SlotState
from distrl.workers.env_pool import DeviceEnvs, Entry, EnvPool, EpisodeEnd, open_env_pool

DEADLINE_S = 20.0
TASK, OTHER_TASK = counting_task(1), counting_task(2)


class Rig:
    """EnvPool on a pool of devices, named by letters."""

    def __init__(self, folder: Path, names: str = "ab") -> None:
        self.clock = Clock()
        self.members = [FakeMember(name) for name in names]
        claims = Claims(folder / "claims")
        self.pool = DevicePool(self.members, Health(max_faults=100), claims=claims, clock=self.clock)
        self.envs = DeviceEnvs(EnvConfig(import_path="pool_devices:DeviceEnv"), self.pool)
        self.pool.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        until(
            lambda: set(self.pool.states().values()) <= {SlotState.READY, SlotState.BUSY},
            "the devices",
            DEADLINE_S,
        )

    def enter(self, device: str) -> Entry:
        """A entry on this device."""
        for _ in self.members:
            self.clock.now += 0.01  # the one that rested longest comes next
            entry = self.envs.acquire(0, DEADLINE_S)
            assert entry is not None
            if device_of(entry) == device:
                return entry
            self.envs.release(entry)
        raise AssertionError(f"{device} does not come")

    def fail(self, entry: Entry) -> None:
        """The device fails at TASK."""
        error = DeviceTimeout("it does not answer.")
        trajectory = Trajectory(id="t", task=TASK, fault=Fault.DEVICE, fault_detail=str(error))
        self.envs.release(entry, EpisodeEnd(trajectory, {}, error))
        self.wait_ready()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.envs.close()


def device_of(entry: Entry) -> str:
    assert entry.device is not None
    return entry.device.id


def done(task_fault: Fault = Fault.NONE) -> EpisodeEnd:
    return EpisodeEnd(Trajectory(id="t", task=TASK, fault=task_fault), {})


def test_an_environment_does_not_outlive_a_repair_of_its_idle_device(rig: Rig) -> None:
    entry = rig.enter("a")
    rig.envs.release(entry, done())
    rig.members[0].fail()
    rig.clock.now += 10.0
    until(lambda: len(rig.members[0].devices) == 2, "the repair", DEADLINE_S)
    rig.wait_ready()
    again = rig.enter("a")
    assert again.env is not entry.env
    assert isinstance(again.env, DeviceEnv)
    assert again.env.device is rig.members[0].devices[1]


def test_an_environment_that_does_not_start_is_the_device_s_fault(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DeviceEnv, device: object) -> None:
        raise DeviceTimeout("it does not answer.")

    monkeypatch.setattr(DeviceEnv, "__init__", refuse)
    with pytest.raises(EnvError, match="does not answer"):
        rig.envs.acquire(0, DEADLINE_S)
    until(lambda: any("wait" in member.log for member in rig.members), "its repair", DEADLINE_S)


def test_a_slot_s_own_environment_is_made_once_and_anew_after_a_fault() -> None:
    worker_envs.FlakyEnv.made, worker_envs.FlakyEnv.closed = 2, 0
    envs = EnvPool(EnvConfig(import_path="worker_envs:FlakyEnv"), 2)
    first = envs.acquire(0, 0.0)
    envs.release(first, done())
    assert envs.acquire(0, 0.0).env is first.env
    assert envs.acquire(1, 0.0).env is not first.env
    envs.release(first, done(Fault.DEVICE))
    assert worker_envs.FlakyEnv.closed == 1
    assert envs.acquire(0, 0.0).env is not first.env
    envs.close_slot(0)
    envs.close_slot(1)
    assert worker_envs.FlakyEnv.closed == 3
    without_pool = open_env_pool(Config(), 3)
    assert (without_pool.capacity, without_pool.stats(), without_pool.line()) == (3, {}, "")
