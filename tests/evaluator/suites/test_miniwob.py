"""The miniwob suite: its data, and that the real pages agree with it."""

from __future__ import annotations

import re

import pytest

from distrl.evaluator.suites import load_suite, miniwob
from distrl.workers.envs.browser import BrowserEnv


def test_ids_and_instances_are_unique_and_splits_are_disjoint() -> None:
    tasks = miniwob.tasks()
    assert len({task.id for task in tasks}) == len(tasks)
    assert len({(task.template, task.seed) for task in tasks}) == len(tasks)
    for split in ("test", "unseen_template"):
        assert len(load_suite("miniwob", split)) >= 400


def test_pages_of_the_unseen_templates_are_nowhere_else() -> None:
    pages = {split: {task.template for task in load_suite("miniwob", split)} for split in miniwob.COUNTS}
    assert pages["unseen_template"] == set(miniwob.UNSEEN)
    assert pages["train"] == pages["test"] >= pages["val"]
    assert not pages["train"] & pages["unseen_template"]
    assert len(pages["train"]) >= 60


def test_pages_take_turns() -> None:
    first = [task.template for task in load_suite("miniwob", "test")[:60]]
    assert len(set(first)) == 60


def test_a_pattern_keeps_what_all_goals_share() -> None:
    assert miniwob.pattern(["Select a, b and click Submit.", "Select x and click Submit."]) == (
        "Select … and click Submit."
    )


def test_the_vocabulary_has_the_words_of_the_patterns_but_few_names() -> None:
    words = set(miniwob.vocabulary())
    for page in miniwob.pages("train"):
        pattern = miniwob._data()["pages"][page]["goal"].replace("…", " ")
        assert set(re.findall(r"[^\W\d_]+|[^\w\s]", pattern.lower())) <= words, page
    assert len(words) < 1000
    assert {"blue", "triangle", "submit", "\t", "\b", "→"} <= words
    assert not {"adelaide", "terminals"} & words


@pytest.mark.browser
@pytest.mark.needs("miniwob", "selenium")
def test_the_file_describes_the_pages_and_tasks_can_be_solved_in_time() -> None:
    made = miniwob.describe_pages(["click-button"])
    about = made["pages"]["click-button"]
    assert about["goal"] == "Click on the … button."
    assert about["left_out"] == []
    assert {"click", "on", "the", "button"} <= set(made["words"])
    env = BrowserEnv()
    try:
        for task in load_suite("miniwob", "val")[:8]:
            env.reset(task)
            shared = [word for word in task.goal.split() if word != "…"]
            assert all(word in env.goal.split() for word in shared)
            used = 1
            while not env.step(env.expert_action()).done:
                used += 1
            assert (env.evaluate(), used <= task.max_steps) == (1.0, True), task.id
    finally:
        env.close()
