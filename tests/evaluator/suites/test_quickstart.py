"""The quickstart suite: solvable, unsolved at its start, and honestly split."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from distrl.core.actions import ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite, quickstart
from distrl.workers.envs.phone import PhoneEnv

TASKS = load_suite("quickstart")
TRAIN = [task for task in TASKS if task.split == "train"]
HELD_OUT = [task for task in TASKS if task.split != "train"]


def key(task: Task) -> str:
    return json.dumps([task.template, task.params], sort_keys=True)


@pytest.mark.parametrize("template", list(quickstart.COUNTS))
def test_the_expert_solves_every_instance_with_steps_to_spare(template: str) -> None:
    env = PhoneEnv(width=72, height=160)
    for task in [task for task in TASKS if task.template == template]:
        env.reset(task)
        assert env.evaluate() == 0.0, f"{task.id} is solved at its start"
        for _ in range(task.max_steps - 1):
            action = env.expert_action()
            if action.kind is ActionKind.COMPLETE:
                break
            env.step(action)
        assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), task.id


def test_the_splits_have_their_sizes_and_stable_ids() -> None:
    sizes = Counter((task.template, task.split) for task in TASKS)
    assert sizes == {
        (template, split): count
        for template, counts in quickstart.COUNTS.items()
        for split, count in counts.items()
    }
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert "quickstart/alarm/test/0007" in {task.id for task in TASKS}
    assert quickstart.tasks() == quickstart.tasks()


def test_instances_differ_within_a_split() -> None:
    assert len({(key(task), task.seed) for task in TASKS}) == len(TASKS)


def test_no_combination_of_a_held_out_split_is_trained_on() -> None:
    trained = {key(task) for task in TRAIN}
    splits = {split: {key(task) for task in TASKS if task.split == split} for split in quickstart.SPLITS}
    assert trained.isdisjoint(key(task) for task in HELD_OUT)
    assert splits["val"].isdisjoint(splits["test"])


def test_held_out_times_and_queries_occur_in_no_training_layout() -> None:
    def values(tasks: list[Task]) -> set[object]:
        times = {(task.params["hour"], task.params["minute"]) for task in tasks if task.template == "alarm"}
        return times | {task.params["query"] for task in tasks if task.template == "shop_search"}

    assert values(TRAIN).isdisjoint(values(HELD_OUT))


def test_every_part_is_trained_on_in_every_layout_that_can_show_it() -> None:
    def parts(tasks: list[Task]) -> set[tuple[str, object]]:
        found: set[tuple[str, object]] = set()
        for task in tasks:
            for name, value in task.params.items():
                words = value.split() if name == "query" else [json.dumps(value)]
                found |= {(name, word) for word in words}
        return found

    unseen = ("layout", str(quickstart.UNSEEN_LAYOUT))
    assert parts(HELD_OUT) - parts(TRAIN) == {unseen}
    for layout in quickstart.LAYOUTS:
        alarms = [task for task in TRAIN if task.template == "alarm" and task.params["layout"] == layout]
        assert {task.params["hour"] for task in alarms} == set(quickstart.HOURS)
        assert {task.params["minute"] for task in alarms} == set(quickstart.MINUTES)


def test_layouts_are_those_of_the_split() -> None:
    for task in TASKS:
        unseen = task.split == "unseen_layout"
        assert (task.params["layout"] == quickstart.UNSEEN_LAYOUT) == unseen


def test_hours_say_nothing_about_minutes_in_a_layout() -> None:
    """A shortcut such as "minute follows from hour" must not fit the training times."""
    for layout in quickstart.LAYOUTS:
        alarms = [
            task.params for task in TRAIN if task.template == "alarm" and task.params["layout"] == layout
        ]
        steps = {(params["minute"] - 5 * params["hour"]) % 60 for params in alarms}
        assert len(steps) >= 6


def test_the_vocabulary_covers_goals_and_typed_text() -> None:
    words = quickstart.vocabulary()
    assert words == sorted(set(words))
    assert len(words) <= 150
    assert {"Turn", "Wi", "-", "Fi", "7", ":", "05", "Maria", "shoes", "purple"} <= set(words)
