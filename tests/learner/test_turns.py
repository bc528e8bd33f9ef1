"""Round robin: every task equally often, exactly, whatever is lost, doubled or restarted."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from group_world import GroupWorld

from distrl.core.types import Fault
from distrl.learner.leases import AVOID_S, MAX_ATTEMPTS
from distrl.learner.turns import Turns

OPTIONS = {"task_sampling": "round_robin", "group_size": 1, "max_staleness": 100, "episodes": 400}


def tasks_of(leases) -> list[str]:
    return [lease.task.id for lease in leases]


def test_tasks_come_in_one_fixed_order_again_and_again(toy) -> None:
    order = tasks_of(GroupWorld(toy, **OPTIONS).lease(15))
    assert len(set(order[:5])) == 5
    assert order == order[:5] * 3
    assert tasks_of(GroupWorld(toy, incarnation="i7", **OPTIONS).lease(15)) == order


def test_a_group_is_one_turn_of_k_episodes(toy) -> None:
    order = tasks_of(GroupWorld(toy, **OPTIONS).lease(5))
    grouped = tasks_of(GroupWorld(toy, **OPTIONS | {"group_size": 3}).lease(30))
    assert grouped == [task for task in order * 2 for _ in range(3)]


@pytest.mark.parametrize("group_size", [1, 3])
def test_after_restarts_every_task_has_been_run_equally_often(toy, group_size: int) -> None:
    """Leases are lost, stored episodes replayed, late ones brought by workers that outlived the learner."""
    world = GroupWorld(toy, **OPTIONS | {"group_size": group_size, "episodes": 30, "min_replay": 30})
    first = world.lease(7)
    for lease in first[:4]:
        world.finish(lease)
    state = world.save()
    for lease in first[4:6]:
        world.commit(lease)  # in the store, not in the checkpoint
    world = world.restart(state, "i1")
    for lease in world.lease(2):
        world.finish(lease)
    world.finish(first[6])  # of a lease that no process knows any more
    world = world.restart(world.save(), "i2")
    while leases := world.lease(4):
        for lease in leases:
            world.finish(lease)
    assert sorted(Counter(t.task.id for t in world.store).values()) == [6] * 5


def test_an_episode_that_is_given_up_was_a_turn(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    order = tasks_of(leases := world.lease(5))
    bad = leases[0]
    for attempt in range(MAX_ATTEMPTS):
        world.finish(bad, fault=Fault.ENV)
        world.now += AVOID_S
        if attempt + 1 < MAX_ATTEMPTS:
            (bad,) = world.lease(1)
    assert tasks_of(world.lease(5)) == order, "else a task that always fails would be the next for ever"


def test_an_episode_that_was_run_twice_counts_twice() -> None:
    turns = Turns(["a", "b", "c"])
    assert [turns.next() for _ in range(3)] == ["a", "b", "c"]
    for name in ("a", "a", "b", "c"):
        turns.end(name)
    assert [turns.next() for _ in range(5)] == ["b", "c", "a", "b", "c"]


def test_a_restart_with_other_tasks_goes_on_with_those_that_are_left() -> None:
    turns = Turns(["a", "b"])
    for _ in range(4):
        turns.end(turns.next())
    again = Turns(["b", "c"])
    again.load_state_dict(json.loads(json.dumps(turns.state_dict())))
    assert [again.next() for _ in range(4)] == ["c", "c", "b", "c"]
    again.end("a")
