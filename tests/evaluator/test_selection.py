"""Taking some of the tasks: every template keeps its share, and the choice is always the same."""

from __future__ import annotations

from collections import Counter

from episode_factory import make_task

from distrl.evaluator.selection import select_tasks

TASKS = [make_task(i, template) for template, n in (("a", 6), ("b", 3), ("c", 1)) for i in range(n)]


def test_all_tasks_without_a_limit() -> None:
    assert select_tasks(TASKS, None) == TASKS
    assert select_tasks(TASKS, 99) == TASKS


def test_templates_share_the_limit() -> None:
    chosen = select_tasks(TASKS, 5)
    assert Counter(task.template for task in chosen) == {"a": 2, "b": 2, "c": 1}
    assert chosen == [task for task in TASKS if task in chosen]
    assert chosen == select_tasks(TASKS, 5)
