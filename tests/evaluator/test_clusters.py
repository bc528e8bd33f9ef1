"""How many independent trials repeated trials are worth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.evaluator.statistics import effective_trials, wilson


def test_trials_that_are_all_alike_are_worth_one_for_each_task() -> None:
    assert effective_trials([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]) == 4
    assert effective_trials([[1, 1], [1, 1], [1, 1]]) == 3  # nothing varies, so nothing is known
    assert effective_trials([[1, 0, 1]]) == 1


def test_single_trials_are_worth_what_they_are() -> None:
    assert effective_trials([[1], [0], [1]]) == 3
    assert effective_trials([]) == 0


def test_it_is_the_ratio_of_the_two_variances() -> None:
    tasks = [[1, 1], [0, 0], [1, 0], [0, 0]]
    mean = 3 / 8
    over_trials = 3 * (1 - mean) ** 2 + 5 * mean**2
    over_tasks = 4 / 3 * ((2 - 2 * mean) ** 2 + 2 * (2 * mean) ** 2 + (1 - 2 * mean) ** 2)
    assert effective_trials(tasks) == pytest.approx(8 * over_trials / over_tasks)


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=4), max_size=8))
def test_it_is_between_the_tasks_and_the_trials(tasks: list[list[float]]) -> None:
    assert len(tasks) <= effective_trials(tasks) + 1e-9
    assert effective_trials(tasks) <= sum(map(len, tasks)) + 1e-9


@pytest.mark.parametrize("alike", [0.0, 0.3, 1.0])
def test_intervals_of_repeated_tasks_hold_their_level(alike: float) -> None:
    """Of 95%, however alike the trials of a task are."""
    rng, rate, runs, covered, narrower = random.Random(4), 0.15, 400, 0, 0
    for _ in range(runs):
        tasks = []
        for _ in range(60):
            is_same, first = rng.random() < alike, rng.random() < rate
            tasks.append([float(first if is_same else rng.random() < rate) for _ in range(3)])
        worth, successes = effective_trials(tasks), sum(map(sum, tasks))
        interval = wilson(successes * worth / 180, worth)
        covered += interval.low <= rate <= interval.high
        narrower += worth > 1.3 * 60
    assert 0.92 <= covered / runs <= 0.985
    assert (narrower > 0.8 * runs) == (alike < 1.0)
