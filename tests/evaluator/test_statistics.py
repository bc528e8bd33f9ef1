"""The numbers: Wilson's and Newcombe's intervals against known values, summaries against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from episode_factory import make_episode, make_step, make_task, screen
from finished_runs import episodes
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.core.types import ActionRecord, Fault
from distrl.evaluator.results import episode_result
from distrl.evaluator.statistics import (
    EpisodeResult,
    compare_pairs,
    count_repeats,
    effective_trials,
    mcnemar,
    newcombe,
    summarise,
    t_interval,
    t_quantile,
    tango,
    wilson,
)


# Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_published_values(successes: int, trials: int, low: float, high: float) -> None:
    interval = wilson(successes, trials)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@settings(deadline=None)
@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_its_equation_and_mirrors(counts: tuple[int, int]) -> None:
    k, n = counts
    p, interval, mirrored = k / n, wilson(k, n), wilson(n - k, n)
    assert 0.0 <= interval.low <= p <= interval.high <= 1.0
    assert interval.low == pytest.approx(1.0 - mirrored.high, abs=1e-12)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    # The bounds are the θ with (p − θ)² = z² θ (1 − θ) / n.
    for theta in (interval.low, interval.high):
        z = 1.959963984540054
        assert (p - theta) ** 2 == pytest.approx(z * z * theta * (1 - theta) / n, abs=1e-12)


def results(
    counts: dict[str, tuple[int, int]], fault: Fault = Fault.NONE, num_steps: int = 3
) -> list[EpisodeResult]:
    """Episodes with (successes, trials) per template."""
    made = []
    for template, (successes, trials) in counts.items():
        for i in range(trials):
            trajectory, _ = make_episode(make_task(i, template), i < successes, num_steps, fault=fault)
            made.append(episode_result(trajectory))
    return made


def test_newcombe_gives_published_value() -> None:
    # Newcombe (1998), "Interval estimation for the difference between independent proportions", method 10:
    # 56/70 against 48/80 gives 0.0524 to 0.3339.
    before, after = summarise(results({"t": (48, 80)})), summarise(results({"t": (56, 70)}))
    interval = newcombe(before, after)
    assert interval.low == pytest.approx(0.0524, abs=5e-5)
    assert interval.high == pytest.approx(0.3339, abs=5e-5)


def test_summary_counts_by_hand() -> None:
    summary = summarise(results({"a": (1, 2), "b": (2, 2)}))
    assert (summary.episodes, summary.successes, summary.success_rate) == (4, 3, 0.75)
    assert summary.outcomes == {"step-limit": 1, "success": 3}
    assert summary.mean_steps == 3.0
    # Only the failure repeats: its third tap equals its second on the same screen.
    assert summary.repeat_rate == pytest.approx(1 / 12)
    assert summary.mean_reward == pytest.approx((3 * 1.0 - 0.05) / 4)
    assert summary.interval == wilson(3, 4)


def test_repeats_need_the_same_action_on_the_same_screen() -> None:
    here, there = screen(0), screen(1)
    tap, other = ActionRecord(kind="tap", point=(0.5, 0.5)), ActionRecord(kind="tap", point=(0.5, 0.9))
    invalid = ActionRecord(kind="invalid", text="?", reason="no action")
    steps = [make_step(a, s) for a, s in [(tap, here), (tap, here), (other, here), (other, there)]]
    assert count_repeats(steps) == 1
    # An invalid action is no repetition and does not end one.
    steps = [make_step(a, s) for a, s in [(tap, here), (invalid, here), (invalid, here), (tap, here)]]
    assert count_repeats(steps) == 1


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (30, 2.0423), (120, 1.9799)],
)
def test_t_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-5)


def test_t_interval_of_a_known_sample() -> None:
    # Mean 0.5, standard deviation 0.1: 0.5 ± 2.7764 · 0.1 / √5.
    interval = t_interval([0.5 - 0.1 * 2**0.5, 0.5, 0.5, 0.5, 0.5 + 0.1 * 2**0.5])
    assert interval is not None
    assert interval.low == pytest.approx(0.5 - 2.7764 * 0.1 / 5**0.5, abs=1e-5)
    assert interval.high == pytest.approx(0.5 + 2.7764 * 0.1 / 5**0.5, abs=1e-5)
    assert t_interval([0.5]) is t_interval([0.5, 0.5, 0.5]) is None


def test_effective_trials_of_trials_that_are_all_alike_or_single() -> None:
    assert effective_trials([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]) == 4
    assert effective_trials([[1, 1], [1, 1], [1, 1]]) == 3  # nothing varies, so nothing is known
    assert effective_trials([[1, 0, 1]]) == 1
    assert effective_trials([[1], [0], [1]]) == 3
    assert effective_trials([]) == 0


def test_it_is_the_ratio_of_the_two_variances() -> None:
    tasks = [[1, 1], [0, 0], [1, 0], [0, 0]]
    mean = 3 / 8
    over_trials = 3 * (1 - mean) ** 2 + 5 * mean**2
    over_tasks = 4 / 3 * ((2 - 2 * mean) ** 2 + 2 * (2 * mean) ** 2 + (1 - 2 * mean) ** 2)
    assert effective_trials(tasks) == pytest.approx(8 * over_trials / over_tasks)


def one(task: int, success: bool, seed: int = 0, fault: Fault = Fault.NONE) -> EpisodeResult:
    (made,) = episodes(int(success), of=1)
    return made.model_copy(update={"task_id": str(task), "seed": seed, "fault": fault})


# Fagerland, Lydersen, Laake (2014), "Recommended tests and confidence intervals for paired binomial
# proportions", airway hyper-responsiveness before and after: 1 and 7 of 21 changed.
def test_published_values() -> None:
    interval = tango(1, 7, 21)
    assert (interval.low, interval.high) == (pytest.approx(-0.517, abs=5e-4), pytest.approx(-0.026, abs=5e-4))
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)


def test_mcnemar_without_changes_says_nothing() -> None:
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0
    assert mcnemar(0, 6) == mcnemar(6, 0) == 2 / 64


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


def test_pairs_are_tasks_that_both_measured() -> None:
    before = [one(0, False), one(1, True), one(2, True), one(3, False)]
    after = [one(0, True), one(1, True), one(2, False), one(3, True, fault=Fault.DEVICE)]
    paired = compare_pairs(before, [*after, one(9, True)])
    assert paired is not None
    assert (paired.both, paired.lost, paired.gained, paired.neither) == (1, 1, 1, 0)
    assert (paired.n, paired.unpaired, paired.gain) == (3, 2, 0.0)
    assert paired.p_value == 1.0
    assert compare_pairs(before, [one(9, True)]) is None


def test_repetitions_of_a_task_make_no_interval_narrower() -> None:
    once = compare_pairs([one(i, False) for i in range(10)], [one(i, i < 5) for i in range(10)])
    thrice = compare_pairs(
        [one(i, False, seed) for i in range(10) for seed in range(3)],
        [one(i, i < 5, seed) for i in range(10) for seed in range(3)],
    )
    assert once is not None
    assert thrice is not None
    assert (thrice.gained, thrice.n, thrice.gain) == (15, 30, 0.5)
    assert thrice.interval.low == pytest.approx(once.interval.low)
    assert thrice.interval.high == pytest.approx(once.interval.high)
    assert (once.p_value, thrice.p_value) == (2 / 32, None)


@pytest.mark.needs("scipy")
def test_intervals_and_p_values_are_those_of_scipy() -> None:
    from scipy import stats

    for n in (1, 7, 56, 400):
        for k in {0, 1, n // 3, n}:
            theirs = stats.binomtest(k, n).proportion_ci(method="wilson")
            ours = wilson(k, n)
            assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
            assert mcnemar(k, n - k) == pytest.approx(stats.binomtest(k, n).pvalue, abs=1e-9)
    for freedom in (1, 2, 3, 4, 9, 30, 101):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
