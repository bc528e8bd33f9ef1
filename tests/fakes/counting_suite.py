"""Tasks of the counting environment as a suite: `tasks.suite: counting_suite:tasks`."""

from __future__ import annotations

from counting_env import counting_task

from distrl.core.types import Task


def tasks() -> list[Task]:
    """Six training tasks, two of each other split."""
    made = [counting_task(index) for index in range(6)]
    for split in ("val", "test"):
        for index in range(2):
            task = counting_task(index)
            made.append(task.model_copy(update={"id": f"counting/three/{split}/{index}", "split": split}))
    return made


def short_tasks() -> list[Task]:
    """The same with two steps each."""
    return [task.model_copy(update={"max_steps": 2}) for task in tasks()]
