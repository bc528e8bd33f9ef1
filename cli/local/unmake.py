"""Removes the directory of a run of which nothing came, so that the corrected command finds its name free."""

from __future__ import annotations

import contextlib

from distrl.core.errors import DistrlError, StoreError
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.supervisor import ProgramFailed
from distrl.workers.spool import Spool


def unmake(run: RunDir, error: DistrlError) -> None:
    """Removes the directory of a run that `error` ended before anything was stored or learnt, and says so.

    The logs go with it. So it stays if the error line does not tell everything: a crash, or a run to which
    nothing came.

    Args:
        run: Made by this process, which holds its lock; none of its children runs any more.
        error: What ended it. If the directory is removed its remedy says so, instead of naming a log there.
    """
    is_explained = not isinstance(error, ProgramFailed) or error.is_explained
    if not is_explained or has_begun(run):
        return
    run.discard()
    if not run.path.exists():
        removed = f"Nothing was stored, so {run.path} was removed. Fix the problem and run the command again."
        error.remedy = removed if isinstance(error, ProgramFailed) else f"{error.remedy} {removed}".strip()


def has_begun(run: RunDir) -> bool:
    """Whether a run has a checkpoint, an evaluation or a trajectory, in its store or not delivered yet."""
    if any(any(folder.glob("*")) for folder in (run.checkpoints, run.evaluations)):
        return True
    try:
        return _num_stored(run) > 0 or _num_spooled(run) > 0
    except StoreError:
        return True  # unreadable is not empty


def _num_stored(run: RunDir) -> int:
    if not run.store.exists():
        return 0
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        return store.count()


def _num_spooled(run: RunDir) -> int:
    count = 0
    for file in run.spool.glob("*.sqlite3"):
        with contextlib.closing(Spool(file)) as spool:
            count += len(spool) + len(spool.refused())
    return count
