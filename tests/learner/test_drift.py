"""Training tasks that change to another split midway, and never back."""

from __future__ import annotations

import pytest
from group_world import GroupWorld

from distrl.configs.schema import Config
from distrl.core.types import Purpose
from distrl.learner.scheduler import DEMONSTRATIONS
from distrl.learner.task_sampling import Drift

OPTIONS = {"group_size": 1, "max_staleness": 1000, "episodes": 40}


def world(toy, after=0.5, share=1.0, **changes) -> GroupWorld:
    drift = Drift([toy.task(i, "drift") for i in range(3)], after, share)
    return GroupWorld(toy, drift=drift, **OPTIONS | changes)


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


def test_or_of_the_time(toy) -> None:
    run = world(toy)
    run.scheduler.set_elapsed(0.49)
    assert splits(run.lease(2)) == ["train"] * 2
    run.scheduler.set_elapsed(0.5)
    assert splits(run.lease(2)) == ["drift"] * 2


def test_a_share_of_the_draws_may_stay_with_the_training_split(toy) -> None:
    run = world(toy, after=0.0, share=0.25, episodes=400)
    drawn = splits(run.lease(400))
    assert 60 <= drawn.count("drift") <= 140


def test_groups_are_of_one_split(toy) -> None:
    run = world(toy, group_size=4, episodes=16)
    leases = run.lease(6)
    run.scheduler.set_elapsed(1.0)
    leases += run.lease(6)
    assert splits(leases) == ["train"] * 8 + ["drift"] * 4


def test_what_is_run_again_is_not_exchanged(toy) -> None:
    run = world(toy)
    (lease,) = run.lease(1, "dead")
    run.scheduler.set_elapsed(1.0)
    run.wait(61.0)
    (again,) = run.lease(1, "alive")
    assert again.task == lease.task


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


def test_a_resumed_run_may_get_a_drift_that_it_had_not(toy) -> None:
    plain = GroupWorld(toy, **OPTIONS)
    plain.finish(plain.lease(1)[0])
    plain.drift = Drift([toy.task(0, "drift")], 0.0)
    again = plain.restart(plain.save(), "i1")
    assert splits(again.lease(3)) == ["drift"] * 3


def test_nothing_is_said_of_a_drift_where_there_is_none(toy) -> None:
    assert "scheduler/drift" not in GroupWorld(toy, **OPTIONS).scheduler.metrics()


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_that_is_measured_or_trained_on_is_no_drift(split: str) -> None:
    with pytest.raises(ValueError, match=f"drift.split '{split}' is also"):
        Config.model_validate({"tasks": {"drift": {"split": split}}})
    tasks = Config.model_validate({"tasks": {"drift": {"split": "drift"}}}).tasks
    assert tasks.drift is not None
    assert (tasks.drift.after, tasks.drift.share) == (0.5, 1.0)
