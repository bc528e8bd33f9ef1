"""A real worker on a pool of devices: faults, retries elsewhere, joining devices, numbers for heartbeats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import worker_envs
from counting_env import counting_task
from link_fake import FakeLink
from policy_of_counting import CountingPolicy
from pool_devices import DeviceEnv, FakeMember, MeetingEnv
from waiting import until

from distrl.configs.learner import LearnerConfig
from distrl.configs.schema import Config, EnvConfig
from distrl.core.errors import ConfigError, EnvError, MissingDependency
from distrl.core.messages import Lease
from distrl.core.types import Fault, Purpose, Trajectory
from distrl.learner import leases
from distrl.learner.scheduler import TRAINING, TaskScheduler
from distrl.workers import worker as worker_module
from distrl.workers.devices.claims import Claims
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.table import Health, SlotState
from distrl.workers.env_pool import DeviceEnvs, EnvPool, EpisodeEnd, open_env_pool
from distrl.workers.worker import Worker

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "WATCH_S", 0.01)
    monkeypatch.setattr(worker_module, "IDLE_S", 0.001)
    monkeypatch.setattr(leases, "AVOID_S", 0.0)  # the only worker gets its retries at once
    DeviceEnv.ran.clear()


class SchedulerLink(FakeLink):
    """A worker's link, straight to the learner's own scheduler; ends after `episodes` without a fault."""

    def __init__(self, episodes: int) -> None:
        super().__init__()
        config = LearnerConfig(episodes=episodes, max_staleness=1000, min_replay=1000)
        tasks = [counting_task(index) for index in range(4)]
        self.scheduler = TaskScheduler(config, tasks, (), 0, "i", b"secret")
        self.scheduler.set_phase(TRAINING)
        self.episodes = episodes

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        granted = self.scheduler.grant("w", 1)
        return granted[0] if granted else None

    def release(self, lease_id: str) -> None:
        self.scheduler.release("w", [lease_id])

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes], run_id: str | None = None) -> None:
        super().submit(trajectory, images)
        self.scheduler.finish(trajectory)
        self.scheduler.account(trajectory)
        if self.scheduler.accounted(Purpose.TRAIN) >= self.episodes:
            self.shutdown.set()


class Rig:
    """A pool, and workers on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pools = folder, []

    def pool(self, *members: FakeMember, **health: Any) -> DevicePool:
        kept = partial(Path, self.folder / "postmortems")
        settings = Health(**{"max_faults": 1000, **health})
        pool = DevicePool(members, settings, 100, kept, Claims(self.folder / "claims"))
        self.pools.append(pool)
        pool.start()
        until(lambda: set(pool.states().values()) <= {SlotState.READY}, "the devices", DEADLINE_S)
        return pool

    def worker(
        self, pool: DevicePool, link: SchedulerLink, slots: int = 8, env: str = "pool_devices:DeviceEnv"
    ) -> Worker:
        config = Config.model_validate({"env": {"import_path": env}, "worker": {"slots": slots}, "name": "r"})
        return Worker(config, link, CountingPolicy, "w", envs=DeviceEnvs(config.env, pool))

    def start(self, *args: Any, **options: Any) -> threading.Thread:
        """A worker that runs in a thread; arguments as for `worker`."""
        thread = threading.Thread(target=self.worker(*args, **options).run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for pool in made.pools:
        pool.close()


def test_a_faulted_episode_is_run_again_on_another_device_and_never_counts(rig: Rig) -> None:
    bad, good = FakeMember("bad", mended_by="reconnect"), FakeMember("good")
    bad.fails_at = 2
    link = SchedulerLink(100)  # of fewer the good one may run all
    rig.worker(rig.pool(bad, good), link).run()
    faulted = [t for t in link.submitted if t.fault is not Fault.NONE]
    assert [t.fault for t in faulted] == [Fault.DEVICE]
    assert "does not answer" in faulted[0].fault_detail
    assert len(link.submitted) == 101
    assert link.scheduler.accounted(Purpose.TRAIN) == 100
    task = faulted[0].task.id
    since = DeviceEnv.ran.index((task, "bad"))
    again = [device for name, device in DeviceEnv.ran[since + 1 :] if name == task]
    assert again[0] == "good"
    assert link.scheduler.metrics()["scheduler/faulted"] == 1


def test_the_broken_device_is_repaired_and_used_again(rig: Rig) -> None:
    bad, good = FakeMember("bad", mended_by="cold boot"), FakeMember("good")
    bad.fails_at = 3
    link = SchedulerLink(10**6)
    thread = rig.start(rig.pool(bad, good), link)
    until(lambda: bad.steps > 20, "work on the repaired device", DEADLINE_S)
    link.shutdown.set()
    thread.join(DEADLINE_S)
    assert [device.is_closed for device in bad.devices] == [True, False]
    (file,) = rig.folder.glob("postmortems/*/fault.json")
    told = json.loads(file.read_text())
    assert [step["name"] for step in told["ladder"]] == ["wait", "reconnect", "cold boot"]
    names = {path.name for path in file.parent.iterdir()}
    assert {"episode.json", "screen-0.jpg", "logcat.txt"} <= names
    episode = json.loads((file.parent / "episode.json").read_text())
    assert episode["task"] == next(t.task.id for t in link.submitted if t.fault is Fault.DEVICE)


def test_all_devices_down_costs_no_lease_and_work_goes_on_afterwards(rig: Rig) -> None:
    only = FakeMember("only", mended_by=None)
    only.fails_at = 3
    link = SchedulerLink(5)
    thread = rig.start(rig.pool(only, pause_s=0.01, max_pause_s=0.01), link)
    until(lambda: only.log.count("cold boot") >= 2, "the repairs", DEADLINE_S)
    assert len(link.submitted) == 1
    assert link.scheduler.metrics()["scheduler/leases_out"] == 0
    only.broken = None
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert link.scheduler.accounted(Purpose.TRAIN) == 5


def test_slots_come_with_the_devices(rig: Rig) -> None:
    """Each episode waits for another one to be under way: that takes two slots."""
    MeetingEnv.meeting = threading.Barrier(2)
    pool, link = rig.pool(FakeMember("a")), SchedulerLink(4)
    thread = rig.start(pool, link, env="pool_devices:MeetingEnv")
    until(lambda: MeetingEnv.meeting.n_waiting == 1, "the first episode", DEADLINE_S)
    pool.join(FakeMember("b"))
    pool.listed({"b": "device"})
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert {device for _, device in DeviceEnv.ran} == {"a", "b"}


def test_what_ends_the_pool_ends_a_worker_that_has_no_device_yet(rig: Rig) -> None:
    pool, link = rig.pool(), SchedulerLink(1)
    worker = rig.worker(pool, link)
    pool.crashed(MissingDependency("there is no adb program."))
    with pytest.raises(MissingDependency, match="no adb program"):
        worker.run()


def test_an_environment_without_devices_is_refused(rig: Rig) -> None:
    config = Config.model_validate({"env": {"import_path": "counting_env:CountingEnv"}, "name": "r"})
    places = DeviceEnvs(config.env, rig.pool(FakeMember("a")))
    worker = Worker(config, SchedulerLink(1), CountingPolicy, "w", envs=places)
    with pytest.raises(ConfigError, match=r"takes no device, but devices\.pool is not empty"):
        worker.run()


DEVICE_ENV = EnvConfig(import_path="pool_devices:DeviceEnv")


def done(fault: Fault = Fault.NONE) -> EpisodeEnd:
    return EpisodeEnd(Trajectory(id="t", task=counting_task(), fault=fault), {})


def test_an_environment_does_not_outlive_a_repair_of_its_idle_device(rig: Rig) -> None:
    member = FakeMember("a")
    envs = DeviceEnvs(DEVICE_ENV, rig.pool(member, probe_every_s=0.02))
    entry = envs.acquire(0, DEADLINE_S)
    assert entry is not None
    envs.release(entry, done())
    member.fail()
    until(lambda: len(member.devices) == 2, "the repair", DEADLINE_S)
    again = envs.acquire(0, DEADLINE_S)
    assert again is not None
    assert isinstance(again.env, DeviceEnv)
    assert again.env is not entry.env
    assert again.env.device is member.devices[1]


def test_an_environment_that_does_not_start_is_the_device_s_fault(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DeviceEnv, device: object) -> None:
        raise DeviceTimeout("it does not answer.")

    monkeypatch.setattr(DeviceEnv, "__init__", refuse)
    member = FakeMember("a")
    with pytest.raises(EnvError, match="does not answer"):
        DeviceEnvs(DEVICE_ENV, rig.pool(member)).acquire(0, DEADLINE_S)
    until(lambda: "wait" in member.log, "its repair", DEADLINE_S)


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
