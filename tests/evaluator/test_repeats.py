"""Repetitions: other starts of the same tasks, one directory, mean and deviation, and going on with them."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from pathlib import Path

import pytest
from counting_phone import CountingEnv, counting_config, write_suite
from episode_factory import make_episode, make_task
from test_evaluator import Quiet

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.measure import Who, measure
from distrl.evaluator.repeats import reseed
from distrl.evaluator.results import episode_result, load_evaluation
from distrl.evaluator.statistics import Interval, over_repeats, wilson
from distrl.evaluator.suites import load_suite

EXPERT = Who(agent="expert")


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Four tasks, one of which takes more steps than it may."""
    return counting_config(write_suite(tmp_path, [{"taps": 2}, {"taps": 1}, {"taps": 2}, {"taps": 9}]))


def test_seed_0_is_the_suites_own_and_others_differ_from_it_and_each_other() -> None:
    task = load_suite("quickstart", "test")[0]
    assert reseed(task, 0) is task
    drawn = [reseed(task, seed) for seed in (1, 2)]
    assert reseed(task, 1) == drawn[0]
    assert len({task.seed, *(other.seed for other in drawn)}) == 3
    assert {other.id for other in drawn} == {task.id}
    assert {other.goal for other in drawn} == {task.goal}


def test_the_numbers_are_a_mean_over_seeds_and_each_task_weighs_once(config: Config, tmp_path: Path) -> None:
    evaluation = measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0, 1, 4])
    result = evaluation.splits["test"]
    assert result.repeats is not None
    assert result.repeats.seeds == evaluation.seeds == (0, 1, 4)
    assert result.repeats.rates == (0.75, 0.75, 0.75)
    assert (result.repeats.mean, result.repeats.sd) == (0.75, 0.0)
    assert (result.overall.successes, result.overall.episodes) == (9, 12)
    assert result.overall.interval == wilson(3, 4)
    for seed in (0, 1, 4):
        assert load_evaluation(tmp_path / "out" / f"seed-{seed}").evaluation.spec.seed == seed
    loaded = load_evaluation(tmp_path / "out")
    assert loaded.evaluation == evaluation
    assert sorted({episode.seed for episode in loaded.episodes}) == [0, 1, 4]
    for episode in loaded.episodes:
        store = loaded.open_store(episode.seed)
        assert store.get(episode.trajectory_id).task.id == episode.task_id
        store.close()


def test_deviation_is_the_samples(config: Config, tmp_path: Path) -> None:
    evaluation = measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0, 1])
    repeats = evaluation.splits["test"].repeats
    assert repeats is not None
    assert repeats.sd == statistics.stdev(repeats.rates)
    assert repeats.interval is not None


class InstanceEnv(CountingEnv):
    """Its seeds say what is asked for."""

    seed_is_instance = True


@pytest.mark.parametrize("env", ["CountingEnv", "InstanceEnv"])
def test_a_seed_that_is_the_instance_stays_and_random_agents_draw_anew(
    env: str, config: Config, tmp_path: Path
) -> None:
    fields = config.model_dump()
    fields["env"]["import_path"] = f"{CountingEnv.__module__ if env == 'CountingEnv' else __name__}:{env}"
    config = Config.model_validate(fields)
    tasks = {task.id: task for task in load_suite(config.tasks.suite, "test")}
    measure(config, Who(agent="random"), tmp_path / "out", progress=Quiet(), seeds=[0, 1, 2])
    answers = {}
    for seed in (0, 1, 2):
        with contextlib.closing(load_evaluation(tmp_path / "out" / f"seed-{seed}").open_store()) as store:
            played = {one.task.id: one for one in store.iterate()}
        is_same = {name: played[name].task == task for name, task in tasks.items()}
        assert set(is_same.values()) == {seed == 0 or env == "InstanceEnv"}
        answers[seed] = [[step.action for step in played[name].steps] for name in tasks]
    assert answers[0] != answers[1] != answers[2] != answers[0]


def test_the_interval_of_the_mean_is_one_of_rates() -> None:
    made = []
    for seed, number in itertools.product((0, 1), range(2)):
        trajectory, images = make_episode(make_task(number), success=(seed, number) == (1, 0))
        made.append(episode_result(trajectory, GroundTruthJudge().judge(trajectory, images), 0, seed))
    repeats = over_repeats(made)
    assert repeats is not None
    assert repeats.rates == (0.0, 0.5)
    assert repeats.interval == Interval(low=0.0, high=1.0), "ν = 1: 0.25 ± 3.2"


def test_more_seeds_can_be_added_and_none_is_measured_twice(config: Config, tmp_path: Path) -> None:
    measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0])
    with pytest.raises(RunDirectoryError, match="exists already"):
        measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0, 1])
    again = Quiet()
    evaluation = measure(config, EXPERT, tmp_path / "out", resume=True, progress=again, seeds=[0, 1])
    assert len(again.results) == 4
    assert evaluation.seeds == (0, 1)


def test_a_single_evaluation_is_not_made_into_a_repeated_one(config: Config, tmp_path: Path) -> None:
    measure(config, EXPERT, tmp_path / "out", progress=Quiet())
    with pytest.raises(RunDirectoryError, match="without repetitions"):
        measure(config, EXPERT, tmp_path / "out", resume=True, progress=Quiet(), seeds=[0, 1])


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_seeds_must_be_seeds(config: Config, tmp_path: Path, seeds: list[int]) -> None:
    with pytest.raises(ConfigError, match="is not a list of seeds"):
        measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=seeds)
    assert not (tmp_path / "out").exists()
