"""What is counted of the age of training data: exact sums by bucket, whatever the batches were."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from learning_world import OPTIONS, build

from distrl.core.metrics import read_metrics
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import age_histograms, staleness_rows
from distrl.learner.checkpoint import restore
from distrl.learner.episodes import Episode
from distrl.learner.off_policy import EVERY, Freshness, StepStats


def steps(row, ratio, units=None, **sums) -> StepStats:
    """Steps with these ratios; their units and sums as given, one unit each by default."""
    ratio = np.array(ratio, dtype=float)
    ones = np.ones(len(ratio))
    return StepStats(
        row=np.array(row),
        ratio=ratio,
        log_ratio=np.abs(np.log(ratio)),
        token_log_ratio=np.abs(np.log(ratio)),
        tokens=ones,
        units=ones if units is None else np.array(units, dtype=float),
        unit_ratio=ratio,
        unit_square=ratio**2,
        sums={name: np.array(values, dtype=float) for name, values in sums.items()},
    )


def episode(name: str, version: int, ended_at: float) -> Episode:
    return Episode(name, "task", (), True, (), 1.0, version, ended_at=ended_at)


def test_means_are_over_all_steps_of_a_bucket_not_over_batches() -> None:
    fresh = Freshness()
    fresh.trained(np.array([0, 2]), np.array([1.0, 0.0]), steps([0, 1], [1.0, 2.0], clipped_fraction=[0, 1]))
    fresh.trained(
        np.array([3, 2]), np.array([1.0, 1.0]), steps([0, 0, 1], [0.5, 1.0, 4.0], clipped_fraction=[0, 0, 1])
    )
    table, _ = fresh.take([], 0, 0.0)
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
    fresh.trained(np.array([1]), np.array([0.0]), stats)
    table, _ = fresh.take([], 0, 0.0)
    assert table["staleness/1/clipped_fraction"] == 0.25
    assert (table["staleness/1/tokens"], table["staleness/1/steps"]) == (4, 2)


def test_no_update_is_in_two_tables() -> None:
    fresh = Freshness()
    fresh.trained(np.array([0]), np.array([1.0]), steps([0], [1.0]))
    fresh.drawn([episode("a", 0, 0.0)], 30.0)
    assert fresh.num_updates == 1
    fresh.take([], 0, 0.0)
    assert fresh.num_updates == 0
    table, histograms = fresh.take([], 0, 0.0)
    assert table == {}
    assert all(histogram.total == 0 for histogram in histograms.values())


def test_ages_of_what_is_in_replay_and_of_what_is_drawn() -> None:
    fresh, now = Freshness(), 1000.0
    old, young = episode("old", 2, now - 300.0), episode("young", 9, now - 30.0)
    fresh.drawn([old, old], now)
    fresh.drawn([young], now + 60.0)
    fresh.trained(np.array([7, 0]), np.array([1.0, 1.0]), steps([0, 1], [1.0, 1.0]))
    _, histograms = fresh.take([old, young], 9, now)
    found = {name: one.as_metrics("") for name, one in histograms.items()}
    assert found == {
        "replay_age/versions": {"/0": 1, "/4-7": 1},
        "replay_age/minutes": {"/0-1": 1, "/4-8": 1},
        "drawn_age/versions": {"/0": 1, "/4-7": 1},
        "drawn_age/minutes": {"/1-2": 1, "/4-8": 2},
    }


def test_the_parts_of_the_reward_are_means_of_an_episode(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path)
    one, two = {"repetition": -0.1, "shaping": 0.2}, {"repetition": -0.2, "outcome": 1.0}
    won = toy.trajectory("won", [toy.step(1, (1,), (-1.0,), **one), toy.step(1, (2,), (-1.0,), **two)])
    lost = toy.trajectory("lost", [toy.step(2, (1,), (-1.0,), kind="invalid", invalid=-0.4)])
    world.store.add_many([(trajectory, toy.pixels) for trajectory in (won, lost)])
    for trajectory in (won, lost):
        learner.context.ingest.take(trajectory)
    found = {n: v for n, v in learner.context.ingest.metrics().items() if n.startswith("reward/")}
    assert found == pytest.approx(
        {
            "reward/outcome": 0.5,
            "reward/repetition": -0.15,
            "reward/invalid": -0.2,
            "reward/shaping": 0.1,
            "reward/total": 0.25,
        }
    )


def test_a_run_writes_tables_that_cover_each_update_once(toy, tmp_path) -> None:
    learner, _ = build(toy, tmp_path, episodes=90)
    learner.run()
    updates = learner.progress.updates
    assert updates % EVERY, "the last table is a shorter one"
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    tables = [row for row in rows if any(name.startswith("staleness/") for name in row)]
    assert [row["step"] for row in tables] == [EVERY, updates]
    drawn = sum(v for row in tables for name, v in row.items() if name.endswith("/trajectories"))
    assert drawn == updates * OPTIONS["batch_trajectories"]
    ages = [v for row in tables for name, v in row.items() if name.startswith("drawn_age/minutes/")]
    assert sum(ages) == drawn
    for row in tables:
        in_replay = [v for name, v in row.items() if name.startswith("replay_age/versions/")]
        assert sum(in_replay) <= OPTIONS["replay"]["capacity"]
    parts = {f"eval/val/reward/{name}" for name in ("outcome", "repetition", "invalid", "shaping")}
    assert parts <= set().union(*rows)
    means = [
        (row["eval/val/success"], row["eval/val/reward/outcome"]) for row in rows if "eval/val/success" in row
    ]
    assert all(success == reward for success, reward in means)
    assert "reward/shaping" in set().union(*rows)


class Crash(Exception):
    """Ends a process between two checkpoints."""


def test_after_a_crash_each_update_is_in_one_table(toy, tmp_path, monkeypatch) -> None:
    """The crash comes after a table that is newer than the checkpoint."""
    every = {"episodes": 160, "checkpoint_every": EVERY + 15, "eval_every": 0}
    learner, _ = build(toy, tmp_path, **every)
    make = learner.updates.make

    def crashing() -> None:
        make()
        if learner.progress.updates == 2 * EVERY + 17:
            raise Crash

    monkeypatch.setattr(learner.updates, "make", crashing)
    with pytest.raises(Crash):
        learner.run()

    again, world = build(toy, tmp_path, "i2", **every)
    world.names = random.Random(1)
    restore(again.context, again.context.checkpointer.load())
    again.context.report.writer.resume(again.progress.updates)
    assert again.progress.updates == EVERY + 15
    again.run()
    assert again.progress.updates > 3 * EVERY
    trained = again.progress.updates * OPTIONS["batch_trajectories"]
    metrics = RunMetrics.read(tmp_path / "metrics.jsonl")
    assert sum(row.trajectories for row in staleness_rows(metrics)) == trained
    assert age_histograms(metrics)[0].drawn.total == trained
