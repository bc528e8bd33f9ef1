"""Digests of tasks, by which results tell whether tasks of the same id are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from distrl.core.types import Task


def task_digest(task: Task) -> str:
    """What a result depends on of `task`: its id, goal, parameters, seed and step limit; 16 hex digits."""
    told = task.model_dump(mode="json", include={"id", "goal", "params", "seed", "max_steps"})
    return _digest(json.dumps(told, sort_keys=True))


def tasks_digest(tasks: Iterable[Task]) -> str:
    """The digest of all `tasks`, in whatever order."""
    return _digest("".join(sorted(task_digest(task) for task in tasks)))


def may_be_same(first: str, second: str) -> bool:
    """Whether two digests do not tell apart what they are of. Results of older versions have none: ""."""
    return not first or not second or first == second


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
