"""Nothing lost, nothing doubled: real processes, killed again and again in mid-stream."""

import signal
import sqlite3
import sys
from pathlib import Path

from role_processes import free_endpoints
from waiting import until

from distrl.core.process import Child, stop_all
from distrl.core.store import TrajectoryStore
from distrl.workers.spool import Spool

NUM_TRAJECTORIES = 140
WAIT_S = 90.0

LEARNER = """
import queue, sys
from pathlib import Path
from small_learner import ListScheduler
from distrl.core.messages import Lease
from distrl.core.process import install_signals
from distrl.core.store import TrajectoryStore
from distrl.core.types import Task
from distrl.learner.server import Endpoints, LearnerServer

control, broadcast, path, record = sys.argv[1:]
task = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")

class Scheduler(ListScheduler):
    def grant(self, worker, count, limit, client):
        self.num_granted += count
        return [Lease(id=f"lease{self.num_granted - i}", task=task) for i in range(count)]
    def finish(self, trajectory): pass

scheduler = Scheduler([])
scheduler.num_granted = 0
stop = install_signals()
ingested = queue.Queue(8)
endpoints = Endpoints(control, broadcast, "tcp://127.0.0.1:0")
server = LearnerServer(endpoints, None, TrajectoryStore(Path(path)), scheduler, ingested, "run")
server.start()
with open(record, "a") as file:
    while not stop.is_set():
        server.check()
        try:
            print(ingested.get(timeout=0.1).id, file=file, flush=True)
        except queue.Empty:
            pass
server.close()
"""

WORKER = """
import random, sys
from pathlib import Path
from distrl.core.process import install_signals
from distrl.core.sockets import Wire
from distrl.core.types import ActionRecord, Observation, Task, TimeStep, Trajectory, image_digest
from distrl.workers.client import LearnerLink
from distrl.workers.spool import Spool

control, broadcast, path, record, count = sys.argv[1:]
stop = install_signals()
link = LearnerLink(Wire(), control, broadcast, "worker", "w", spool=Spool(Path(path)), max_unacked=20)
link.start()
done = set(Path(record).read_text().split()) if Path(record).exists() else set()

def episode(name, lease):
    rng = random.Random(name)
    pictures = [rng.randbytes(20_000) for _ in range(3)]
    images = {image_digest(picture): picture for picture in pictures}
    steps = tuple(
        TimeStep(observation=Observation(image=digest, width=1, height=1), chats=(),
                 action=ActionRecord(kind="back"))
        for digest in images
    )
    return Trajectory(id=name, task=lease.task, lease_id=lease.id, steps=steps), images

for number in range(int(count)):
    name = f"t{number}"
    while name not in done and not stop.is_set():
        link.check()
        lease = link.lease(0.5)
        if lease is None:
            continue
        link.submit(*episode(name, lease))
        # Killed before this line, the episode is made again under the same id: a duplicate on purpose.
        with open(record, "a") as file:
            print(name, file=file, flush=True)
        done.add(name)
        stop.wait(0.01)
sys.exit(0 if link.flush(60.0) else 1)
"""


def start(name: str, code: str, folder: Path, *arguments: object) -> Child:
    return Child(name, [sys.executable, "-c", code, *map(str, arguments)], folder / f"{name}.log")


def num_stored(path: Path) -> int:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM trajectories").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not there yet


def wait_for_stored(path: Path, count: int, *children: Child) -> None:
    def check_alive() -> None:
        for child in children:
            assert child.poll() is None, f"{child.name} ended: {child.log_file.read_text()}"

    until(lambda: num_stored(path) >= count, f"trajectory {count}", WAIT_S, meanwhile=check_alive)


def test_every_trajectory_is_stored_exactly_once_whoever_is_killed(tmp_path):
    control, broadcast = free_endpoints(2)
    store_path, spool_path = tmp_path / "store.sqlite3", tmp_path / "spool.sqlite3"
    ingested, collected = tmp_path / "ingested.txt", tmp_path / "collected.txt"

    def start_learner() -> Child:
        return start("learner", LEARNER, tmp_path, control, broadcast, store_path, ingested)

    def start_worker() -> Child:
        arguments = (control, broadcast, spool_path, collected, NUM_TRAJECTORIES)
        return start("worker", WORKER, tmp_path, *arguments)

    learner, worker = start_learner(), start_worker()
    try:
        for count, victim in ((20, "learner"), (50, "worker"), (80, "learner"), (110, "both")):
            wait_for_stored(store_path, count, learner, worker)
            if victim != "worker":
                assert learner.kill() == -signal.SIGKILL
                learner = start_learner()
            if victim != "learner":
                assert worker.kill() == -signal.SIGKILL
                worker = start_worker()
        assert worker.wait(WAIT_S) == 0, worker.log_file.read_text()
        stop_all([(learner, WAIT_S)])
        assert learner.poll() == 0, learner.log_file.read_text()
    finally:
        worker.kill()
        learner.kill()

    expected = {f"t{number}" for number in range(NUM_TRAJECTORIES)}
    spool, store = Spool(spool_path), TrajectoryStore(store_path)
    assert len(spool) == 0
    assert spool.refused() == {}
    assert sorted(store.ids()) == sorted(expected)
    for trajectory in store.iterate():
        assert len(store.images(trajectory.image_digests)) == 3
    handed_over = ingested.read_text().split()
    assert len(handed_over) == len(set(handed_over)), "handed to training twice"
    spool.close()
    store.close()
