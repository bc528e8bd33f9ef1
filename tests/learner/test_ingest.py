"""Ingest: what is wrong with one trajectory affects it alone; unusable episodes do not count."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sqlite3
import threading
from dataclasses import replace

import pytest
import torch
from learning_world import build

from distrl.core.errors import NotFinite
from distrl.core.policies.images import ImageCache
from distrl.core.types import Fault, Outcome, Purpose, Sampling
from distrl.learner.checkpoint import restore, state_of
from distrl.learner.context import publish
from distrl.learner.ingest import MANY_IN_VAIN
from distrl.learner.warm_start import critic_warm_up


def come(learner, world, count, spoil=lambda trajectory: trajectory, **changes) -> list[str]:
    """So many training episodes arrive; `spoil` and `changes` change them. Returns their ids."""
    names = []
    for lease in world.scheduler.grant("w", count):
        trajectory = spoil(world.play(lease).model_copy(update=changes))
        world.store.add(trajectory, world.toy.pixels)
        world.scheduler.finish(trajectory)
        world.queue.put_nowait(trajectory)
        learner.context.ingest.drain(0.0)
        names.append(trajectory.id)
    assert len(names) == count, "not all were leased"
    return names


def make_updates(learner) -> int:
    before = learner.progress.updates
    while learner.updates.owed() >= 1:
        learner.updates.make()
    return learner.progress.updates - before


def ready(toy, path, **changes):
    learner, world = build(toy, path, phase="training", min_replay=4, batch_trajectories=4, **changes)
    publish(learner.context)
    return learner, world


def test_one_that_cannot_be_read_is_quarantined_and_never_taken_again(toy, tmp_path, caplog) -> None:
    learner, world = ready(toy, tmp_path)
    good = come(learner, world, 4)
    (bad,) = come(learner, world, 1, **unreadable(toy))
    assert make_updates(learner) == 2
    (row,) = world.store.quarantined()
    assert row.id == bad
    assert row.reason
    assert learner.updates.skipped.count == 0
    assert learner.context.ingest.metrics()["ingest/quarantined"] == 1.0
    learner.context.checkpointer.save(2, state_of(learner.context))

    caplog.clear()
    for number in range(2):  # from the checkpoint, and from the store alone
        again, _ = ready(toy, tmp_path, incarnation=f"i{number}")
        if number:
            again.context.ingest.restore()
        else:
            restore(again.context, again.context.checkpointer.load())
        assert sorted(again.context.ingest.episodes) == sorted(good)
        again.updates.close()
    assert "is quarantined" not in caplog.text, "it was not even looked at"


def test_a_demonstration_that_no_memory_has_room_for_is_quarantined(toy, tmp_path, monkeypatch) -> None:
    learner, world = ready(toy, tmp_path)
    monkeypatch.setattr(type(learner.context.train_step.policy), "max_prompt_tokens", 8)
    count = 8 + learner.context.config.learner.max_new_tokens
    for number, length in enumerate((count - 1, count)):
        step = toy.step(0, (1,) * length, (0.0,) * length)
        trajectory = toy.trajectory(f"d{number}", [step], purpose=Purpose.DEMO)
        world.store.add(trajectory, toy.pixels)
        learner.context.ingest.take(trajectory)
    assert [episode.id for episode in learner.context.ingest.demonstrations] == ["d0"]
    (row,) = world.store.quarantined()
    assert row.id == "d1"
    assert f"A sequence has {count + 1} tokens" in row.reason


@pytest.mark.parametrize("rehearsal", [0.0, 0.5])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_people_play_after_the_warm_start_is_kept_only_to_be_rehearsed(
    toy, tmp_path, rehearsal, is_resumed
) -> None:
    learner, world = ready(toy, tmp_path, demonstrations={"rehearsal": rehearsal})
    ingest = learner.context.ingest
    if is_resumed:
        ingest.restore(ingest.state_dict())
    else:
        ingest.end_warm_start()
    played = toy.trajectory("d", [toy.step(0, (1,), (0.0,))], purpose=Purpose.DEMO)
    world.store.add(played, toy.pixels)
    ingest.take(played)
    assert [one.id for one in ingest.demonstrations] == (["d"] if rehearsal else [])
    assert learner.context.scheduler.accounted(Purpose.DEMO) == 1


def answered(trajectory, **changes):
    """The trajectory with completions of which these fields are changed."""

    def change(step):
        (chat,) = step.chats
        completion = chat.completion.model_copy(update=changes)
        return step.model_copy(update={"chats": (chat.model_copy(update={"completion": completion}),)})

    return trajectory.model_copy(update={"steps": tuple(map(change, trajectory.steps))})


def test_a_demonstration_with_too_many_pixels_is_quarantined(toy, tmp_path, monkeypatch) -> None:
    learner, world = ready(toy, tmp_path)
    monkeypatch.setattr("distrl.core.policies.images.MAX_TOTAL_PIXELS", 2 * 4)  # two pictures
    for name, first in (("two", 0), ("three", 2)):
        # Text, as the expert sends it: its pictures are decoded to tokenise the prompt.
        steps = [toy.step(0, (1,), (0.0,), image=first + image) for image in range(2 + (name == "three"))]
        demonstration = toy.trajectory(name, steps, purpose=Purpose.DEMO)
        world.store.add(demonstration, toy.pixels)
        learner.context.ingest.take(answered(demonstration, token_ids=(), logprobs=()))
    assert [episode.id for episode in learner.context.ingest.demonstrations] == ["two"]
    (row,) = world.store.quarantined()
    assert (row.id, "have 12 pixels together" in row.reason) == ("three", True)


@pytest.mark.parametrize(("bad", "num_updates"), [({2}, 4), (set(range(8)), 0), ({2}, None)])
def test_what_cannot_be_drawn_is_quarantined_and_the_others_are_learnt_from(
    toy, tmp_path, bad, num_updates
) -> None:
    """By updates of the policy, or of the critic alone."""
    learner, world = ready(toy, tmp_path)
    names = come(learner, world, 8)
    episodes = learner.context.ingest.episodes
    broken = {names[number] for number in bad}
    for name in broken:
        episodes[name] = replace(episodes[name], oldest_version=2**64 - 1)  # no int64
    if num_updates is None:
        assert learner.updates.fit_critic() is not None
    else:
        assert make_updates(learner) == num_updates
    assert {row.id for row in world.store.quarantined()} == broken
    assert broken.isdisjoint(learner.context.replay.ids)


HOT = Sampling(temperature=3.0)
"""By which a pass recognises the one that it fails at."""


@pytest.mark.parametrize("where", ["update", "mismatch", "refresh", "critic warm-up", "cloning", "rehearsal"])
@pytest.mark.parametrize("value_recompute", [True, False])
def test_one_that_cannot_be_scored_is_quarantined(toy, tmp_path, where, value_recompute) -> None:
    options = {"mismatch": {"every": 1}, "demonstrations": {"rehearsal": float(where == "rehearsal")}}
    options["value_recompute"] = value_recompute
    learner, world = build(toy, tmp_path) if where == "cloning" else ready(toy, tmp_path, **options)
    come(learner, world, 7)
    (bad,) = come(learner, world, 1, lambda trajectory: answered(trajectory, sampling=HOT))
    come(learner, world, 4 if where == "cloning" else 0)
    engine = learner.context.train_step
    if where == "refresh":
        make_updates(learner)
    if where == "rehearsal":
        ingest = learner.context.ingest
        ingest.demonstrations += ingest.episodes.values()
        learner.context.replay.discard([bad])
        del ingest.episodes[bad]
        add = engine._add_cloning
        engine._add_cloning = lambda optimiser, steps, weight: check(steps) or add(optimiser, steps, weight)
    clone, logprobs, read = engine.clone, engine.logprobs, engine.algorithm.forward

    def check(steps):
        if (steps.temperature == 3.0).any():
            raise IndexError("out of range")

    if where in ("mismatch", "cloning"):
        engine.logprobs = lambda steps, *more: check(steps) or logprobs(steps, *more)
    engine.clone = lambda steps: check(steps) or clone(steps)
    engine.algorithm.forward = lambda one, other, rows: check(rows.steps) or read(one, other, rows)
    if where == "refresh":
        learner.updates._refresh()
    elif where == "cloning":
        learner.start_warm()
        assert learner.progress.is_warm
    elif where == "critic warm-up":
        assert critic_warm_up(learner.context, learner.updates, threading.Event())
    else:
        make_updates(learner)
    (row,) = world.store.quarantined()
    assert (row.id, row.reason) == (bad, "IndexError: out of range")
    assert bad not in learner.context.replay.ids
    assert bad not in [episode.id for episode in learner.context.ingest.demonstrations]


def test_the_episodes_of_a_skipped_batch_can_be_drawn_again(toy, tmp_path) -> None:
    learner, world = ready(toy, tmp_path, replay={"priority": "uniform"})
    names = come(learner, world, 8)
    engine = learner.context.train_step
    update, engine.update = engine.update, lambda batch, progress: None
    learner.updates.make()
    engine.update = update
    make_updates(learner)
    replay = learner.context.replay
    assert {name for _ in range(50) for name in replay.names(replay.sample(4))} == {*names}


@pytest.mark.parametrize("updates_enabled", [True, False])
def test_one_whose_scores_are_not_finite_is_quarantined(toy, tmp_path, updates_enabled) -> None:
    learner, world = ready(toy, tmp_path, updates_enabled=updates_enabled)
    names = come(learner, world, 8)
    if updates_enabled:
        make_updates(learner)
    measure = learner.context.train_step.measure

    def spoil(batch):
        result = measure(batch)
        result.priorities[[name == names[5] for name in batch.ids]] = math.nan
        return result

    learner.context.train_step.measure = spoil
    if updates_enabled:
        learner.updates._refresh()
    else:
        make_updates(learner)
    assert [row.id for row in world.store.quarantined()] == [names[5]]


def test_what_fails_with_every_trajectory_is_not_theirs(toy, tmp_path) -> None:
    learner, world = ready(toy, tmp_path)
    come(learner, world, 4)

    def fail(batch, outputs):
        raise RuntimeError("the device is lost")

    learner.context.train_step.algorithm.loss = fail
    with pytest.raises(RuntimeError, match="the device is lost"):
        learner.updates.make()
    assert world.store.quarantined() == []


def state(learner) -> list[torch.Tensor]:
    engine = learner.context.train_step
    weights = [*engine.policy.state_dict().values(), *engine.critic.state_dict().values()]
    moments = [
        value
        for optimiser in ("actor", "value")
        for entry in engine.state_dict()[optimiser]["state"].values()
        for value in entry.values()
    ]
    return [value.clone() for value in (*weights, *moments)]


@pytest.mark.parametrize("micro_batch_tokens", [None, 8])
def test_a_batch_that_is_not_finite_changes_nothing_and_ten_in_a_row_end_the_run(
    toy, tmp_path, micro_batch_tokens
) -> None:
    learner, world = ready(toy, tmp_path, updates_per_episode=2.0, micro_batch_tokens=micro_batch_tokens)
    names = come(learner, world, 8)
    learner.updates.make()
    before = state(learner)
    algorithm = learner.context.train_step.algorithm
    judge, bad = algorithm.loss, []

    def infinite(batch, outputs):
        bad.extend(batch.ids)
        result = judge(batch, outputs)
        return replace(result, critic_loss=result.critic_loss * math.inf)

    algorithm.loss = infinite
    for _ in range(9):
        learner.update()
    assert learner.progress.updates == 1
    algorithm.loss = judge
    assert all(torch.equal(one, other) for one, other in zip(before, state(learner), strict=True))
    learner.update()
    assert learner.progress.updates == 2
    assert learner.updates.skipped.count == 9
    bad.clear()
    algorithm.loss = infinite
    for _ in range(9):
        learner.update()
    with pytest.raises(NotFinite, match="not finite in 10 batches in a row") as caught:
        learner.update()
    named = [name for name in names if name in str(caught.value)]
    assert sorted(named) == sorted(set(bad))
    assert learner.context.checkpointer.load() is not None, "what was learnt before is saved"


def die_at(toy, path, bad: str, incarnation: str) -> None:
    """A learner that starts, and whose process is killed when it compiles `bad`."""
    from distrl.learner import ingest

    compile_episode = ingest.compile_episode

    def deadly(trajectory, *arguments):
        if trajectory.id == bad:
            os.kill(os.getpid(), signal.SIGKILL)
        return compile_episode(trajectory, *arguments)

    ingest.compile_episode = deadly
    learner, _ = ready(toy, path, incarnation=incarnation)
    learner.context.ingest.restore()
    os._exit(len(learner.context.ingest.episodes))


def test_what_kills_the_learner_twice_is_quarantined(toy, tmp_path) -> None:
    learner, world = ready(toy, tmp_path)
    names = come(learner, world, 6)
    world.store.close()
    fork = multiprocessing.get_context("fork")
    ends = []
    for number in range(3):
        process = fork.Process(target=die_at, args=(toy, tmp_path, names[3], f"i{number}"))
        process.start()
        process.join(60.0)
        ends.append(process.exitcode)
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 5]
    again, world = ready(toy, tmp_path, incarnation="i4")
    (row,) = world.store.quarantined()
    assert (row.id, row.reason) == (names[3], "the learner died twice during its compilation")
    again.context.ingest.restore()
    assert sorted(again.context.ingest.episodes) == sorted(set(names) - {names[3]})


def test_a_learner_that_is_killed_for_other_reasons_loses_nothing(toy, tmp_path) -> None:
    learner, world = ready(toy, tmp_path)
    names = come(learner, world, 4)
    note = tmp_path / ".in_work.json"
    in_update = f'{{"suspects":[],"work":[["update",["{names[0]}","{names[1]}"]]]}}\n'
    for number in range(2):  # killed in the midst of an update, and again some updates later
        note.write_text(in_update)
        learner.updates.close()
        learner, world = ready(toy, tmp_path, incarnation=f"j{number}")
        learner.context.ingest.restore()
        assert make_updates(learner) >= 1
    assert world.store.quarantined() == []
    assert learner.context.scheduler.accounted(Purpose.TRAIN) == 4


def test_a_restart_continues_without_a_trajectory_that_is_damaged(toy, tmp_path, caplog) -> None:
    learner, world = ready(toy, tmp_path)
    names = come(learner, world, 3)
    world.store.close()
    with sqlite3.connect(tmp_path / "store.sqlite3") as store:
        store.execute("UPDATE trajectories SET body = x'00' WHERE id = ?", [names[1]])
    again, _ = ready(toy, tmp_path, incarnation="i2")
    again.context.ingest.restore()
    assert again.context.replay.ids == [names[0], names[2]]
    assert f"trajectory {names[1]} is lost to training" in caplog.text


UNJUDGED = {"outcome": Outcome.UNJUDGED}


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


def test_pictures_that_will_be_read_are_announced_as_far_as_the_cache_has_room(toy, tmp_path) -> None:
    ingest = build(toy, tmp_path)[0].context.ingest
    announced: list[list[str]] = []
    ingest._images = ImageCache(toy.policy().image, lambda digests: toy.pixels, max_bytes=72)  # six pictures
    ingest._images.announce = announced.append
    ingest._images.get([toy.digests[0]])
    steps = [toy.step(1, (1,), (-1.0,), image=n) for n in (1, 2, 1)]
    names = ["first", "fault", "eval", "text", "second", "third"]
    first, fault, played, text, second, third = (toy.trajectory(name, steps) for name in names)
    fault, played = (
        fault.model_copy(update={"fault": Fault.DEVICE}),
        played.model_copy(update={"purpose": Purpose.EVAL}),
    )
    for one in (first, fault, played, text.model_copy(update={"steps": ()}), second):
        ingest.announce(one)
    shown = sorted(toy.digests[1:3])
    assert announced == [shown], "the second would need more than half of it"
    ingest.take(first)
    ingest.announce(third)
    assert announced == [shown, shown]


def test_what_arrives_while_the_learner_ends_is_not_announced(toy, tmp_path) -> None:
    ingest = build(toy, tmp_path)[0].context.ingest
    ingest.close()
    ingest.announce(toy.trajectory("late", [toy.step(1, (1,), (-1.0,), image=1)]))
