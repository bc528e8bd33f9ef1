"""Which directories of new runs are removed again after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrl.cli.local.run import LearnerWatch, unmake
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import DistrlError, NetworkError
from distrl.core.messages import Shutdown, Status
from distrl.core.rundir import RunDir
from distrl.core.sockets import Channel, Wire
from distrl.core.store import TrajectoryStore
from distrl.core.supervisor import ProgramFailed
from distrl.core.types import Record, Task, Trajectory
from distrl.workers.spool import Spool

EPISODE = Trajectory(id="t", task=Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it"))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """As children leave it that came to nothing: logs, an empty store, an empty spool."""
    run = RunDir.create(Config(name="new", runs_dir=str(tmp_path)))
    (run.logs / "learner.log").write_text("error: no\n")
    TrajectoryStore(run.store).close()
    run.spool.mkdir()
    Spool(run.spool / "worker-0.sqlite3").close()
    return run


def failed(is_explained: bool) -> ProgramFailed:
    error = ProgramFailed("learner stopped: no", "See learner.log.")
    error.is_explained = is_explained
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NetworkError("Is in use.", "Choose another port."), "Is in use. Choose another port. Nothing was"),
        (failed(is_explained=True), "learner stopped: no Nothing was stored"),
    ],
)
def test_a_run_that_came_to_nothing_is_removed(run: RunDir, error: DistrlError, said: str) -> None:
    unmake(run, error)
    assert not run.path.exists()
    assert str(error).startswith(said)
    assert str(run.path) in str(error)


def test_logs_of_a_crash_stay(run: RunDir) -> None:
    error = failed(is_explained=False)
    unmake(run, error)
    assert (run.logs / "learner.log").is_file()
    assert error.remedy == "See learner.log."


def store(run: RunDir) -> None:
    with contextlib.closing(TrajectoryStore(run.store)) as opened:
        opened.add(EPISODE, {})


def refused(run: RunDir) -> None:
    with contextlib.closing(Spool(run.spool / "worker-0.sqlite3")) as opened:
        opened.put(EPISODE, {})
        opened.refuse("t", "no")


def checkpoint(run: RunDir) -> None:
    (run.checkpoints / "step_0").mkdir()


def damage(run: RunDir) -> None:
    run.store.write_bytes(b"not a database" * 100)


@pytest.mark.parametrize("begin", [store, refused, checkpoint, damage])
def test_what_holds_anything_stays(run: RunDir, begin: Callable[[RunDir], None]) -> None:
    begin(run)
    error = failed(is_explained=True)
    unmake(run, error)
    assert run.config.is_file()
    assert error.remedy == "See learner.log."


POLLS = 200


@pytest.fixture
def broadcast() -> Iterator[Channel]:
    with Wire() as wire:
        yield wire.bind_pub("tcp://127.0.0.1:*")


def follow(watch: LearnerWatch, broadcast: Channel, message: Record, heard: Status | None = None) -> None:
    """Repeats a broadcast, as learners do, until the watch has taken it."""
    for _ in range(POLLS):
        broadcast.send(message)
        watch.poll(0.1)
        if watch.is_over or (heard is not None and watch.status == heard):
            return
    raise AssertionError("the broadcast never arrived")


def test_the_newest_status_is_kept_and_a_shutdown_ends_it(broadcast: Channel) -> None:
    with LearnerWatch(NetworkConfig(broadcast=broadcast.endpoint)) as watch:
        watch.poll(0.0)
        assert watch.status is None
        training = Status(run_id="r", phase="training", metrics={"episodes": 3.0})
        follow(watch, broadcast, training, training)
        assert watch.status == training
        assert not watch.is_over
        follow(watch, broadcast, Shutdown(run_id="r"))
        assert watch.is_over
        assert watch.status == training
