"""The worker with real learner and act sockets, a real spool and pool, in one process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from counting_env import counting_task
from small_learner import CountingServer, SmallLearner
from waiting import until

from distrl.cli.run_worker import work
from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.types import Outcome, Purpose, Trajectory, image_digest
from distrl.evaluator.suites import load_suite
from distrl.learner.server import Endpoints
from distrl.workers.spool import Spool

DEADLINE_S = 60.0


def leases(count: int, start: int = 0, **fields: Any) -> list[Lease]:
    return [Lease(id=f"lease-{i}", task=counting_task(i), **fields) for i in range(start, start + count)]


def in_thread(config: Config, spool_dir: Path, stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=work, args=(config, "w", spool_dir, stop), daemon=True)
    thread.start()
    return thread


def check(trajectories: list[Trajectory], learner: SmallLearner, count: int) -> None:
    """Each lease has one successful trajectory, and the store holds it with the bytes that it names."""
    assert sorted(t.lease_id for t in trajectories) == sorted(f"lease-{i}" for i in range(count))
    for trajectory in trajectories:
        assert (trajectory.outcome, trajectory.oldest_version) == (Outcome.SUCCESS, 4)
        assert learner.store.get(trajectory.id) == trajectory
        images = learner.store.images(trajectory.image_digests)
        assert {image_digest(data) for data in images.values()} == set(trajectory.image_digests)


def test_leases_become_stored_trajectories_and_the_run_ends(tmp_path: Path) -> None:
    with SmallLearner(leases(20), tmp_path) as learner, CountingServer(learner.endpoints) as server:
        thread = in_thread(learner.config(worker={"slots": 4}), tmp_path / "spool", threading.Event())
        check(learner.collect(20), learner, 20)
        assert server.num_answers == 80
        learner.server.shutdown("all done")
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert len(Spool(tmp_path / "spool" / "w.sqlite3")) == 0


def test_a_worker_that_comes_when_the_run_is_over_leaves(tmp_path: Path) -> None:
    with SmallLearner(leases(1), tmp_path) as learner:
        learner.server.shutdown("all done")
        config = learner.config()
        config.network.broadcast = "tcp://127.0.0.1:1"  # all that it hears is the answer to its Hello
        work(config, "w", tmp_path / "spool", threading.Event())
        assert learner.scheduler.finished == []


def test_a_worker_outlives_its_learner(tmp_path: Path) -> None:
    """A learner that comes back at the same addresses gets what was finished while it was away."""
    first = SmallLearner(leases(2), tmp_path / "first")
    with first, CountingServer(first.endpoints):
        stop = threading.Event()
        thread = in_thread(first.config(worker={"slots": 2}), tmp_path / "spool", stop)
        done = first.collect(2)
        endpoints: Endpoints = first.endpoints
    with SmallLearner(leases(4, start=2), tmp_path / "first", endpoints) as second, CountingServer(endpoints):
        done += second.collect(4)
        check(done, second, 6)
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_a_pool_of_phones_gives_as_many_slots_and_reports_its_devices(tmp_path: Path) -> None:
    tasks = load_suite("quickstart", "train")[:6]
    demos = [Lease(id=f"lease-{n}", task=task, purpose=Purpose.DEMO) for n, task in enumerate(tasks)]
    with SmallLearner(demos, tmp_path) as learner:
        devices = {"pool": [{"kind": "sim", "count": 2}]}
        config = learner.config(
            env={"kind": "phone"}, worker={"slots": 8}, devices=devices, runs_dir=str(tmp_path / "runs")
        )
        stop = threading.Event()
        thread = in_thread(config, tmp_path / "spool", stop)
        trajectories = learner.collect(6)
        until(lambda: num_devices(learner) == 2, "the pool in a heartbeat", DEADLINE_S)
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert all(trajectory.success == 1.0 for trajectory in trajectories)
    assert {trajectory.slot for trajectory in trajectories} <= {0, 1}


def num_devices(learner: SmallLearner) -> float:
    """How many devices the learner counts."""
    metrics = learner.server.peer_metrics()
    states = ("ready", "busy", "recovering", "quarantined")
    return sum(metrics.get(f"workers/devices_{state}", 0.0) for state in states)
