"""Which task is tried next, and from which split."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from group_world import GroupWorld

from distrl.configs.learner import LearnerConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.types import Task
from distrl.learner.task_sampling import (
    Drift,
    TaskSampler,
    TaskSource,
    demonstration_sampler,
    failure_weight,
)

TASKS = [
    Task(id=f"{template}/{i}", suite="s", template=template, split="train", goal="g", max_steps=3)
    for template in ("easy", "hard")
    for i in range(3)
]

WEIGHTED = LearnerConfig(task_sampling="weighted")


def test_each_task_is_drawn_once_before_any_twice_also_after_a_restart() -> None:
    saved, restored = (TaskSampler(TASKS, random.Random(seed)) for seed in (0, 1))
    drawn = [saved.draw().id for _ in range(9)]
    restored.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    assert [saved.draw().id for _ in range(40)] == [restored.draw().id for _ in range(40)]
    assert {*drawn[:6]} == {task.id for task in TASKS}


def test_weighted_tasks_are_drawn_by_their_recent_failures() -> None:
    successes = {"easy/0": 1.0, "easy/1": 0.5, "easy": 0.875}  # and of "hard" none
    sampler = TaskSampler(TASKS, random.Random(0), lambda task: failure_weight(task, successes))
    drawn = Counter(sampler.draw().id for _ in range(20_000))
    weights = {"easy/0": 0.15, "easy/1": 0.65, "easy/2": 0.275} | {f"hard/{i}": 1.15 for i in range(3)}
    for name, weight in weights.items():
        assert drawn[name] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.02)


def test_a_run_keeps_the_last_successes_of_each_task() -> None:
    source = TaskSource(WEIGHTED, TASKS, None, seed=0)
    for success in (0.0, *[1.0] * 8):
        source.record(TASKS[0], success)
    restored = TaskSource(WEIGHTED, TASKS, None, seed=0)
    restored.load_state_dict(json.loads(json.dumps(source.state_dict())))
    drawn = Counter(restored.draw(0.0).id for _ in range(4000))
    assert drawn["easy/0"] / 4000 == pytest.approx(0.15 / 4.12, abs=0.01)


def demonstrated_by(weights: dict[str, float]) -> TaskSampler:
    learner = LearnerConfig.model_validate({"demonstrations": {"weights": weights}})
    return demonstration_sampler(learner, TASKS, 0)


def test_templates_are_demonstrated_by_their_weights() -> None:
    demonstrated = demonstrated_by({"easy": 0.25})
    drawn = Counter(demonstrated.draw().template for _ in range(4000))
    assert drawn["easy"] / 4000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("weights", [{}, {"easy": 0.5}])
def test_training_does_not_begin_with_the_tasks_that_were_demonstrated(weights: dict[str, float]) -> None:
    training, demonstrated = TaskSource(WEIGHTED, TASKS, None, 0), demonstrated_by(weights)
    alike = sum(training.draw(0.0) is demonstrated.draw() for _ in range(200))
    assert alike < 70, "33 by chance"


@pytest.mark.parametrize(
    ("weights", "rule"), [({"esay": 1.0}, "esay"), ({"easy": 0.0, "hard": 0.0}, "leaves no")]
)
def test_weights_that_fit_no_task_are_refused(weights: dict[str, float], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        demonstrated_by(weights)


DRIFTING = {"group_size": 1, "max_staleness": 1000, "episodes": 40}


def world(toy, after=0.5, share=1.0, **changes) -> GroupWorld:
    drift = Drift([toy.task(i, "drift") for i in range(3)], after, share)
    return GroupWorld(toy, drift=drift, **DRIFTING | changes)


def splits(leases) -> list[str]:
    return [lease.task.split for lease in leases]


def test_tasks_come_from_the_drift_split_once_its_share_of_the_episodes_is_in(toy) -> None:
    run = world(toy)
    leases = run.lease(21)
    assert set(splits(leases)) == {"train"}
    for lease in leases[:19]:
        run.finish(lease)
    assert splits(run.lease(1)) == ["train"]
    assert run.metric("scheduler/drift") == 0
    run.finish(leases[19])
    assert splits(run.lease(6)) == ["drift"] * 6
    assert run.metric("scheduler/drift") == 1


def test_it_survives_a_restart_and_never_goes_back(toy) -> None:
    run = world(toy)
    run.scheduler.set_elapsed(0.6)
    for lease in run.lease(4):
        run.finish(lease, float(lease.task.id.endswith("0")))
    state = run.save()
    again = run.restart(state, "i1", episodes=4000)
    assert again.save()["scheduler"] == state["scheduler"]
    assert splits(again.lease(5)) == ["drift"] * 5


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_that_is_measured_or_trained_on_is_no_drift(split: str) -> None:
    with pytest.raises(ValueError, match=f"drift.split '{split}' is also"):
        Config.model_validate({"tasks": {"drift": {"split": split}}})
    tasks = Config.model_validate({"tasks": {"drift": {"split": "drift"}}}).tasks
    assert tasks.drift is not None
    assert (tasks.drift.after, tasks.drift.share) == (0.5, 1.0)
