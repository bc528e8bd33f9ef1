"""The whole training loop in one thread, with the server of `learning_world`."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import torch
from learning_world import OPTIONS, build

from distrl.configs.schema import StoreConfig
from distrl.core import checkpoints
from distrl.core.errors import CheckpointError, NetworkError, NothingCameIn
from distrl.core.metrics import read_metrics
from distrl.core.types import Purpose
from distrl.learner.checkpoint import restore, state_of
from distrl.learner.context import SILENCE_S


def evals(path) -> list[float]:
    rows = read_metrics(path / "metrics.jsonl")
    return [row["eval/val/success"] for row in rows if "eval/val/success" in row]


def test_it_learns_from_a_weak_start(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path)
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    success = [row["train/success"] for row in rows if "train/success" in row]
    assert success[0] < 0.5
    assert success[-1] > 0.8
    assert evals(tmp_path)[-1] >= 0.75
    assert world.phases == [
        *("demonstrations", "warm-up", "training", "critic warm-up", "training", "validation", "done")
    ]
    assert world.over
    assert learner.progress.updates == 150
    kept = checkpoints.checkpoints(tmp_path / "checkpoints")
    assert kept[0] == "step_0"
    assert len(kept) <= 6
    best = checkpoints.resolve(tmp_path / "checkpoints", "final")
    policy = toy.policy()
    policy.load(best / "policy")
    assert torch.isfinite(policy.head.weight).all()
    # Drawn first within max_staleness versions, an episode stays for 48 newer ones, which bring 24 updates.
    bound = learner.context.config.learner.max_staleness + 24
    assert 0 < max(row.get("off_policy/staleness_max", 0) for row in rows) <= bound
    names = set().union(*rows)
    assert {"loss/policy", "replay/size", "train/success", "reward/total", "time/wait_for_batch"} <= names
    # Whoever follows the broadcasts sees the newest of all, whatever was written last.
    assert {"episodes", "updates", "train/success", "eval/val/success", "loss/policy"} <= set(world.status)


@pytest.mark.parametrize("keep_best", [True, False])
def test_the_result_is_the_best_checkpoint_or_the_last(toy, tmp_path, keep_best) -> None:
    learner, world = build(toy, tmp_path, keep_best=keep_best, episodes=60, eval_every=10)
    play = world.play

    def play_worse_at_the_end(lease):
        episode = play(lease)
        late = lease.purpose is Purpose.EVAL and world.played > 40
        return episode.model_copy(update={"success": 0.0}) if late else episode

    world.play = play_worse_at_the_end
    learner.run()
    directory = tmp_path / "checkpoints"
    best, last = checkpoints.pointed(directory, "best"), checkpoints.pointed(directory, "latest")
    assert best != last == "step_30"
    assert checkpoints.pointed(directory, "final") == (best if keep_best else last)


def test_with_updates_off_nothing_is_learnt(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, updates_enabled=False, episodes=120)
    learner.run()
    warm = toy.policy()
    warm.load(tmp_path / "checkpoints" / "step_0" / "policy")
    assert torch.equal(warm.head.weight, learner.context.train_step.policy.head.weight)
    assert learner.progress.updates == 60
    assert world.over


def test_resume_goes_on_where_it_stopped(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, stop_after=120)
    learner.run()
    assert not world.over
    before = learner.context
    state, version = state_of(before), before.publisher.version
    weights = {k: v.clone() for k, v in before.train_step.policy.state_dict().items()}

    again, world = build(toy, tmp_path, "i2")
    world.names = random.Random(1)
    context = again.context
    restore(context, context.checkpointer.load())
    for name, value in context.train_step.policy.state_dict().items():
        assert torch.equal(value, weights[name])
    assert context.progress.updates == before.progress.updates
    assert context.replay.ids == before.replay.ids
    assert context.replay.state_dict() == state["replay"]
    assert set(context.ingest.episodes) == set(context.replay.ids)
    assert context.scheduler.accounted(Purpose.TRAIN) == before.scheduler.accounted(Purpose.TRAIN)
    again.run()
    assert world.info.version > version
    assert world.phases == ["training", "validation", "done"]
    assert again.progress.updates == 150
    assert evals(tmp_path)[-1] >= 0.75


def test_the_round_of_the_checkpoint_that_a_run_goes_back_to_is_measured_again(toy, tmp_path) -> None:
    """Its result came after the checkpoint: with all that, it is lost."""
    changes = {"episodes": 40, "eval_every": 10}
    learner, _ = build(toy, tmp_path, **changes)
    learner.run()
    checkpoints.point(tmp_path / "checkpoints", "latest", "step_10")
    again, world = build(toy, tmp_path, "i2", **changes)
    world.names = random.Random(1)
    restore(again.context, again.context.checkpointer.load())
    again.context.report.writer.resume(10)
    again.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    resumed = next(number for number, row in enumerate(rows) if "resumed" in row)
    assert [row["eval/val/updates"] for row in rows[resumed:] if "eval/val/updates" in row] == [10, 20]


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("scheduler", "sampler", "lacks 'sampler'"),
        ("ingest", "rolling", "lacks 'rolling'"),
        ("progress", None, "unexpected keyword"),
    ],
)
def test_a_checkpoint_of_another_version_is_one_clear_error(toy, tmp_path, section, key, message) -> None:
    learner, _ = build(toy, tmp_path)
    state = json.loads(json.dumps(state_of(learner.context)))
    if key is None:
        state[section]["unknown"] = 1
    else:
        del state[section][key]
    with pytest.raises(CheckpointError, match=message) as caught:
        restore(learner.context, state)
    assert "\n" not in str(caught.value)


def test_a_stopped_warm_up_continues_where_it_was(toy, tmp_path) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "updates": 30}
    learner, world = build(toy, tmp_path, demonstrations=demonstrations, episodes=16)
    clone, count = learner.context.train_step.clone, itertools.count(1)

    def clone_some(batch):
        if next(count) == 20:
            world.stop.set()
        return clone(batch)

    learner.context.train_step.clone = clone_some
    learner.run()
    assert not list(checkpoints.checkpoints(tmp_path / "checkpoints"))
    again, world = build(toy, tmp_path, "i2", demonstrations=demonstrations, episodes=16)
    world.names = random.Random(1)
    again.context.ingest.restore()
    engine, before = again.context.train_step, learner.context.train_step
    (state,) = (tmp_path / "warm_up").glob("step_*/state.json")
    spent_s = json.loads(state.read_text())["elapsed_s"]
    seen, clone_on = [], engine.clone

    def watched(batch):
        if not seen:
            assert torch.equal(engine.policy.head.weight, before.policy.head.weight)
            moments = engine.state_dict()["cloner"]["state"][0], before.state_dict()["cloner"]["state"][0]
            assert torch.equal(*(one["exp_avg"] for one in moments))
            assert again.progress.elapsed_s == spent_s > 0.0
        seen.append(batch)
        return clone_on(batch)

    engine.clone = watched
    again.run()
    assert len(seen) == 10
    assert again.progress.updates == 8
    assert not (tmp_path / "warm_up").exists()


def test_demonstrations_to_rehearse_outlive_the_warm_start_the_store_and_a_resume(toy, tmp_path) -> None:
    options = {"demonstrations": {**OPTIONS["demonstrations"], "rehearsal": 0.5}, "replay": {"capacity": 16}}
    learner, world = build(toy, tmp_path, episodes=80, stop_after=40, **options)
    context = learner.context
    context.config = context.config.model_copy(update={"store": StoreConfig(max_bytes=1)})
    learner.run()
    assert not world.over
    before = context.ingest.demonstrations
    assert len(before) == OPTIONS["demonstrations"]["episodes"]
    rehearsed = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "policy/rehearsal" in row]
    assert len(rehearsed) == learner.progress.updates > 0
    again, world = build(toy, tmp_path, "i2", episodes=80, **options)
    world.names = random.Random(1)
    late = context.store.get(before[0].id).model_copy(update={"id": "late"})
    context.store.add(late, {})  # it came in after the checkpoint
    restore(again.context, again.context.checkpointer.load())
    found = again.context.ingest.demonstrations
    assert [one.id for one in found] == [*(one.id for one in before), "late"]
    assert [one.steps for one in found[:-1]] == [one.steps for one in before]
    again.run()
    assert world.over


def test_demonstrations_that_never_come_end_the_run(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path)
    world.check = lambda: None  # no worker
    now = itertools.count(0.0, SILENCE_S / 10)
    learner.context.clock.now = lambda: next(now)
    with pytest.raises(NothingCameIn, match=r"for 60 minutes \(0 of 12 demonstrations arrived\)"):
        learner.run()


def test_cloning_for_hours_is_no_wait_for_episodes(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=40)
    # As from a dataset: no worker has sent anything by the time that the learner has cloned them.
    for demo in map(world.play, world.scheduler.grant("w", 12)):
        learner.context.store.add(demo, toy.pixels)
        learner.context.ingest.take(demo)
    clone, late_s = learner.context.train_step.clone, [0.0]

    def slowly(batch):
        late_s[0] += SILENCE_S
        return clone(batch)

    learner.context.train_step.clone = slowly
    check, calls = world.check, itertools.count()
    world.check = lambda: check() if next(calls) > 10 else None  # workers take a moment
    monotonic = learner.context.clock.now
    learner.context.clock.now = lambda: monotonic() + late_s[0]
    learner.run()
    assert world.over


@pytest.mark.parametrize("method", ["clone", "fit_critic"])
def test_a_dead_network_thread_is_noticed_in_the_warm_ups(toy, tmp_path, method) -> None:
    learner, world = build(toy, tmp_path)
    work, calls = getattr(learner.context.train_step, method), []

    def dies() -> None:
        raise NetworkError("The network thread is dead.")

    def first(batch):
        world.check = dies
        calls.append(batch)
        return work(batch)

    setattr(learner.context.train_step, method, first)
    with pytest.raises(NetworkError, match="dead"):
        learner.run()
    assert len(calls) == 1


def test_the_store_forgets_what_neither_replay_nor_a_restart_needs(toy, tmp_path) -> None:
    learner, _ = build(toy, tmp_path, episodes=80, replay={"capacity": 16})
    context = learner.context
    context.config = context.config.model_copy(update={"store": StoreConfig(max_bytes=1)})
    learner.run()
    assert len(context.replay.ids) == 16
    last_id, ids = context.checkpointer.load()["ingest"]["last_id"], context.store.ids()
    place = ids.index(last_id)
    assert set(ids[: place + 1]) == {*context.replay.ids, last_id}
    since = {context.store.get(name).purpose for name in ids[place + 1 :]}
    assert since == {Purpose.EVAL}, "the last measurement came in after the last checkpoint"
    again, _ = build(toy, tmp_path, "i2", replay={"capacity": 16})
    restore(again.context, again.context.checkpointer.load())
    assert again.context.replay.ids == context.replay.ids


def test_cloning_begins_while_demonstrations_come_in_and_draws_no_more_than_there_are(toy, tmp_path) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "episodes": 60, "updates": 40, "batch_size": 4}
    learner, _ = build(toy, tmp_path, demonstrations=demonstrations, episodes=16)
    engine, demos, seen = learner.context.train_step, learner.context.ingest.demonstrations, []
    clone = engine.clone
    engine.clone = lambda batch: seen.append((len(demos), sum(len(e.steps) for e in demos))) or clone(batch)
    learner.run()
    assert len(seen) == 40
    early = [num_steps for num_demos, num_steps in seen if num_demos < 60]
    assert early, "cloning waited for all demonstrations"
    assert all(4 * (number + 1) <= num_steps for number, num_steps in enumerate(early))
    assert seen[-1][0] == 60


def test_cloning_ends_at_the_loss_that_is_asked_for(toy, tmp_path) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "updates": 400, "until_loss": 0.5}
    learner, _ = build(toy, tmp_path, demonstrations=demonstrations, episodes=16)
    learner.run()
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "loss/cloning" in row]
    assert rows[0]["loss/cloning"] > 0.5
    assert 20 <= rows[-1]["cloning_updates"] < 400, "cloning did not end early"


def test_the_learning_rate_falls_from_the_first_update_on(toy, tmp_path) -> None:
    optim = {**OPTIONS["optim"], "final_lr_fraction": 0.1}
    learner, _ = build(toy, tmp_path, optim=optim, episodes=64, min_replay=32)
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    rates = [row["policy/lr"] for row in rows if "policy/lr" in row]
    assert rates[0] == pytest.approx(0.05)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.005, rel=0.2)
