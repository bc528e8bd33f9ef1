"""The same instances twice: McNemar's test and Tango's interval, by published values and a slow search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.core.types import Fault, Outcome
from distrl.evaluator.paired import compare_pairs, mcnemar, tango
from distrl.evaluator.statistics import EpisodeResult

COUNTS = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)).filter(lambda c: sum(c) > 0)


def result(task: int, success: bool, seed: int = 0, fault: Fault = Fault.NONE) -> EpisodeResult:
    return EpisodeResult(
        task_id=str(task),
        template="t",
        split="test",
        trajectory_id="x",
        success=success,
        score=float(success),
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
        fault=fault,
        num_steps=1,
        num_invalid=0,
        num_repeats=0,
        reward=0.0,
        duration_s=1.0,
        seed=seed,
    )


# Fagerland, Lydersen, Laake (2014), "Recommended tests and confidence intervals for paired binomial
# proportions", airway hyper-responsiveness before and after: 1 and 7 of 21 changed.
def test_published_values() -> None:
    interval = tango(1, 7, 21)
    assert (interval.low, interval.high) == (pytest.approx(-0.517, abs=5e-4), pytest.approx(-0.026, abs=5e-4))
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)


def test_mcnemar_without_changes_says_nothing() -> None:
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0
    assert mcnemar(0, 6) == mcnemar(6, 0) == 2 / 64
    with pytest.raises(ValueError, match="not be negative"):
        mcnemar(-1, 2)


def slow_score(gained: int, lost: int, n: int, delta: float) -> float:
    """Z(Δ) with the likeliest probability of a loss found by trying many."""
    q = np.linspace(max(0.0, -delta), (1 - delta) / 2, 40_001)[1:-1]
    likelihood = gained * np.log(q + delta) + lost * np.log(q)
    likelihood += (n - gained - lost) * np.log(1 - 2 * q - delta)
    best = float(q[int(np.argmax(likelihood))])
    return (gained - lost - n * delta) / math.sqrt(n * (2 * best + delta * (1 - delta)))


@pytest.mark.parametrize(("gained", "lost", "n"), [(9, 2, 44), (1, 7, 21), (15, 14, 56), (3, 1, 128)])
def test_the_bounds_are_where_the_score_is_z(gained: int, lost: int, n: int) -> None:
    interval = tango(gained, lost, n)
    assert slow_score(gained, lost, n, interval.low) == pytest.approx(1.96, abs=5e-3)
    assert slow_score(gained, lost, n, interval.high) == pytest.approx(-1.96, abs=5e-3)


@given(COUNTS)
def test_the_interval_holds_the_gain_and_mirrors(counts: tuple[int, int, int]) -> None:
    gained, lost, same = counts
    n = sum(counts)
    interval, mirrored = tango(gained, lost, n), tango(lost, gained, n)
    assert -1.0 <= interval.low <= (gained - lost) / n + 1e-9
    assert (gained - lost) / n - 1e-9 <= interval.high <= 1.0
    assert interval.low == pytest.approx(-mirrored.high, abs=1e-6)
    assert same < 0 or interval.low < interval.high


@pytest.mark.parametrize("counts", [(1, 1, 1), (-1, 0, 4), (0, 0, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="gained"):
        tango(*counts)


def test_pairs_are_tasks_that_both_measured() -> None:
    before = [result(0, False), result(1, True), result(2, True), result(3, False)]
    after = [result(0, True), result(1, True), result(2, False), result(3, True, fault=Fault.DEVICE)]
    paired = compare_pairs(before, [*after, result(9, True)])
    assert paired is not None
    assert (paired.both, paired.lost, paired.gained, paired.neither) == (1, 1, 1, 0)
    assert (paired.n, paired.unpaired, paired.gain) == (3, 2, 0.0)
    assert paired.p_value == 1.0
    assert compare_pairs(before, [result(9, True)]) is None


def test_tasks_that_changed_in_between_are_left_out() -> None:
    before, after = ([result(i, success) for i in range(2)] for success in (False, True))
    for number, (old, new) in enumerate([("x", "x"), ("x", "y")]):
        before[number] = before[number].model_copy(update={"digest": old})
        after[number] = after[number].model_copy(update={"digest": new})
    paired = compare_pairs(before, after)
    assert paired is not None
    assert (paired.n, paired.gained, paired.unpaired) == (1, 1, 1)
    assert compare_pairs(before[1:2], after[1:2]) is None


def test_repetitions_of_a_task_make_no_interval_narrower() -> None:
    once = compare_pairs([result(i, False) for i in range(10)], [result(i, i < 5) for i in range(10)])
    thrice = compare_pairs(
        [result(i, False, seed) for i in range(10) for seed in range(3)],
        [result(i, i < 5, seed) for i in range(10) for seed in range(3)],
    )
    assert once is not None
    assert thrice is not None
    assert (thrice.gained, thrice.n, thrice.gain) == (15, 30, 0.5)
    assert thrice.interval.low == pytest.approx(once.interval.low)
    assert thrice.interval.high == pytest.approx(once.interval.high)
    assert (once.p_value, thrice.p_value) == (2 / 32, None)
