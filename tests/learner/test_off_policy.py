"""How far off-policy steps are, by step and by staleness, and the ages of what training uses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from whole_batch import evaluate

from distrl.configs.learner import LearnerConfig
from distrl.learner import losses, off_policy
from distrl.learner.algorithms import build_algorithm
from distrl.learner.off_policy import Freshness, StepStats

MASK = torch.tensor([[True, True], [True, False], [True, True]])
RATIOS = [(2.0, 0.5), (3.0,), (0.25, 0.5)]
"""Of the tokens; those of the actions are 1, 3 and 1/8."""


def stats(level: losses.RatioLevel) -> StepStats:
    logs = torch.zeros(3, 2)
    for n, row in enumerate(RATIOS):
        logs[n, : len(row)] = torch.tensor(row).log()
    logs[1, 1] = 50.0  # padding
    ratios = losses.importance_ratios(logs, torch.zeros(3, 2), MASK)
    weighed = {"clipped_fraction": ratios.at(level) > 1.5}
    return StepStats.of(torch.tensor([0, 0, 1]), ratios, MASK, level, weighed)


def test_numbers_of_whole_actions() -> None:
    found = off_policy.metrics(stats("action"))
    assert found == pytest.approx(
        {
            "off_policy/ratio_mean": 4.125 / 3,
            "off_policy/ratio_max": 3.0,
            "off_policy/ess": 4.125**2 / (3 * (1 + 9 + 1 / 64)),
            "off_policy/token_log_ratio_abs": (2 * math.log(2) + math.log(3) + math.log(8)) / 5,
            "off_policy/clipped_fraction": 1 / 3,
        }
    )


def test_numbers_of_tokens() -> None:
    found = off_policy.metrics(stats("token"))
    assert found["off_policy/clipped_fraction"] == pytest.approx(2 / 5)
    assert found["off_policy/token_ess"] == pytest.approx(6.25**2 / (5 * (4 + 0.25 + 9 + 0.0625 + 0.25)))
    assert found["off_policy/ess"] == pytest.approx(4.125**2 / (3 * (1 + 9 + 1 / 64))), (
        "per action all the same"
    )


@pytest.fixture
def measure(toy, policy, critic):
    """The metrics on four one-step episodes of ρ 3, 1.5, 0.5 and 0.1; the first two won."""

    def metrics_of(name: str, options: dict[str, object]) -> dict[str, float]:
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.zero_()
        steps = [toy.step(1, (2,), (-1.0,), image=1, outcome=won) for won in (1.0, 1.0, 0.0, 0.0)]
        batch = toy.batch(policy, *(toy.trajectory(str(n), [step]) for n, step in enumerate(steps)))
        s = batch.steps
        with torch.no_grad():
            now = policy.score(s.prompts, s.completions, s.token_mask, s.temperature).logprobs
        s.behaviour_logprobs = now - torch.tensor([[3.0], [1.5], [0.5], [0.1]]).log()
        batch.group_mean, batch.group_std = torch.full((4,), 0.5), torch.full((4,), 0.5)
        batch.group_count = torch.full((4,), 4)
        config = LearnerConfig.model_validate({"algorithm": {"kind": name, **options}})
        found = evaluate(build_algorithm(config), policy, critic, batch).metrics
        names = ("clipped_fraction", "silenced_fraction", "damped_fraction", "capped_fraction", "trust")
        names += ("trace_cut_fraction", "trace_clipped_fraction")
        return {n: found[f"off_policy/{n}"] for n in names if f"off_policy/{n}" in found}

    return metrics_of


LOGS = [math.log(3.0), math.log(1.5), math.log(0.5), math.log(0.1)]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("aride", {"rho_max": 2.0}, {"clipped_fraction": 0.25, "trace_cut_fraction": 0.5}),
        (
            "aride",  # 3 with A > 0 is beyond 1 + ε_high = 2; both failures are below 1 − ε
            {"rho_max": 2.0, "policy_clip": 0.2, "policy_clip_high": 1.0},
            {"clipped_fraction": 0.25, "silenced_fraction": 0.75, "trace_cut_fraction": 0.5},
        ),
        ("aride", {"returns": "gae"}, {"clipped_fraction": 0.0}),
        ("ppo", {}, {"clipped_fraction": 1.0}),
        ("ppo", {"clip": 0.6, "clip_high": 1.0}, {"clipped_fraction": 0.5}),
        ("grpo", {"ratio_level": "action", "clip": 0.6, "clip_high": 0.6}, {"clipped_fraction": 0.5}),
        (
            "gipo",
            {"sigma": 0.5},
            {
                "trust": sum(math.exp(-0.5 * (x / 0.5) ** 2) for x in LOGS) / 4,
                "damped_fraction": 0.75,
            },
        ),
        (
            "vtrace",
            {"rho_bar": 2.0, "c_bar": 1.0},
            {"clipped_fraction": 0.25, "trace_cut_fraction": 0.5, "trace_clipped_fraction": 0.5},
        ),
        ("digirl", {}, {}),
        ("bc", {}, {}),
        ("filtered-bc", {}, {}),
    ],
)
def test_each_objective_counts_what_it_does_to_ratios(measure, name, options, expected) -> None:
    assert measure(name, options) == pytest.approx(expected)


def steps(row, ratio, units=None, **sums) -> StepStats:
    """Steps with these ratios; their units and sums as given, one unit each by default."""
    rho, ones = torch.tensor(ratio).double(), torch.ones(len(ratio)).double()
    columns = {
        "ratio": rho,
        "log_ratio": rho.log().abs(),
        "units": ones if units is None else torch.tensor(units).double(),
    }
    return StepStats(torch.tensor(row), columns, {name: torch.tensor(x).double() for name, x in sums.items()})


BOTH = np.array([True, True])  # trajectories are real


def test_means_are_over_all_steps_of_a_bucket_not_over_batches() -> None:
    fresh = Freshness()
    fresh.trained(
        np.array([0, 2]), np.array([1.0, 0.0]), steps([0, 1], [1.0, 2.0], clipped_fraction=[0, 1]), BOTH
    )
    fresh.trained(
        np.array([3, 2]),
        np.array([1.0, 1.0]),
        steps([0, 0, 1], [0.5, 1.0, 4.0], clipped_fraction=[0, 0, 1]),
        BOTH,
    )
    table = fresh.take()
    assert {name: value for name, value in table.items() if "/0/" in name} == {
        "staleness/0/trajectories": 1,
        "staleness/0/steps": 1,
        "staleness/0/success": 1.0,
        "staleness/0/ratio_mean": 1.0,
        "staleness/0/log_ratio_abs": 0.0,
        "staleness/0/ess": 1.0,
        "staleness/0/clipped_fraction": 0.0,
    }
    assert {n.removeprefix("staleness/2-3/"): v for n, v in table.items() if "/2-3/" in n} == pytest.approx(
        {
            "trajectories": 3,
            "steps": 4,
            "success": 2 / 3,
            "ratio_mean": 7.5 / 4,
            "log_ratio_abs": np.log([2.0, 2.0, 1.0, 4.0]).sum() / 4,
            "ess": 7.5**2 / (4 * (4 + 0.25 + 1 + 16)),
            "clipped_fraction": 0.5,
        }
    )
    assert len(table) == 14, "buckets without trajectories take no place"


def test_shares_of_tokens_are_divided_by_tokens() -> None:
    fresh = Freshness()
    stats = steps([0, 0], [1.0, 1.0], units=[3, 1], clipped_fraction=[1, 0])
    fresh.trained(np.array([1]), np.array([0.0]), stats, np.array([True]))
    table = fresh.take()
    assert table["staleness/1/clipped_fraction"] == 0.25
    assert (table["staleness/1/tokens"], table["staleness/1/steps"]) == (4, 2)


def test_what_a_skipped_minibatch_was_of_does_not_count() -> None:
    fresh = Freshness()
    fresh.trained(np.array([0, 4]), np.array([1.0, 0.0]), steps([0], [1.0]), BOTH)
    table = fresh.take()
    assert table["staleness/0/trajectories"] == 1
    assert len(table) == 6, "the bucket of the other is empty"
