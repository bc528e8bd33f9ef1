"""The worker with real learner and act sockets and a real spool: in one process, and as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from counting_env import counting_task
from small_learner import CountingServer, SmallLearner

from distrl.cli.run_worker import work
from distrl.configs.schema import Config
from distrl.core.errors import LearnerUnreachable
from distrl.core.messages import Lease
from distrl.core.types import Outcome, Purpose, Trajectory, image_digest
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


def test_the_worker_may_start_first(tmp_path: Path) -> None:
    with SmallLearner([], tmp_path / "unused") as probe:
        endpoints = probe.endpoints
        config = probe.config(worker={"slots": 2})
    stop = threading.Event()
    thread = in_thread(config, tmp_path / "spool", stop)
    with SmallLearner(leases(4), tmp_path, endpoints) as learner, CountingServer(learner.endpoints):
        check(learner.collect(4), learner, 4)
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_demonstrations_arrive_without_an_inference_server(tmp_path: Path) -> None:
    with SmallLearner(leases(6, purpose=Purpose.DEMO), tmp_path) as learner:
        stop = threading.Event()
        thread = in_thread(learner.config(worker={"slots": 2}), tmp_path / "spool", stop)
        assert all(t.success == 1.0 and t.oldest_version == -1 for t in learner.collect(6))
        stop.set()
        thread.join(DEADLINE_S)


def test_a_learner_that_never_comes(tmp_path: Path) -> None:
    with SmallLearner([], tmp_path) as gone:
        config = gone.config()
    with pytest.raises(
        LearnerUnreachable, match=r"No learner answered at tcp://127\.0\.0\.1:\d+ within 0\.3 s"
    ):
        work(config, "w", tmp_path / "spool", threading.Event(), 0.3)


def test_a_worker_that_comes_when_the_run_is_over_leaves(tmp_path: Path) -> None:
    with SmallLearner(leases(1), tmp_path) as learner:
        learner.server.shutdown("all done")
        config = learner.config()
        config.network.broadcast = "tcp://127.0.0.1:1"  # all that it hears is the answer to its Hello
        work(config, "w", tmp_path / "spool", threading.Event())
        assert learner.scheduler.finished == []


def test_a_worker_process_runs_where_torch_cannot_be_imported_and_stops_on_sigint(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text('raise ImportError("torch must not be imported here")\n')
    with SmallLearner(leases(8), tmp_path) as learner, CountingServer(learner.endpoints):
        config = learner.config(worker={"slots": 2}, runs_dir=str(tmp_path / "runs"), name="small")
        (tmp_path / "config.yaml").write_text(config.to_yaml())
        process = subprocess.Popen(
            [sys.executable, "-m", "distrl", "run-worker", str(tmp_path / "config.yaml"), "--slots", "3"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            check(trajectories := learner.collect(8), learner, 8)
            assert {t.slot for t in trajectories} <= {0, 1, 2}
            process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, log
    assert "stopped; 8 episodes" in log
    assert [
        p.name.endswith("-0.sqlite3") for p in (tmp_path / "runs" / ".spool" / "small").glob("*.sqlite3")
    ] == [True]


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
