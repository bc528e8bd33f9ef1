"""The training loop with groups, and with episodes that become too old; in one thread."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict

import pytest
from learning_world import build

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.core.types import Purpose
from distrl.learner.checkpoint import restore
from distrl.learner.episodes import GroupStats

GROUPS = {"algorithm": {"kind": "grpo", "group_size": 4}, "episodes": 96}


def expected(store) -> dict[str, GroupStats]:
    """The statistics of every group that has all its members in the store."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for trajectory in store.iterate(Purpose.TRAIN):
        rewards[trajectory.group_id].append(trajectory.total_reward)
    return {name: GroupStats.of(found) for name, found in rewards.items() if len(found) == 4}


def test_a_run_learns_from_whole_groups(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, **GROUPS)
    learner.run()
    assert world.over
    groups = Counter(t.group_id for t in world.store.iterate(Purpose.TRAIN))
    assert set(groups.values()) == {4}
    assert learner.progress.updates == 48
    known = expected(world.store)
    for name, episode in learner.context.ingest.episodes.items():
        stats = known[world.store.get(name).group_id]
        assert episode.group.count == 4
        assert (episode.group.mean, episode.group.std) == pytest.approx((stats.mean, stats.std))
    assert any(episode.group.std > 0 for episode in learner.context.ingest.episodes.values())
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert max(row.get("groups/closed", 0.0) for row in rows) == 24


def test_resume_brings_back_groups_and_those_that_wait_for_theirs(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, phase="training", **GROUPS)
    ingest = learner.context.ingest
    learner.progress.is_warm = True
    leases = world.scheduler.grant("w", 6)
    for lease in leases[:5]:
        played = world.play(lease)
        world.store.add(played, toy.pixels)
        world.scheduler.finish(played)
        ingest.take(played)
    assert len(ingest.episodes) == 4
    assert len(world.scheduler.held_ids()) == 1
    learner.validation.save()
    late = world.play(leases[5])
    world.store.add(late, toy.pixels)

    again, world = build(toy, tmp_path, "i2", **GROUPS)
    world.names = random.Random(1)
    context = again.context
    restore(context, context.checkpointer.load())
    assert context.ingest.episodes == ingest.episodes
    assert len(world.scheduler.held_ids()) == 2, "one from the checkpoint, one from the store"
    again.run()
    assert world.over
    assert set(Counter(t.group_id for t in world.store.iterate(Purpose.TRAIN)).values()) == {4}
    state = json.loads((checkpoints.resolve(tmp_path / "checkpoints", "latest") / "state.json").read_text())
    assert state["scheduler"]["groups"]["open"] == {}


# ---- episodes that are too old ----


def old(toy, world, lease, version: int, name: str):
    steps = [toy.step(0, (1,), (-1.0,), version=version, outcome=1.0)]
    trajectory = toy.trajectory(name, steps, lease_id=lease.id, task=lease.task, purpose=lease.purpose)
    world.store.add(trajectory, toy.pixels)
    world.scheduler.finish(trajectory)
    return trajectory


@pytest.mark.parametrize(("stale", "left"), [("clip", ["a", "b", "c", "late"]), ("drop", ["b", "c"])])
def test_what_is_too_old_is_dropped_only_if_that_is_asked_for(toy, tmp_path, stale, left) -> None:
    learner, world = build(toy, tmp_path, phase="training", stale=stale, max_staleness=4)
    ingest, publisher = learner.context.ingest, learner.context.publisher
    *leases, late = world.scheduler.grant("w", 4)
    for lease, version, name in zip(leases, (1, 2, 6), "abc", strict=True):
        ingest.take(old(toy, world, lease, version, name))
    while publisher.version < 6:
        publisher.publish()
    ingest.drain(0.0)
    ingest.take(old(toy, world, late, 1, "late"))
    assert sorted(learner.context.replay.ids) == sorted(ingest.episodes) == left
    assert ingest.metrics().get("replay/stale_dropped", 0.0) == 4 - len(left)
    replay = learner.context.replay
    assert set(replay.names(replay.sample(8))) == set(left)
    learner.updates.make()
    *_, row = read_metrics(tmp_path / "metrics.jsonl")
    assert (row["off_policy/stale_fraction"] > 0) == (stale == "clip")


def test_a_replay_that_all_goes_stale_does_not_end_in_waiting(toy, tmp_path) -> None:
    """64 episodes come in before the first update and pay for 64, but after two versions all are too old."""
    learner, world = build(
        toy, tmp_path, stale="drop", max_staleness=2, min_replay=64, updates_per_episode=1.0, episodes=96,
        replay={"capacity": 96}, eval_every=0, max_minutes=2,
    )  # fmt: skip
    learner.run()
    assert world.over
    assert learner.context.scheduler.accounted(Purpose.TRAIN) == 96
    assert 0 < learner.progress.updates < 96
    assert learner.context.ingest.num_stale >= 64
    assert learner.context.clock.elapsed_s() < 100
    again, _ = build(toy, tmp_path, "i2", stale="drop", max_staleness=2, updates_per_episode=1.0, episodes=96)
    restore(again.context, again.context.checkpointer.load())
    assert again.updates.owed() == pytest.approx(learner.updates.owed())
    assert again.context.ingest.num_stale == learner.context.ingest.num_stale
