"""benchmarks/appo_peers.py: keeping runs, the stop rule of peers, the numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from appo_peer import CONFIRMED_EPISODES, Trial
from appo_peers import Outcome, Point, Settings, load, save, summarise

from distrl.core.errors import RunDirectoryError

SETTINGS = Settings(
    env="Any-v0", seed=3, minutes=10.0, stop_at=200.0, eval_every=100, eval_episodes=5, cores=2
)
OUTCOME = Outcome(
    started_at=1_010.0,
    elapsed_s=100.0,
    env_steps=50_000,
    solved_s=80.0,
    solved_steps=40_000,
    final_return=230.0,
    training=(Point(10.0, 1_000, -150.0), Point(80.0, 40_000, 190.0)),
    validation=(Point(10.0, 1_000, -120.0), Point(80.0, 40_000, 230.0)),
    versions={"torch": "2.13.0"},
)


def solved(*times: float | None) -> list[Outcome]:
    return [dataclasses.replace(OUTCOME, solved_s=solved_s) for solved_s in times]


class Evaluations:
    """Stands in for greedy episodes: returns the given means in turn, and keeps what it was asked for."""

    def __init__(self, *means: float) -> None:
        self._means = iter(means)
        self.seeds: list[Sequence[int]] = []
        self.now = 0.0

    def __call__(self, act: object, seeds: Sequence[int]) -> float:
        self.seeds.append(seeds)
        self.now += 7.0  # evaluating takes time
        return next(self._means)

    def clock(self) -> float:
        return self.now


def zeros(observations: np.ndarray) -> np.ndarray:
    return np.zeros((len(observations), 1), np.float32)


def test_a_peer_is_over_when_a_candidate_is_confirmed() -> None:
    found = Evaluations(150.0, 210.0, 190.0, 195.0, 180.0, 220.0, 240.0)
    trial = Trial(SETTINGS, found, found.clock)
    trial.begin()
    found.now = 1.0
    assert not trial.is_over(100, float("nan"), zeros)  # validated: 150
    assert not trial.is_over(150, 10.0, zeros)  # nothing is due
    assert not trial.is_over(200, 20.0, zeros)  # validated: 210, confirmed: 190
    assert not trial.is_over(250, 205.0, zeros)  # a candidate by its training episodes, too soon after that
    assert not trial.is_over(300, 205.0, zeros)  # confirmed: 195
    assert not trial.is_over(350, 205.0, zeros)  # too soon again, but a validation is due: 180
    assert trial.is_over(400, 206.0, zeros)  # confirmed: 220
    outcome = trial.finish(zeros)
    assert (outcome.solved_s, outcome.solved_steps) == (1.0 + 5 * 7.0, 400)  # when the weights were there
    assert (outcome.elapsed_s, outcome.final_return) == (1.0 + 6 * 7.0, 240.0)
    assert [point.mean_return for point in outcome.training] == [10.0, 20.0, 205.0, 205.0, 205.0, 206.0]
    assert [point.mean_return for point in outcome.validation] == [150.0, 210.0, 190.0, 195.0, 180.0, 220.0]
    assert [len(seeds) for seeds in found.seeds] == [5, 5, 100, 100, 5, 100, CONFIRMED_EPISODES]
    seen = list(itertools.chain.from_iterable(found.seeds))
    assert len(set(seen)) == len(seen)  # no episode is used twice


def test_a_run_without_a_solution_counts_as_the_slowest() -> None:
    numbers = summarise("ours", solved(60.0, None, 40.0))
    assert (numbers.num_solved, numbers.num_runs) == (2, 3)
    assert numbers.median_s == 60.0
    assert numbers.solved_s is not None
    assert numbers.solved_s.value == 50.0
    assert summarise("theirs", solved(60.0, None, None)).median_s is None


def test_a_run_is_kept_with_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "seed-3.json"
    save(file, SETTINGS, OUTCOME)
    assert load(file, SETTINGS) == OUTCOME
    with pytest.raises(RunDirectoryError, match="another minutes"):
        load(file, dataclasses.replace(SETTINGS, minutes=5.0))
