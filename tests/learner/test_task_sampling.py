"""Task sampling: uniform without replacement, or by 1 − success with shrinkage; its state survives."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from distrl.configs.schema import LearnerConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Task
from distrl.learner.task_sampling import PRIOR, RECENT, REDRAW_EVERY, TaskSampler, TemplateSampler

TASKS = [
    Task(id=f"{template}/{i}", suite="s", template=template, split="train", goal="g", max_steps=3)
    for template in ("easy", "hard")
    for i in range(3)
]


def sampler(kind: str = "weighted", floor: float = 0.1) -> TaskSampler:
    return TaskSampler(TASKS, kind, floor, random.Random(0))  # type: ignore[arg-type]


def test_uniform_draws_each_task_once_before_any_twice() -> None:
    uniform = sampler("uniform")
    for _ in range(2):
        assert {uniform.draw().id for _ in TASKS} == {task.id for task in TASKS}


def test_weights_are_one_minus_shrunk_success_plus_floor() -> None:
    weighted = sampler()
    assert weighted.weights() == pytest.approx([1.1] * 6), "nothing tried counts as failing"
    for success in (1.0, 1.0, 1.0):
        weighted.record("easy/0", success)
    weighted.record("easy/1", 0.0)
    prior = 3 / 4
    assert weighted.weights()[:3] == pytest.approx(
        [1.1 - (3 + PRIOR * prior) / (3 + PRIOR), 1.1 - PRIOR * prior / (1 + PRIOR), 1.1 - prior]
    )
    assert weighted.weights()[3:] == pytest.approx([1.1] * 3)


def test_failing_templates_are_drawn_in_proportion() -> None:
    weighted = sampler(floor=0.1)
    for task in TASKS:
        for _ in range(20):
            weighted.record(task.id, float(task.template == "easy"))
    drawn = Counter(weighted.draw().template for _ in range(4000))
    assert drawn["hard"] / 4000 == pytest.approx(1.1 / 1.2, abs=0.02)
    assert drawn["easy"] > 0


def test_what_is_learnt_while_a_run_goes_on_is_drawn_less_from_then_on() -> None:
    weighted = sampler(floor=1e-9)
    for _ in range(REDRAW_EVERY + 1):
        weighted.draw()
    for task in TASKS:
        for _ in range(RECENT):
            weighted.record(task.id, float(task.template == "easy"))
    for _ in range(REDRAW_EVERY - 1):
        weighted.draw()
    assert {weighted.draw().template for _ in range(3 * REDRAW_EVERY)} == {"hard"}


@pytest.mark.parametrize("score", [1.0, 100.0])
def test_a_mastered_suite_goes_on_being_drawn(score: float) -> None:
    weighted = sampler(floor=1e-9)
    for task in TASKS:
        weighted.record(task.id, score)
    assert {weighted.draw().id for _ in range(200)} == {task.id for task in TASKS}
    with pytest.raises(ValueError, match="task_sampling_floor"):
        LearnerConfig(task_sampling_floor=0.0)


def test_learnable_prefers_tasks_that_sometimes_fail() -> None:
    learnable = sampler("learnable")
    assert learnable.weights() == pytest.approx([0.1] * 6), "before anything was tried all are alike"
    for _ in range(8):
        learnable.record("easy/0", 1.0)
        learnable.record("easy/2", 0.0)
    for success in (0.0, 1.0) * 4:
        learnable.record("easy/1", success)
    mastered, mixed, dead = learnable.weights()[:3]
    assert mixed == pytest.approx(1.1)
    assert mastered == pytest.approx(dead)
    assert mastered < 0.5


def test_only_recent_episodes_count() -> None:
    changed, always = sampler(floor=0.0), sampler(floor=0.0)
    for success in [0.0] * RECENT + [1.0] * RECENT:
        changed.record("easy/0", success)
        always.record("easy/0", 1.0)
    assert changed.weights() == always.weights()


@pytest.mark.parametrize("kind", ["uniform", "weighted", "learnable"])
def test_a_restored_sampler_draws_what_the_saved_one_would_have(kind: str) -> None:
    saved, restored = sampler(kind), sampler(kind)
    for i in range(21):
        saved.record(saved.draw().id, float(i % 2))
    restored.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    assert [saved.draw().id for _ in range(40)] == [restored.draw().id for _ in range(40)]


def test_templates_are_demonstrated_by_their_weights() -> None:
    demonstrated = TemplateSampler(TASKS, {"easy": 0.25}, random.Random(0))
    drawn = Counter(demonstrated.draw().template for _ in range(4000))
    assert drawn["easy"] / 4000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("weights", "rule"), [({"esay": 1.0}, "esay"), ({"easy": 0.0, "hard": 0.0}, "leaves no")]
)
def test_weights_that_fit_no_task_are_refused(weights: dict[str, float], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        TemplateSampler(TASKS, weights, random.Random(0))
