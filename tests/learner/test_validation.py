"""Validation: which episodes a round measures, what its result leads to, checkpoints and the store."""

from __future__ import annotations

from collections import deque
from itertools import count

import pytest
import torch
from learning_world import build

from distrl.core import checkpoints
from distrl.core.errors import NotStored
from distrl.core.metrics import read_metrics
from distrl.core.types import Fault, Outcome
from distrl.learner.groups import EvalRound


def play_round(learner, world, verdicts: list[float | None], fault: Fault = Fault.NONE) -> None:
    """A round in which each task's episodes succeed as `verdicts` says; None: with `fault`, or unjudged."""
    learner.validation.start()
    number, plan = count(), {}
    while learner.context.scheduler.is_evaluating:
        # Of another worker each time: the last one would have to wait.
        for lease in world.scheduler.grant(f"w{next(number)}", len(verdicts)):
            verdict = plan.setdefault(lease.task.id, verdicts[len(plan) % len(verdicts)])
            changes = {"success": verdict, "outcome": Outcome.SUCCESS if verdict else Outcome.FAILURE}
            if verdict is None:
                changes = {"fault": fault, "outcome": Outcome.UNJUDGED}
            episode = world.play(lease).model_copy(update=changes)
            world.scheduler.finish(episode)
            world.scheduler.account(episode)
    learner.validation.finish()


@pytest.mark.parametrize("fault", [Fault.DEVICE, Fault.NONE])
def test_a_round_in_which_nothing_was_measured_has_no_result_and_is_never_the_best(
    toy, tmp_path, fault: Fault
) -> None:
    """Its episodes all faulted until they were given up, or none has a verdict."""
    learner, world = build(toy, tmp_path, phase="training", eval_episodes=2)
    play_round(learner, world, [None, None], fault)
    assert not [row for row in read_metrics(tmp_path / "metrics.jsonl") if "eval/val/success" in row]
    assert checkpoints.pointed(tmp_path / "checkpoints", "best") is None
    assert checkpoints.pointed(tmp_path / "checkpoints", "latest") == "step_0"


@pytest.mark.parametrize("fault", [Fault.INFERENCE, Fault.NONE])
def test_a_round_of_which_most_was_not_measured_is_written_but_never_the_best(
    toy, tmp_path, caplog, fault: Fault
) -> None:
    learner, world = build(toy, tmp_path, phase="training", eval_episodes=4)
    found = []
    for updates, verdicts in ((10, [1, 1, 0, 0]), (20, [1, None, None, None]), (30, [1, 1, 1, 0])):
        learner.progress.updates = updates
        world.scheduler.set_updates(updates)
        play_round(learner, world, verdicts, fault)
        found.append(checkpoints.pointed(tmp_path / "checkpoints", "best"))
    assert found == ["step_10", "step_10", "step_30"]
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "eval/val/success" in row]
    assert [row["eval/val/success"] for row in rows] == [0.5, 1.0, 0.75]
    (told,) = [line for line in caplog.messages if "cannot be the best" in line]
    assert "validation after 20 updates" in told
    given_up = 3 if fault is Fault.INFERENCE else 0
    assert f"only 1 of its 4 episodes were measured, {given_up} were given up" in told


def test_a_round_under_way_is_not_cut_short_by_the_next(toy, tmp_path) -> None:
    learner, world = build(
        toy, tmp_path, phase="training", eval_episodes=3, eval_every=10, checkpoint_every=5
    )
    begun, start_eval = [], world.scheduler.start_eval
    world.scheduler.start_eval = lambda version: begun.append(learner.progress.updates) or start_eval(version)
    for updates in range(1, 51):
        if updates == 50:  # it ends during this update
            assert checkpoints.checkpoints(tmp_path / "checkpoints")[0] == "step_10", "it is being measured"
            for lease in world.scheduler.grant("w", 3):
                world.scheduler.account(world.play(lease))
        learner.progress.updates = updates
        world.scheduler.set_updates(updates)
        learner.validation.after_update()
    assert begun == [10, 50]
    assert checkpoints.pointed(tmp_path / "checkpoints", "best") == "step_10"
    assert checkpoints.pointed(tmp_path / "checkpoints", "latest") == "step_50"


def test_the_last_round_is_waited_for_as_long_as_somebody_is_at_work_on_it(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, phase="training", eval_episodes=3)
    context, polls = learner.context, count()
    ticks = count(step=30)
    context.clock.now = lambda: float(next(ticks))  # every look at the clock takes a quarter of lease_ttl_s
    played = []

    def drain(timeout_s: float) -> int:
        number = next(polls)
        if number == 0:
            played.extend(world.play(lease) for lease in world.scheduler.grant("w", 3))
        elif number >= 20 and played:
            episode = played.pop()
            world.scheduler.finish(episode)
            world.scheduler.account(episode)
        return 0

    world.check = lambda: None
    context.ingest.drain = drain
    learner.validation.last(world.stop)
    (row,) = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "eval/val/success" in row]
    assert row["eval/val/episodes"] == 3


def test_the_last_round_ends_although_a_server_never_takes_the_final_weights(toy, tmp_path, caplog) -> None:
    learner, world = build(toy, tmp_path, phase="training", eval_episodes=3)
    world.publish_weights = lambda info, data: None
    ticks = count(step=30)
    learner.context.clock.now = lambda: float(next(ticks))
    learner.validation.last(world.stop)
    assert "no episode by these weights ended for 135 minutes" in caplog.text
    assert checkpoints.pointed(learner.context.checkpointer.directory, "final") == "step_0"


@pytest.mark.parametrize("policy_lag", [0, 2])
def test_a_round_between_two_publications_is_played_by_the_weights_of_its_checkpoint(
    toy, tmp_path, policy_lag
) -> None:
    """With a lag rounds act with what is announced: one that moved it on would shorten the lag."""
    learner, world = build(
        toy, tmp_path, episodes=80, eval_every=10, publish_every=8, policy_lag=policy_lag,
        keep_best=not policy_lag,
    )  # fmt: skip
    begun: dict[int, tuple[int, bool]] = {}
    start_eval = world.scheduler.start_eval

    def note(min_version: int) -> None:
        own = learner.context.train_step.policy.head.weight
        is_own = torch.equal(world.acting.head.weight, own)
        begun[learner.progress.updates] = (learner.context.publisher.version, is_own)
        start_eval(min_version)

    world.scheduler.start_eval = note
    learner.run()
    if policy_lag:
        assert begun == {0: (1, True), 10: (2, False), 20: (3, False), 30: (4, False), 40: (7, True)}
    else:
        assert begun == {0: (1, True), 10: (3, True), 20: (5, True), 30: (7, True), 40: (10, True)}


def episode(toy, lease: str, version: int = 0, **reward: float):
    """An episode of one step under a lease."""
    return toy.trajectory(lease, [toy.step(0, (1,), (-0.1,), version=version, **reward)], lease_id=lease)


def test_the_mean_of_each_part_is_over_the_scored_episodes_of_the_round(toy) -> None:
    done = EvalRound(7, 4, deque(), leases={name: toy.task(0, "val") for name in "abcd"})
    done.account(episode(toy, "a", outcome=1.0, repetition=-0.1), 1.0)
    done.account(episode(toy, "b", repetition=-0.3, invalid=-0.2), 0.0)
    done.account(episode(toy, "c", repetition=-9.0), None)  # without a verdict
    done.account(episode(toy, "other", outcome=9.0), 1.0)
    done.give_up("d")
    assert done.is_complete
    assert done.success == 0.5
    assert done.mean_rewards == pytest.approx(
        {"outcome": 0.5, "repetition": -0.2, "invalid": -0.1, "shaping": 0.0}
    )


def test_trackers_get_pictures_of_the_newest_episodes_of_a_round(toy, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("distrl.core.filmstrip.LEAST", 1)
    learner, _ = build(toy, tmp_path, episodes=30, eval_every=10)
    shown = []
    monkeypatch.setattr(learner.context.report.writer, "show", lambda step, make: shown.append((step, make)))
    learner.run()
    assert shown[0][0] == 0
    names = [f"pictures/validation-{n}" for n in (1, 2, 3)]
    assert list(shown[-1][1]()) == names
    monkeypatch.setattr(learner.context.store, "get", lambda name: raise_not_stored())
    assert shown[-1][1]() == {}, "they were deleted before a slow tracker got to them"


def raise_not_stored() -> None:
    raise NotStored("gone")
