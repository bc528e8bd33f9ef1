"""Finding stored trajectories: in a run, an evaluation or a store file; by id or by filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from distrl.core.errors import StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Trajectory
from distrl.evaluator.results import STORE_FILE


def open_store(place: Path) -> TrajectoryStore:
    """The store at `place`: a store file, or a run's or an evaluation's directory.

    Raises:
        StoreError: If there is none.
    """
    file = place / STORE_FILE if place.is_dir() else place
    if not file.is_file():
        raise StoreError(
            f"There is no trajectory store {file}.", "Name a run, an evaluation or a store.sqlite3."
        )
    return TrajectoryStore(file)


def find_trajectory(store: TrajectoryStore, trajectory_id: str) -> Trajectory:
    """The trajectory whose id is, or begins with, `trajectory_id`.

    Raises:
        StoreError: If there is none, or several.
    """
    matches = [known for known in store.ids() if known.startswith(trajectory_id)] if trajectory_id else []
    if len(matches) == 1 or trajectory_id in matches:
        return store.get(trajectory_id if trajectory_id in matches else matches[0])
    if not matches:
        raise StoreError(
            f"{store.path} has no trajectory {trajectory_id!r}.", "List them without --trajectory."
        )
    raise StoreError(f"{len(matches)} trajectories begin with {trajectory_id!r}.", "Give more of the id.")


def ending(trajectory: Trajectory) -> str:
    """How it ended, in one word: its outcome, or whose fault it was, e.g. "success" or "device-fault"."""
    if trajectory.fault is not Fault.NONE:
        return f"{trajectory.fault.value}-fault"
    return trajectory.outcome.value


ENDINGS = (
    *(outcome.value for outcome in Outcome),
    *(f"{fault.value}-fault" for fault in Fault if fault is not Fault.NONE),
)
"""All words that `ending` gives."""


def matching(
    store: TrajectoryStore, template: str | None = None, outcome: str | None = None, limit: int | None = None
) -> Iterator[Trajectory]:
    """The newest trajectories first, those that fit the filters, at most `limit`."""
    count = 0
    for trajectory_id in reversed(store.ids()):
        if limit is not None and count >= limit:
            return
        trajectory = store.get(trajectory_id)
        if template is not None and trajectory.task.template != template:
            continue
        if outcome is not None and ending(trajectory) != outcome:
            continue
        count += 1
        yield trajectory
