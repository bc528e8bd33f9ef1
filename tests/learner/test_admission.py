"""Admission by staleness never ends in waiting for what is itself kept waiting."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from group_world import GroupWorld
from learning_world import build

from distrl.core.types import Outcome


@pytest.mark.parametrize(("group_size", "updates_per_episode"), [(4, 0.3), (1, 0.6), (100, 0.29)])
def test_what_pays_for_less_than_an_update_does_not_keep_the_next_group_waiting(
    toy, group_size, updates_per_episode
) -> None:
    """The update would wait for the next group, and that for the update."""
    world = GroupWorld(
        toy, group_size=group_size, updates_per_episode=updates_per_episode, max_staleness=1,
        publish_every=1, min_replay=1, episodes=1000,
    )  # fmt: skip
    for _ in range(5):
        leases = world.lease(group_size)
        assert len(leases) == group_size
        assert len({lease.group_id for lease in leases}) == 1
        for place, lease in enumerate(leases):
            world.finish(lease, float(place % 2))
        world.update()
        assert world.scheduler.updates_due() - world.updates < 1


def test_a_stuck_member_of_a_closed_group_keeps_no_group_waiting(toy) -> None:
    """Three of four pay for 0.75 updates; the fourth never comes, though its worker goes on renewing it."""
    world = GroupWorld(
        toy, updates_per_episode=0.25, max_staleness=1, publish_every=1, min_replay=1, group_wait_s=10.0
    )
    stuck, *others = world.lease(4)
    for lease in others:
        world.finish(lease)
    assert world.lease(4) == []
    for _ in range(4):
        world.now += 40.0
        world.scheduler.renew("w", [stuck.id])
        world.wait(0.0)
    world.update()
    assert (world.updates, len(world.replay)) == (0, 3)
    assert world.metric("scheduler/leases_out") == 1
    assert len(world.lease(4)) == 4


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
