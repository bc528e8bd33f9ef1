"""Cohen's κ and its error, against resampling."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from distrl.evaluator.kappa import cohen_kappa

Pair = tuple[bool, bool]


def apart(both: int, first_only: int, second_only: int, neither: int) -> list[list[Pair]]:
    """As many pairs, each of a task of its own."""
    cells = {(True, True): both, (True, False): first_only, (False, True): second_only}
    return [[pair] for pair, count in {**cells, (False, False): neither}.items() for _ in range(count)]


def spread(tasks: Sequence[Sequence[Pair]], rng: random.Random, times: int) -> float:
    """The standard deviation of κ over tasks drawn with replacement."""
    samples = []
    for _ in range(times):
        again = cohen_kappa(rng.choices(tasks, k=len(tasks)))
        assert again is not None
        samples.append(again.value)
    mean = sum(samples) / times
    return math.sqrt(sum((sample - mean) ** 2 for sample in samples) / times)


def test_its_error_is_that_of_resampling() -> None:
    tasks = apart(40, 9, 6, 45)
    found = cohen_kappa(tasks)
    assert found is not None
    assert found.error == pytest.approx(spread(tasks, random.Random(1), 3000), rel=0.1)


def test_its_error_is_that_of_resampling_tasks_where_errors_stick_to_them() -> None:
    rng, tasks = random.Random(5), []
    for _ in range(120):
        truth, is_hard = rng.random() < 0.4, rng.random() < 0.15
        tasks.append([(truth is not (rng.random() < (0.8 if is_hard else 0.05)), truth) for _ in range(4)])
    found = cohen_kappa(tasks)
    asunder = cohen_kappa([[pair] for task in tasks for pair in task])
    assert found is not None
    assert asunder is not None
    assert found.value == asunder.value
    assert found.error == pytest.approx(spread(tasks, rng, 2000), rel=0.12)
    assert found.error > 1.4 * asunder.error


@pytest.mark.parametrize("table", [(0, 0, 0, 0), (7, 0, 0, 0), (7, 0, 2, 0), (0, 7, 0, 2), (4, 3, 0, 0)])
def test_of_one_answer_it_is_not_defined(table: tuple[int, int, int, int]) -> None:
    assert cohen_kappa(apart(*table)) is None


def test_who_is_always_right_and_who_never_is() -> None:
    right, wrong = cohen_kappa(apart(5, 0, 0, 5)), cohen_kappa(apart(0, 5, 5, 0))
    assert right is not None
    assert right.value == pytest.approx(1.0)
    assert right.interval is None
    assert wrong is not None
    assert wrong.value == pytest.approx(-1.0)
