"""Which tasks of a split are measured, when not all are."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.core.types import Task


def select_tasks(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """The first `limit` tasks, taken from each template in turn, so that every template has its share.

    Args:
        tasks: Of one split, in the suite's order.
        limit: How many; None: all.

    Returns:
        The chosen tasks in the suite's order. The same arguments give the same tasks.
    """
    if limit is None or limit >= len(tasks):
        return list(tasks)
    counts: dict[str, int] = {}
    turns = []
    for place, task in enumerate(tasks):
        turn = counts[task.template] = counts.get(task.template, 0) + 1
        turns.append((turn, place))
    chosen = sorted(place for _, place in sorted(turns)[:limit])
    return [tasks[place] for place in chosen]
