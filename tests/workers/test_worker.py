"""The pool of slots, with a fake link and a fake policy."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import worker_envs
from counting_env import TAP, counting_task
from link_fake import FakeLink
from policy_of_counting import CountingPolicy

from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.types import ActionRecord, Branch, Fault, PastStep, Purpose
from distrl.workers import worker as worker_module
from distrl.workers.worker import Worker

DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "WATCH_S", 0.01)
    monkeypatch.setattr(worker_module, "IDLE_S", 0.001)
    monkeypatch.setattr(worker_module, "BACKOFF_S", (0.0,))


def link_of(count: int, cls: type[FakeLink] = FakeLink, **fields: Any) -> FakeLink:
    """A link with so many leases, which ends the run when all have become trajectories."""
    return cls([Lease(id=f"lease-{i}", task=counting_task(i), **fields) for i in range(count)], count)


def config(env: str = "counting_env:CountingEnv", slots: int = 2, barrier: bool = False) -> Config:
    return Config.model_validate(
        {"env": {"import_path": env}, "worker": {"slots": slots, "barrier": barrier}, "name": "r"}
    )


def start(
    link: FakeLink, settings: Config, stop: threading.Event | None = None
) -> tuple[Worker, threading.Thread]:
    worker = Worker(settings, link, CountingPolicy, "w", stop)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    return worker, thread


def test_a_slow_slot_delays_nobody() -> None:
    """The first task is held until all others are done: that can only end if the other slot goes on."""
    worker_envs.GatedEnv.gate = threading.Event()
    link = link_of(6)
    link.on_submit = lambda: worker_envs.GatedEnv.gate.set() if len(link.submitted) == 5 else None
    Worker(config("worker_envs:GatedEnv"), link, CountingPolicy, "w").run()
    assert link.submitted[-1].lease_id == "lease-0"
    assert len(link.submitted) == 6


def test_with_a_barrier_slots_go_round_by_round() -> None:
    link = link_of(9)
    Worker(config(slots=3, barrier=True), link, CountingPolicy, "w").run()
    assert len(link.submitted) == 9
    for number in range(3):  # no lease of a round before the last trajectory of the one before
        assert sorted(link.log[6 * number : 6 * number + 6]) == ["lease"] * 3 + ["submit"] * 3


def test_demonstrations_know_no_barrier() -> None:
    """The first one is held until all others are done: that can only end if the other slot goes on."""
    worker_envs.GatedEnv.gate = threading.Event()
    link = link_of(4, purpose=Purpose.DEMO)
    link.on_submit = lambda: worker_envs.GatedEnv.gate.set() if len(link.submitted) == 3 else None
    Worker(config("worker_envs:GatedEnv", barrier=True), link, CountingPolicy, "w").run()
    assert link.submitted[-1].lease_id == "lease-0"
    assert len(link.submitted) == 4


def test_a_broken_environment_is_replaced_and_its_episode_reported_as_a_fault() -> None:
    worker_envs.FlakyEnv.made = worker_envs.FlakyEnv.closed = 0
    link = link_of(3)
    Worker(config("worker_envs:FlakyEnv", slots=1), link, CountingPolicy, "w").run()
    assert [t.fault for t in link.submitted] == [Fault.DEVICE, Fault.NONE, Fault.NONE]
    assert (worker_envs.FlakyEnv.made, worker_envs.FlakyEnv.closed) == (3, 2)
    assert link.submitted[0].fault_detail == "the screen is gone."


def test_a_bug_ends_the_worker_and_is_seen() -> None:
    with pytest.raises(ZeroDivisionError):
        Worker(config("worker_envs:BrokenEnv"), link_of(1), CountingPolicy, "w").run()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_slot_leaves_its_episode_when_the_worker_stops_or_is_left(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(worker_module, "STOP_S", 0.05 if hangs else DEADLINE_S)
    worker_envs.StuckEnv.entered, worker_envs.StuckEnv.release = threading.Event(), threading.Event()
    stop, link = threading.Event(), link_of(1)
    worker, thread = start(link, config("worker_envs:StuckEnv", slots=1), stop)
    assert worker_envs.StuckEnv.entered.wait(DEADLINE_S)
    stop.set()
    if not hangs:
        worker_envs.StuckEnv.release.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert worker.is_clear is not hangs
    assert (link.submitted, link.released) == ([], [] if hangs else ["lease-0"])
    worker_envs.StuckEnv.release.set()


def test_stop_frees_slots_from_the_barrier() -> None:
    """Two slots and one lease: the slot that ran it waits for the other until the worker stops."""
    stop = threading.Event()
    link = FakeLink(link_of(1).leases, 2)
    submitted = threading.Event()
    link.on_submit = submitted.set
    worker, thread = start(link, config(barrier=True), stop)
    assert submitted.wait(DEADLINE_S)
    stop.set()
    thread.join(DEADLINE_S)
    assert worker.is_clear


class LateServers(FakeLink):
    """Has an inference server from the fourth look on."""

    looks = 0

    @property
    def has_policy(self) -> bool:
        self.looks += 1
        return self.looks > 3

    @has_policy.setter
    def has_policy(self, value: bool) -> None:
        pass


def test_an_episode_waits_for_an_inference_server() -> None:
    link = link_of(1, LateServers)
    Worker(config(slots=1), link, CountingPolicy, "w").run()
    assert (link.looks, link.submitted[0].fault) == (4, Fault.NONE)


def test_a_lease_is_given_back_when_no_inference_server_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "NO_POLICY_S", 0.0)
    link = link_of(1)
    link.has_policy = False
    stop = threading.Event()
    monkeypatch.setattr(link, "release", lambda lease_id: (link.released.append(lease_id), stop.set()))
    Worker(config(slots=1), link, CountingPolicy, "w", stop).run()
    assert (link.submitted, link.released) == ([], ["lease-0"])


def test_the_heartbeat_numbers_count_episodes_successes_and_faults() -> None:
    worker_envs.FlakyEnv.made = 0
    link = link_of(3)
    worker = Worker(config("worker_envs:FlakyEnv", slots=1), link, CountingPolicy, "w")
    worker.run()
    assert worker.stats() == {"episodes": 3, "steps": 9, "successes": 2, "faults": 1, "imagined": 0}


def test_an_imagined_episode_holds_no_device_and_waits_for_none() -> None:
    """The slot's environment is not used; the one for branches has no latency."""
    worker_envs.SlowEnv.waited = []
    branch = Branch(trajectory="real", past=(PastStep(action=ActionRecord(**TAP.model_dump())),), horizon=9)
    link = link_of(3, purpose=Purpose.IMAGINED, branch=branch)
    settings = config("worker_envs:SlowEnv")
    settings.env.options["latency"] = 1.0
    worker = Worker(settings, link, CountingPolicy, "w")
    worker.run()
    assert [one.success for one in link.submitted] == [1.0] * 3
    assert {len(one.steps) for one in link.submitted} == {3}, "two taps and COMPLETE"
    assert set(worker_envs.SlowEnv.waited) == {0.0}
    assert (worker.stats()["episodes"], worker.stats()["imagined"]) == (0.0, 3.0)
