"""Which directories of new runs are removed again after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from distrl.cli.local.run import unmake
from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, NetworkError
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.supervisor import ProgramFailed
from distrl.core.types import Task, Trajectory
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
