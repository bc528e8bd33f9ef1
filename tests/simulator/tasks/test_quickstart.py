"""The quickstart suite is honestly split."""

from __future__ import annotations

import itertools
import json

from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.tasks.suites import quickstart

TASKS = load_suite("quickstart")
TRAIN = [task for task in TASKS if task.split == "train"]
HELD_OUT = [task for task in TASKS if task.split != "train"]


def key(task: Task) -> str:
    return json.dumps([task.template, task.params], sort_keys=True)


def test_no_combination_is_in_two_splits() -> None:
    splits = [{key(task) for task in TASKS if task.split == split} for split in quickstart.SPLITS]
    for one, two in itertools.combinations(splits, 2):
        assert one.isdisjoint(two)


def test_held_out_queries_occur_in_no_training_layout() -> None:
    def values(split: str) -> set[object]:
        tasks = [task for task in TASKS if task.split == split]
        return {task.params["query"] for task in tasks if task.template == "shop_search"}

    assert values("train").isdisjoint(values("val") | values("test"))
    assert values("val").isdisjoint(values("test"))
    assert values("unseen_layout") <= values("test")
    assert values("drift") <= values("train")
    assert values("test_drift") <= values("test")


def test_a_held_out_time_is_trained_on_in_the_three_other_layouts() -> None:
    def places(*splits: str) -> set[tuple[int, int, int]]:
        return {
            (task.params["layout"], task.params["hour"], task.params["minute"])
            for task in TASKS
            if task.template == "alarm" and task.split in splits
        }

    held, trained = places("val", "test"), places("train")
    assert len({time[1:] for time in held}) == len(held) == 20
    for layout, *time in held:
        assert {(other, *time) for other in quickstart.LAYOUTS} - trained == {(layout, *time)}


def test_held_out_combinations_come_one_part_away_from_training() -> None:
    """Of the other templates, the same layout and app, setting or name is trained on in another way."""

    def pairs(tasks: list[Task], template: str, part: str) -> set[tuple[int, str]]:
        return {(task.params["layout"], task.params[part]) for task in tasks if task.template == template}

    val_and_test = [task for task in HELD_OUT if task.split in ("val", "test")]
    for template, part, trained_by in [
        ("open_app", "app", "open_app"),
        ("toggle", "setting", "toggle"),
        ("contact", "name", "star"),
        ("star", "name", "contact"),
    ]:
        assert pairs(val_and_test, template, part) <= pairs(TRAIN, trained_by, part)
    for template in ("contact", "star"):
        assert pairs(val_and_test, template, "name").isdisjoint(pairs(TRAIN, template, "name"))


def test_the_vocabulary_covers_goals_and_typed_text() -> None:
    words = quickstart.vocabulary()
    assert words == sorted(set(words))
    assert len(words) <= 150
    assert {"Turn", "Wi", "-", "Fi", "7", ":", "Maria", "shoes", "purple", "favourites"} <= set(words)
    assert {f"{minute:02d}" for minute in quickstart.MINUTES} <= set(words)
