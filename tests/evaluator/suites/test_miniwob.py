"""The miniwob suite: its data, and that the real pages agree with it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from distrl.core.errors import TaskError
from distrl.evaluator.suites import miniwob
from distrl.workers.envs.browser import BrowserEnv
from distrl.workers.envs.chromium import Chromium
from distrl.workers.envs.miniwob import SIZE


def test_ids_and_instances_are_unique_and_splits_are_disjoint() -> None:
    tasks = miniwob.tasks()
    assert len({task.id for task in tasks}) == len(tasks)
    assert len({(task.template, task.seed) for task in tasks}) == len(tasks)
    counts = Counter((task.template, task.split) for task in tasks)
    assert counts == {
        (page, split): count for page in miniwob.MAX_STEPS for split, count in miniwob.COUNTS.items()
    }


def test_a_split_is_a_part_of_the_whole_in_which_pages_take_turns() -> None:
    test = miniwob.tasks("test")
    assert test == [task for task in miniwob.tasks() if task.split == "test"]
    assert [task.template for task in test[: len(miniwob.MAX_STEPS)]] == list(miniwob.MAX_STEPS)


@pytest.mark.browser
@pytest.mark.needs("miniwob", "selenium")
def test_the_pages_write_the_goals_of_the_suite_and_no_instance_is_in_two_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser = Chromium(SIZE)
    try:
        # Five seeds of each split; the whole file is checked when it is made.
        monkeypatch.setattr(miniwob, "COUNTS", dict.fromkeys(miniwob.COUNTS, 5))
        known = json.loads(miniwob.GOALS_FILE.read_text(encoding="utf-8"))
        for page, made in miniwob.goals_by_page(browser).items():
            for split in miniwob.COUNTS:
                goals, stored = made["goals"], known[page]
                assert [goals[at] for at in made[split]] == [stored["goals"][at] for at in stored[split][:5]]
        monkeypatch.setattr(miniwob, "seeds", lambda split: range(3))
        with pytest.raises(TaskError, match="is in two splits"):
            miniwob.goals_by_page(browser)
    finally:
        browser.close()


@pytest.mark.browser
@pytest.mark.needs("miniwob", "selenium")
def test_the_expert_solves_tasks_of_every_page_in_time_and_the_page_shows_the_goal() -> None:
    env = BrowserEnv()
    try:
        for task in miniwob.tasks("val")[:6]:
            env.reset(task)
            assert env.browser is not None
            assert env.browser.run("return core.getUtterance()") == task.goal
            used = 1
            while not env.step(env.expert_action()).done:
                used += 1
            assert (env.evaluate(), used < task.max_steps) == (1.0, True), task.id
    finally:
        env.close()
