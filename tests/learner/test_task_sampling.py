"""Which task is tried next, from which split, and what became of each."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from group_world import GroupWorld

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, StoreError
from distrl.core.types import Fault, Outcome, Purpose, Task
from distrl.learner.leases import AVOID_S, MAX_ATTEMPTS
from distrl.learner.scheduler import DEMONSTRATIONS
from distrl.learner.task_sampling import (
    FLOOR,
    PRIOR,
    REDRAW_EVERY,
    Drift,
    TaskSampler,
    TemplateSampler,
    read_table,
)

TASKS = [
    Task(id=f"{template}/{i}", suite="s", template=template, split="train", goal="g", max_steps=3)
    for template in ("easy", "hard")
    for i in range(3)
]


def sampler(kind: str = "weighted") -> TaskSampler:
    return TaskSampler(TASKS, kind, random.Random(0))  # type: ignore[arg-type]


def test_uniform_draws_each_task_once_before_any_twice() -> None:
    uniform = sampler("uniform")
    for _ in range(2):
        assert {uniform.draw().id for _ in TASKS} == {task.id for task in TASKS}


def test_weights_are_one_minus_shrunk_success_plus_floor() -> None:
    weighted, top = sampler(), 1.0 + FLOOR
    assert weighted.weights() == pytest.approx([top] * 6), "nothing tried counts as failing"
    for success in (1.0, 1.0, 1.0):
        weighted.record("easy/0", success)
    weighted.record("easy/1", 0.0)
    prior = 3 / 4
    assert weighted.weights()[:3] == pytest.approx(
        [top - (3 + PRIOR * prior) / (3 + PRIOR), top - PRIOR * prior / (1 + PRIOR), top - prior]
    )
    assert weighted.weights()[3:] == pytest.approx([top] * 3)


def test_what_is_learnt_while_a_run_goes_on_is_drawn_less_from_then_on() -> None:
    weighted = sampler()
    for _ in range(REDRAW_EVERY + 1):
        weighted.draw()
    for task in TASKS:
        for _ in range(20):
            weighted.record(task.id, 100.0 if task.template == "easy" else 0.0)
    for _ in range(REDRAW_EVERY - 1):
        weighted.draw()
    drawn = Counter(weighted.draw().template for _ in range(4000))
    assert drawn["hard"] / 4000 == pytest.approx((1.0 + FLOOR) / (1.0 + 2 * FLOOR), abs=0.02)
    assert drawn["easy"] > 0, "no score stops the draws"


def test_learnable_prefers_tasks_that_sometimes_fail() -> None:
    learnable = sampler("learnable")
    assert learnable.weights() == pytest.approx([FLOOR] * 6), "before anything was tried all are alike"
    for _ in range(8):
        learnable.record("easy/0", 1.0)
        learnable.record("easy/2", 0.0)
    for success in (0.0, 1.0) * 4:
        learnable.record("easy/1", success)
    mastered, mixed, dead = learnable.weights()[:3]
    assert mixed == pytest.approx(1.0 + FLOOR)
    assert mastered == pytest.approx(dead)
    assert mastered < 0.5 + FLOOR


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


OPTIONS = {"group_size": 1, "max_staleness": 100}


def test_episodes_success_steps_and_faults_of_each_task(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    leases = world.lease(10)
    task = leases[0].task
    mine = [lease for lease in leases if lease.task == task]
    world.finish(mine[0], 1.0, duration_s=3.0)
    world.finish(mine[1], 0.5, duration_s=5.0)
    more = [lease for lease in world.lease(10) if lease.task == task]
    world.finish(more[0], outcome=Outcome.UNJUDGED)
    world.finish(more[1], 1.0, fault=Fault.DEVICE)
    row = world.scheduler.task_table()[task.id]
    assert (row.template, row.episodes, row.judged, row.faults) == ("t", 3, 2, 1)
    assert (row.mean_success, row.mean_steps) == (0.75, 1.0)
    assert row.mean_seconds == pytest.approx(8 / 3)
    assert len(world.scheduler.task_table()) == 1, "others have no episode yet"


def test_expired_leases_and_episodes_given_up_are_counted(toy) -> None:
    world = GroupWorld(toy, **OPTIONS | {"episodes": 1})
    (lease,) = world.lease(1, "w0")
    world.wait(61.0)
    for attempt in range(1, MAX_ATTEMPTS):
        (lease,) = world.lease(1, f"w{attempt}")
        world.finish(lease, fault=Fault.ENV)
        world.now += AVOID_S
    row = world.scheduler.task_table()[lease.task.id]
    assert (row.expired, row.faults, row.abandoned, row.episodes) == (1, MAX_ATTEMPTS - 1, 1, 0)
    assert (row.mean_success, row.mean_steps, row.mean_seconds) == (None, None, None)


def test_a_restart_counts_what_came_in_after_the_checkpoint_once(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    leases = world.lease(6)
    for lease in leases[:3]:
        world.finish(lease, 1.0)
    state = world.save()
    world.finish(leases[3], 0.0)
    world.commit(leases[4], fault=Fault.ENV)
    world.train()
    again = world.restart(state, "i1")
    assert again.scheduler.task_table() == world.scheduler.task_table()


@pytest.mark.parametrize(
    ("text", "rule"), [(None, "There is no"), ("{", "cannot be read"), ('{"a": {"x": 1}}', "cannot be read")]
)
def test_what_is_no_table_is_one_clear_error(tmp_path: Path, text: str | None, rule: str) -> None:
    path = tmp_path / "tasks.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StoreError, match=rule) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("purpose", [Purpose.DEMO, Purpose.EVAL])
def test_demonstrations_and_evaluations_stay(toy, purpose) -> None:
    run = world(toy, after=0.0, demonstrations={"episodes": 9})
    if purpose is Purpose.DEMO:
        run.scheduler.set_phase(DEMONSTRATIONS)
    else:
        run.scheduler.start_eval()
    assert "drift" not in splits(run.lease(4))


def test_it_survives_a_restart_and_never_goes_back(toy) -> None:
    run = world(toy, task_sampling="weighted")
    run.scheduler.set_elapsed(0.6)
    for lease in run.lease(4):
        run.finish(lease, float(lease.task.id.endswith("0")))
    state = run.save()
    again = run.restart(state, "i1", episodes=4000)
    assert again.save()["scheduler"] == state["scheduler"]
    assert again.scheduler.task_table() == run.scheduler.task_table()
    assert splits(again.lease(5)) == ["drift"] * 5


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_that_is_measured_or_trained_on_is_no_drift(split: str) -> None:
    with pytest.raises(ValueError, match=f"drift.split '{split}' is also"):
        Config.model_validate({"tasks": {"drift": {"split": split}}})
    tasks = Config.model_validate({"tasks": {"drift": {"split": "drift"}}}).tasks
    assert tasks.drift is not None
    assert (tasks.drift.after, tasks.drift.share) == (0.5, 1.0)
