"""Digests of tasks: what they tell apart, and what not."""

from __future__ import annotations

import pytest

from distrl.core.types import Task
from distrl.evaluator.task_digests import may_be_same, task_digest, tasks_digest

TASK = Task(id="s/0", suite="s", template="t", split="test", goal="Do it.", params={"a": 1, "b": [1, 2]})


@pytest.mark.parametrize(
    "change", [{"id": "s/1"}, {"goal": "Do."}, {"params": {"a": 2}}, {"seed": 1}, {"max_steps": 9}]
)
def test_what_a_result_depends_on_is_told_apart(change: dict[str, object]) -> None:
    other = TASK.model_copy(update=change)
    assert task_digest(other) != task_digest(TASK)
    assert tasks_digest([other]) != tasks_digest([TASK])


def test_order_does_not_matter() -> None:
    other = TASK.model_copy(update={"id": "s/1"})
    assert tasks_digest([TASK, other]) == tasks_digest([other, TASK])
    turned = TASK.model_copy(update={"params": {"b": [1, 2], "a": 1}, "template": "another"})
    assert task_digest(turned) == task_digest(TASK)


def test_results_without_digests_may_be_of_anything() -> None:
    assert may_be_same("", "x")
    assert may_be_same("x", "")
    assert may_be_same("x", "x")
    assert not may_be_same("x", "y")
