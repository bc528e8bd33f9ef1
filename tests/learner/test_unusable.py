"""Training episodes that have no verdict, or that the policy cannot read, count towards nothing."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from learning_world import build

from distrl.core.types import Outcome, Purpose
from distrl.learner.checkpoint import restore, state_of
from distrl.learner.context import publish
from distrl.learner.ingest import MANY_IN_VAIN

UNJUDGED = {"outcome": Outcome.UNJUDGED}


def come(learner, world, count: int, **changes) -> None:
    """So many training episodes come in."""
    for lease in world.scheduler.grant("w", count):
        trajectory = world.play(lease).model_copy(update=changes)
        world.store.add(trajectory, world.toy.pixels)
        world.scheduler.finish(lease.id, trajectory)
        world.queue.put_nowait(trajectory)
        learner.context.ingest.drain(0.0)
        count -= 1
    assert count == 0, "not all were leased"


def make_updates(learner) -> int:
    before = learner.progress.updates
    while learner.updates.owed() >= 1:
        learner.updates.make()
    return learner.progress.updates - before


def unreadable(toy) -> dict:
    return {"steps": (toy.step(0, (10**6,), (-1.0,)),)}  # a token that the policy does not have


@pytest.mark.parametrize("what", ["unjudged", "refused"])
def test_no_update_is_made_for_them_on_what_is_in_replay_already(toy, tmp_path, what) -> None:
    learner, world = build(toy, tmp_path, phase="training", min_replay=8, max_staleness=4)
    publish(learner.context)
    come(learner, world, 8)
    assert make_updates(learner) == 4
    changes = UNJUDGED if what == "unjudged" else unreadable(toy)
    for _ in range(8):  # more than freshness would let be leased if they waited for updates
        come(learner, world, 8, **changes)
        assert make_updates(learner) == 0
    assert learner.context.ingest.metrics()[f"ingest/{what}"] == 64.0
    assert learner.context.scheduler.accounted(Purpose.TRAIN) == 8, "they bring the run's end no closer"
    come(learner, world, 4)
    assert make_updates(learner) == 2
    learner.updates.close()


def test_the_first_update_waits_for_min_replay_usable_ones(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, phase="training", min_replay=8, max_staleness=4)
    come(learner, world, 4)
    for _ in range(5):
        come(learner, world, 4, **UNJUDGED)
        assert learner.updates.owed() == 0
    come(learner, world, 3)
    assert learner.updates.owed() == 0
    come(learner, world, 1)
    assert learner.updates.owed() == 4
    learner.updates.close()


def test_a_run_ends_when_enough_episodes_could_be_used(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=60, eval_every=0)
    play, number = world.play, iter(range(10**6))

    def play_some_unjudged(lease):
        is_unjudged = lease.purpose is Purpose.TRAIN and next(number) % 3 == 0
        return play(lease).model_copy(update=UNJUDGED if is_unjudged else {})

    world.play = play_some_unjudged
    learner.run()
    assert world.over
    assert learner.context.scheduler.accounted(Purpose.TRAIN) == 60
    assert learner.context.ingest.num_unjudged >= 29
    assert learner.progress.updates == 30


def test_a_restart_knows_of_them(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, phase="training", min_replay=4, updates_per_episode=1.0)
    come(learner, world, 6)
    come(learner, world, 10, **UNJUDGED)
    state = json.loads(json.dumps(state_of(learner.context)))
    come(learner, world, 2, **UNJUDGED)
    learner.updates.close()
    again, _ = build(toy, tmp_path, "i2", min_replay=4, updates_per_episode=1.0)
    restore(again.context, state)
    assert again.context.scheduler.accounted(Purpose.TRAIN) == 6
    assert again.updates.owed() == 6
    again.updates.close()


@pytest.mark.parametrize(("changes", "owed"), [(UNJUDGED, 3.0), ({"success": 0.0}, 4.0)])
def test_a_group_pays_for_those_of_its_members_that_can_be_compared(toy, tmp_path, changes, owed) -> None:
    """All of them if they are equal: that they teach nothing is what the comparison found."""
    learner, world = build(
        toy,
        tmp_path,
        phase="training",
        algorithm={"kind": "grpo", "group_size": 4},
        min_replay=1,
        updates_per_episode=1.0,
    )
    for _ in range(3):
        come(learner, world, 1, success=0.0)
        assert learner.updates.owed() == 0, "the group is open"
    come(learner, world, 1, **changes)
    assert learner.updates.owed() == owed
    learner.updates.close()


def test_it_is_told_once_when_they_do_not_end(toy, tmp_path, caplog) -> None:
    def told() -> int:
        return sum("the last 50 training episodes cannot be used" in line for line in caplog.messages)

    learner, world = build(toy, tmp_path, phase="training", max_staleness=1000)
    come(learner, world, MANY_IN_VAIN - 1, **UNJUDGED)
    come(learner, world, 1)
    come(learner, world, MANY_IN_VAIN - 1, **UNJUDGED)
    assert told() == 0
    come(learner, world, MANY_IN_VAIN, **UNJUDGED)
    assert told() == 1
    assert "99 have no verdict and 0 cannot be read" in caplog.text
    learner.updates.close()


def test_a_judge_that_is_down_at_the_start_does_not_end_the_run_in_waiting(toy, tmp_path) -> None:
    """Episodes that nobody judged pay for updates, but there is nothing to make them with."""
    learner, world = build(
        toy, tmp_path, phase="training", min_replay=4, max_staleness=1, updates_per_episode=1.0
    )
    for _ in range(3):
        leases = world.scheduler.grant("w", 4)
        assert leases
        for lease in leases:
            trajectory = world.play(lease).model_copy(update={"outcome": Outcome.UNJUDGED})
            world.store.add(trajectory, toy.pixels)
            world.scheduler.finish(lease.id, trajectory)
            world.queue.put_nowait(trajectory)
        learner.context.ingest.drain(0.0)
        assert learner.updates.owed() == 0
    assert world.scheduler.grant("w", 4)
    learner.updates.close()
