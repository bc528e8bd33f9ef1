"""Groups: leased together, compared with each other, and never waited for in vain. A clock by hand."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from group_world import GroupWorld

from distrl.core.types import Outcome, Purpose

UNUSED = {"outcome": Outcome.UNJUDGED}


def test_a_group_is_k_episodes_of_one_task_whoever_asks(toy) -> None:
    world = GroupWorld(toy)
    leases = world.lease(3, "a") + world.lease(6, "b") + world.lease(3, "c")
    groups = [lease.group_id for lease in leases]
    assert list(Counter(groups).values()) == [4, 4, 4]
    assert groups == sorted(groups, key=groups.index), "a group is leased out before the next is opened"
    for group in set(groups):
        assert len({lease.task.id for lease in leases if lease.group_id == group}) == 1
    assert len({lease.id for lease in leases}) == 12
    assert all(lease.sampling.temperature > 0 for lease in leases), "else its members would all be alike"


def test_a_group_enters_replay_when_its_last_member_is_in(toy) -> None:
    world = GroupWorld(toy)
    leases = world.lease(4)
    for lease, reward in zip(leases[:3], (1.0, 0.0, 0.5), strict=True):
        world.finish(lease, reward)
    assert world.replay == {}
    assert world.scheduler.accounted(Purpose.TRAIN) == 0, "what waits pays for no update"
    world.finish(leases[3], 1.0)
    assert set(world.replay) == {"t0", "t1", "t2", "t3"}
    (stats,) = set(world.replay.values())
    assert (stats.mean, stats.count) == (0.625, 4)
    assert stats.std == pytest.approx(sqrt((0.375**2 * 2 + 0.625**2 + 0.125**2) / 4))
    assert world.scheduler.accounted(Purpose.TRAIN) == 4


def test_a_stuck_member_that_is_renewed_for_ever_is_not_waited_for(toy) -> None:
    world = GroupWorld(toy)
    stuck, *others = world.lease(4)
    for lease in others:
        world.finish(lease, 1.0)
    for _ in range(3):
        world.now += 40.0
        world.scheduler.renew("w", [stuck.id])
        world.wait(0.0)
    assert world.metric("scheduler/expired") == 0
    assert {stats.count for stats in world.replay.values()} == {3}

    world.finish(stuck, 0.0)
    world.wait(world.config.group_wait_s)
    assert world.replay["t3"].count == 1, "a late member is a group of its own"
    assert world.scheduler.accounted(Purpose.TRAIN) == 4


def test_a_member_that_nobody_judged_is_not_waited_for(toy) -> None:
    world = GroupWorld(toy)
    first, *others = world.lease(4)
    world.finish(first, **UNUSED)
    for lease in others:
        world.finish(lease, 1.0)
    assert {stats.count for stats in world.replay.values()} == {3}
    assert world.scheduler.accounted(Purpose.TRAIN) == 4


def test_the_last_group_has_the_episodes_that_are_left(toy) -> None:
    world = GroupWorld(toy, episodes=6, max_staleness=100)
    leases = world.lease(50)
    assert list(Counter(lease.group_id for lease in leases).values()) == [4, 2]
    for lease in leases:
        world.finish(lease)
    assert Counter(stats.count for stats in world.replay.values()) == {4: 4, 2: 2}
    assert world.scheduler.accounted(Purpose.TRAIN) == 6


# ---- admission ----


def test_a_group_is_admitted_as_a_whole_or_not_at_all(toy) -> None:
    """16 episodes may lie ahead, see test_scheduler; of groups of 5, three fit."""
    world = GroupWorld(toy, group_size=5)
    leases = world.lease(50)
    assert list(Counter(lease.group_id for lease in leases).values()) == [5, 5, 5]
    world = GroupWorld(toy, group_size=5)
    assert sum(len(world.lease(1)) for _ in range(50)) == 15, "places that are not leased yet count as well"


def test_members_to_be_run_again_are_not_kept_back_by_freshness(toy) -> None:
    """Else the group would wait for its member, the updates for the group, and freshness for the updates."""
    world = GroupWorld(toy, group_wait_s=1e6)
    leases = world.lease(50, "dead")
    assert len(leases) == 16
    for lease in leases:
        if lease is not leases[0] and lease is not leases[4]:
            world.finish(lease)
    world.wait(61.0)
    assert len(world.lease(50, "alive")) == 2


# ---- restarts ----


def test_after_a_restart_the_missing_members_are_leased_anew(toy) -> None:
    world = GroupWorld(toy)
    leases = world.lease(6)
    for lease in leases[:3]:
        world.finish(lease, 1.0)
    state = world.save()
    again = world.restart(state, "i1")
    assert again.save()["scheduler"] == state["scheduler"]
    assert again.scheduler.held_ids() == ["t0", "t1", "t2"]
    (missing,) = again.lease(1)
    assert (missing.group_id, missing.task) == (leases[0].group_id, leases[0].task)
    (fresh,) = again.lease(1)
    assert fresh.group_id != missing.group_id
    again.finish(missing, 0.0)
    assert {(stats.mean, stats.count) for stats in again.replay.values()} == {(0.75, 4)}


def test_after_a_restart_members_of_a_group_that_only_the_store_knows_find_together(toy) -> None:
    world = GroupWorld(toy)
    state = world.save()
    leases = world.lease(4)
    for lease in leases[:2]:
        world.commit(lease, 1.0)
    again = world.restart(state, "i1")
    missing = again.lease(2)
    assert {lease.group_id for lease in missing} == {leases[0].group_id}
    again.finish(leases[2], 0.0)  # the worker that outlived the learner brings it
    again.finish(missing[0], 0.0)
    assert {(stats.mean, stats.count) for stats in again.replay.values()} == {(0.5, 4)}


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
