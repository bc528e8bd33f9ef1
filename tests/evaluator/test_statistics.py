"""The numbers: Wilson's and Newcombe's intervals against known values, summaries against counting by hand."""

from __future__ import annotations

import math
import random

import pytest
from episode_factory import make_episode, make_step, make_task, screen
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.core.types import ActionRecord, Fault
from distrl.evaluator.results import episode_result
from distrl.evaluator.statistics import (
    EpisodeResult,
    Interval,
    count_repeats,
    effective_trials,
    grouped,
    newcombe,
    over_repeats,
    summarise,
    t_interval,
    t_quantile,
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


def test_wilson_without_trials_and_of_impossible_counts() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    for successes, trials in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="between 0 and trials"):
            wilson(successes, trials)


@settings(deadline=None)
@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_its_equation_and_mirrors(counts: tuple[int, int]) -> None:
    k, n = counts
    p, interval, mirrored = k / n, wilson(k, n), wilson(n - k, n)
    assert 0.0 <= interval.low <= p <= interval.high <= 1.0
    assert interval.low == pytest.approx(1.0 - mirrored.high, abs=1e-12)
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


def test_templates_are_summarised_apart() -> None:
    summaries = grouped(results({"b": (0, 3), "a": (2, 2)}), lambda one: one.template)
    assert [(name, s.successes, s.episodes) for name, s in summaries.items()] == [("a", 2, 2), ("b", 0, 3)]


def test_faulted_episodes_count_for_nothing() -> None:
    good, faulted = results({"a": (1, 2)}), results({"a": (0, 5)}, fault=Fault.DEVICE)
    assert summarise([*good, *faulted]) == summarise(good)
    assert summarise(faulted).episodes == 0
    assert summarise(faulted).success_rate == 0.0


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=3))
def test_rates_are_shares(counts: list[tuple[int, int]]) -> None:
    pairs = {f"t{i}": (min(k, n), n) for i, (k, n) in enumerate(counts)}
    summary = summarise(results(pairs, num_steps=2))
    for rate in (summary.success_rate, summary.invalid_rate, summary.repeat_rate, summary.mean_score):
        assert 0.0 <= rate <= 1.0
    assert sum(summary.outcomes.values()) == summary.episodes
    assert math.isclose(summary.success_rate * summary.episodes, summary.successes)


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


def test_repeats_have_the_rates_of_their_seeds_and_an_interval_of_rates() -> None:
    made = [one.model_copy(update={"seed": seed}) for seed in (0, 1) for one in results({"t": (seed, 2)})]
    repeats = over_repeats(made)
    assert repeats is not None
    assert (repeats.seeds, repeats.rates, repeats.mean) == ((0, 1), (0.0, 0.5), 0.25)
    assert repeats.sd == pytest.approx(0.5 / 2**0.5)
    assert repeats.interval == Interval(low=0.0, high=1.0), "ν = 1: 0.25 ± 3.2"
    assert over_repeats(made[:2]) is None


def test_t_interval_of_a_known_sample() -> None:
    # Mean 0.5, standard deviation 0.1: 0.5 ± 2.7764 · 0.1 / √5.
    interval = t_interval([0.5 - 0.1 * 2**0.5, 0.5, 0.5, 0.5, 0.5 + 0.1 * 2**0.5])
    assert interval is not None
    assert interval.low == pytest.approx(0.5 - 2.7764 * 0.1 / 5**0.5, abs=1e-5)
    assert interval.high == pytest.approx(0.5 + 2.7764 * 0.1 / 5**0.5, abs=1e-5)
    assert t_interval([0.5]) is None


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
