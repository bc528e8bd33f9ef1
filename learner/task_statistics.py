"""What became of each training task: episodes, success, steps, faults. Kept over restarts, shown to people.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import StoreError
from distrl.core.files import write_atomically
from distrl.core.types import Fault, Outcome, Task, Trajectory


@dataclass
class TaskRecord:
    """One task's totals.

    Attributes:
        template: The task's.
        episodes: Training episodes without a fault.
        judged: Those of them that a judge gave a score.
        success: Sum of the scores.
        steps: Sum of their steps.
        seconds: Sum of their durations.
        faults: Episodes that a device, the environment or inference failed, and that were run again.
        expired: Leases that their worker let expire.
        abandoned: Episodes given up after several attempts.
    """

    template: str = ""
    episodes: int = 0
    judged: int = 0
    success: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    faults: int = 0
    expired: int = 0
    abandoned: int = 0

    @property
    def mean_success(self) -> float | None:
        """None if nothing was judged."""
        return self.success / self.judged if self.judged else None

    @property
    def mean_steps(self) -> float | None:
        """None without an episode."""
        return self.steps / self.episodes if self.episodes else None

    @property
    def mean_seconds(self) -> float | None:
        """None without an episode."""
        return self.seconds / self.episodes if self.episodes else None


class TaskStatistics:
    """Records by task id."""

    def __init__(self) -> None:
        self._records: dict[str, TaskRecord] = {}

    def account(self, trajectory: Trajectory) -> None:
        """A training episode has been taken, or came to nothing by a fault."""
        record = self._of(trajectory.task)
        if trajectory.fault is not Fault.NONE:
            record.faults += 1
            return
        record.episodes += 1
        record.steps += len(trajectory.steps)
        record.seconds += trajectory.duration_s
        if trajectory.outcome is not Outcome.UNJUDGED:
            record.judged += 1
            record.success += trajectory.success

    def expired(self, task: Task) -> None:
        """A lease on this task has expired."""
        self._of(task).expired += 1

    def abandoned(self, task: Task) -> None:
        """An episode of this task has been given up."""
        self._of(task).abandoned += 1

    def table(self) -> dict[str, TaskRecord]:
        """Copies of all records, by task id."""
        return {name: TaskRecord(**asdict(record)) for name, record in sorted(self._records.items())}

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able."""
        return {name: asdict(record) for name, record in self._records.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict`."""
        self._records = {name: TaskRecord(**record) for name, record in state.items()}

    def _of(self, task: Task) -> TaskRecord:
        return self._records.setdefault(task.id, TaskRecord(task.template))


def write_table(path: Path, table: Mapping[str, TaskRecord]) -> None:
    """Replaces the file by `table`, as JSON: an object per task id."""
    rows = {name: asdict(record) for name, record in table.items()}
    write_atomically(path, json.dumps(rows, indent=1) + "\n")


def read_table(path: Path) -> dict[str, TaskRecord]:
    """What `write_table` wrote.

    Raises:
        StoreError: There is no such file, or it is not one of these.
    """
    try:
        return {name: TaskRecord(**record) for name, record in json.loads(path.read_text()).items()}
    except FileNotFoundError as error:
        raise StoreError(
            f"There is no {path}.", "A learner writes it with each checkpoint; name a run that has one."
        ) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read: {error}.", "Use the distrl that wrote it.") from error
