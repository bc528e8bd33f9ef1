"""Whatever workers, leases and the learner suffer: a run ends, and has learnt from all that came in."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from group_world import GroupWorld

from distrl.core.types import Fault, Outcome, Purpose

WORKERS = ("a", "b", "c")
MAX_TURNS = 6000


def play(world: GroupWorld, rng: random.Random) -> tuple[GroupWorld, int]:
    """Turns of chance until all episodes are in. Returns the last process, and how many turns it took."""
    held: dict[str, tuple[str, object]] = {}
    state, starts = world.save(), 0
    for turn in range(MAX_TURNS):
        if world.scheduler.accounted(Purpose.TRAIN) >= world.config.episodes:
            return world, turn
        worker = rng.choice(WORKERS)
        for lease in world.lease(rng.randint(1, 6), worker):
            held[lease.id] = (worker, lease)
        for lease_id in rng.sample(sorted(held), min(len(held), rng.randint(0, 4))):
            owner, lease = held[lease_id]
            match rng.choice(("done", "done", "done", "fault", "silence", "back", "unjudged")):
                case "done":
                    world.commit(lease, rng.choice((0.0, 0.3, 1.0)))
                case "fault":
                    world.commit(lease, fault=Fault.DEVICE)
                case "unjudged":
                    world.commit(lease, outcome=Outcome.UNJUDGED)
                case "back":
                    world.scheduler.release(owner, [lease_id])
                case "silence":
                    continue  # stuck: it may still come in much later
            del held[lease_id]
        for lease_id, (owner, _) in held.items():
            if rng.random() < 0.5:
                world.scheduler.renew(owner, [lease_id])
        if rng.random() < 0.02:  # a worker dies with all it has
            held = {name: entry for name, entry in held.items() if entry[0] != worker}
        if rng.random() < 0.8:
            world.train()
            world.update()
        world.wait(rng.choice((0.5, 5.0, 30.0)))
        if rng.random() < 0.05:
            state = world.save()
        if rng.random() < 0.02:  # the learner dies; workers go on with what they have
            starts += 1
            world = world.restart(state, f"i{starts}")
    raise AssertionError(f"not over after {MAX_TURNS} turns: {world.scheduler.metrics()}")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("group_size", [1, 4, 7])
def test_the_run_ends_and_every_usable_episode_is_learnt_from_once(toy, group_size: int, seed: int) -> None:
    rng = random.Random(f"{group_size}/{seed}")
    world = GroupWorld(
        toy,
        group_size=group_size,
        episodes=60,
        max_staleness=rng.choice((1, 4)),
        updates_per_episode=rng.choice((0.1, 1.0)),
        world={"model": "oracle", "min_real": 5} if group_size == 1 and seed % 2 else {},
    )
    world, _ = play(world, rng)
    world.train()
    world.wait(world.config.group_wait_s)
    real = [t for t in world.store if t.purpose is Purpose.TRAIN]
    assert (len(real) < len(world.store)) is bool(world.changes["world"]), "some are imagined"
    usable = [t for t in real if t.fault is Fault.NONE and t.outcome is not Outcome.UNJUDGED]
    assert sorted(world.replay) == sorted(t.id for t in usable)
    assert world.scheduler.held_ids() == []
    rewards = {t.id: t.total_reward for t in usable}
    sizes = Counter(t.group_id for t in usable)
    for trajectory in usable:
        stats = world.replay[trajectory.id]
        assert 1 <= stats.count <= max(1, sizes[trajectory.group_id])
        if group_size > 1:
            members = [rewards[t.id] for t in usable if t.group_id == trajectory.group_id]
            assert min(members) <= stats.mean <= max(members)
    assert len({(t.group_id, t.task.id) for t in usable}) == len(sizes) or group_size == 1
