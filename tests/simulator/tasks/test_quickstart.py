"""The quickstart suite: solvable, unsolved at its start, and honestly split."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.tasks.suites import quickstart

TASKS = load_suite("quickstart")
TRAIN = [task for task in TASKS if task.split == "train"]
HELD_OUT = [task for task in TASKS if task.split != "train"]
LAYOUTS = {
    "train": set(quickstart.LAYOUTS),
    "val": set(quickstart.LAYOUTS),
    "test": set(quickstart.LAYOUTS),
    "unseen_layout": {quickstart.UNSEEN_LAYOUT},
    "drift": {quickstart.DRIFT_LAYOUT},
    "test_drift": {quickstart.DRIFT_LAYOUT},
}


def key(task: Task) -> str:
    return json.dumps([task.template, task.params], sort_keys=True)


@pytest.mark.parametrize(("template", "what"), [("open_app", "app"), ("toggle", "setting")])
def test_training_shows_each_target_equally_often_on_each_layout(template: str, what: str) -> None:
    shown = Counter((task.params["layout"], task.params[what]) for task in TRAIN if task.template == template)
    assert len(shown) == len(quickstart.LAYOUTS) * 5
    assert len(set(shown.values())) == 1


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


def test_every_part_is_trained_on_in_every_layout_that_can_show_it() -> None:
    def parts(tasks: list[Task]) -> set[tuple[str, str, object]]:
        found: set[tuple[str, str, object]] = set()
        for task in tasks:
            template = "contact" if task.template == "star" else task.template  # they share the names
            for name, value in task.params.items():
                words = value.split() if name == "query" else [json.dumps(value)]
                found |= {(template, name, word) for word in words}
        return found

    assert {part for part in parts(HELD_OUT) - parts(TRAIN) if part[1] != "layout"} == set()
    for split in ("train", "unseen_layout", "drift", "test_drift"):
        for template in quickstart.COUNTS:
            chosen = [task for task in TASKS if (task.template, task.split) == (template, split)]
            assert {task.params["layout"] for task in chosen} == LAYOUTS[split]
    for layout in quickstart.LAYOUTS:
        alarms = [task for task in TRAIN if task.template == "alarm" and task.params["layout"] == layout]
        assert {task.params["hour"] for task in alarms} == set(quickstart.HOURS)
        assert {task.params["minute"] for task in alarms} == set(quickstart.MINUTES)


def test_what_is_measured_on_the_drift_layout_is_trained_there_one_part_away() -> None:
    def parts(split: str, template: str, part: str) -> set[object]:
        chosen = [task for task in TASKS if (task.split, task.template) == (split, template)]
        return {task.params[part] for task in chosen}

    for template, part in (
        ("open_app", "app"),
        ("toggle", "setting"),
        ("alarm", "hour"),
        ("alarm", "minute"),
    ):
        assert parts("test_drift", template, part) <= parts("drift", template, part)
    for template, other in (("contact", "star"), ("star", "contact")):
        held = parts("test_drift", template, "name")
        assert held.isdisjoint(parts("drift", template, "name"))
        assert held <= parts("drift", other, "name")


def test_hours_say_nothing_about_minutes_in_a_layout() -> None:
    """A shortcut such as "minute follows from hour" must not fit the training times."""
    for layout in quickstart.LAYOUTS:
        alarms = [
            task.params for task in TRAIN if task.template == "alarm" and task.params["layout"] == layout
        ]
        steps = {(params["minute"] - 5 * params["hour"]) % 60 for params in alarms}
        assert len(steps) >= 6
        for hour in quickstart.HOURS:
            assert len({params["minute"] for params in alarms if params["hour"] == hour}) >= 2


def test_the_vocabulary_covers_goals_and_typed_text() -> None:
    words = quickstart.vocabulary()
    assert words == sorted(set(words))
    assert len(words) <= 150
    assert {"Turn", "Wi", "-", "Fi", "7", ":", "Maria", "shoes", "purple", "favourites"} <= set(words)
    assert {f"{minute:02d}" for minute in quickstart.MINUTES} <= set(words)
