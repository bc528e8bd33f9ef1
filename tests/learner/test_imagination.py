"""Imagined episodes in the learner: which are leased, what they count for, what is learnt from them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from group_world import GroupWorld
from learning_world import build

from distrl.configs.learner import LearnerConfig, ReplayConfig
from distrl.configs.schema import Config
from distrl.core.metrics import read_metrics
from distrl.core.types import Branch, Fault, Outcome, Purpose, TextPart
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.aride import Aride
from distrl.learner.checkpoint import restore, state_of
from distrl.learner.episodes import compile_episode
from distrl.learner.leases import MAX_ATTEMPTS
from distrl.learner.replay import MixedReplay
from distrl.learner.train_step import TrainStep

WORLD = {"model": "oracle", "imagined_per_real": 2, "min_real": 3, "horizon": 4}


class Rig(GroupWorld):
    """Without groups; real episodes have three steps."""

    def __init__(self, toy, world=WORLD, **changes) -> None:
        super().__init__(toy, **{"group_size": 1, "max_staleness": 100, **changes}, world=world)
        self.waiting: list = []

    def real(self, count, success=0.0) -> None:
        """So many real episodes; imagined ones that are leased meanwhile wait."""
        done = 0
        while done < count:
            (lease,) = self.lease()
            if lease.purpose is Purpose.IMAGINED:
                self.waiting.append(lease)
                continue
            self.finish(lease, success)
            done += 1

    def imagined(self, worker="w") -> list:
        """All imagined episodes that are out at `worker` but not begun, or that it can have."""
        leases, self.waiting = self.waiting, []
        while (lease := self.lease(worker=worker)[0]).purpose is Purpose.IMAGINED:
            leases.append(lease)
        self.scheduler.release(worker, [lease.id])
        return leases


def test_there_are_as_many_as_the_real_episodes_after_the_first_ones_entitle_to(toy) -> None:
    rig = Rig(toy)
    rig.real(3)
    assert rig.imagined() == []
    rig.real(1)
    first = rig.imagined()
    assert len(first) == 2
    known = {trajectory.id for trajectory in rig.store}
    for lease in first:
        assert (lease.branch.trajectory in known, lease.branch.horizon) == (True, 4)
        assert lease.branch.discount == rig.config.algorithm.gamma
        assert lease.sampling.temperature == rig.config.temperature
        source = next(t for t in rig.store if t.id == lease.branch.trajectory)
        assert lease.task == source.task
        rig.finish(lease)
    assert rig.imagined() == [], "what is imagined entitles to nothing"
    assert Rig(toy, world={}).lease(20)[-1].purpose is Purpose.TRAIN


def test_which_states_they_start_from_depends_on_the_seed(toy) -> None:
    def starts(seed):
        rig = Rig(toy, seed=seed, world={**WORLD, "imagined_per_real": 8})
        rig.real(6)
        return [(one.branch.trajectory, one.task.id) for one in rig.imagined()]

    assert starts(0) == starts(0) != starts(1)
    assert len(starts(0)) == 24


def test_they_are_no_training_episodes_in_any_count(toy) -> None:
    rig = Rig(toy, task_sampling="weighted")
    rig.real(5)
    before = rig.scheduler._source.state_dict()["recent"]
    for lease in rig.imagined():
        rig.finish(lease, 1.0)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 5
    assert (rig.metric("episodes"), rig.metric("world/episodes")) == (5.0, 4.0)
    assert rig.scheduler._source.state_dict()["recent"] == before
    # They pay for updates, so that real ones are drawn as often as without: half of a batch is imagined.
    assert rig.scheduler.updates_due() == pytest.approx((5 + 4 * 0.5) * rig.config.updates_per_episode)


def test_those_of_a_dead_worker_are_played_again_from_the_same_state(toy) -> None:
    rig = Rig(toy)
    rig.real(4)
    lost = rig.imagined("dead")
    rig.wait(61.0)
    again = rig.imagined("other")
    assert [(one.task, one.branch) for one in again] == [(one.task, one.branch) for one in lost]
    assert rig.metric("scheduler/expired") == 2
    for _ in range(MAX_ATTEMPTS):  # and given up in the end
        for lease in again:
            rig.finish(lease, fault=Fault.ENV)
        rig.wait(11.0)
        again = rig.imagined("third")
    assert rig.scheduler.accounted(Purpose.IMAGINED) == 0
    assert again == [], "others in their place would keep real ones waiting for ever"


def test_an_episode_fits_only_the_branch_that_was_leased(toy) -> None:
    rig = Rig(toy)
    rig.real(4)
    lease = rig.imagined()[0]
    played = rig.commit(lease).model_copy(update={"worker": "w"})
    other = lease.branch.model_copy(update={"trajectory": "another"})
    for changed in ({"branch": other}, {"branch": None}, {"purpose": Purpose.TRAIN}):
        assert "was not granted for this" in rig.scheduler.check(played.model_copy(update=changed))
    assert rig.scheduler.check(played) == ""


def test_the_state_survives_a_restart(toy) -> None:
    rig = Rig(toy)
    rig.real(5)
    for lease in rig.imagined()[:1]:
        rig.finish(lease)
    state = json.loads(json.dumps(rig.scheduler.state_dict()))
    again = Rig(toy, seed=9)
    again.scheduler.load_state_dict(state)
    assert again.scheduler.state_dict() == state
    assert again.imagined() == [], "it has no states to start from"
    for trajectory in rig.store:
        again.scheduler.remember(trajectory)
    assert len(again.imagined()) == 3
    assert {one.branch.trajectory for one in again.imagined()} <= {t.id for t in rig.store}


# ---- replay ----


def mixed(real=8, imagined=8, share=0.5, capacity=8) -> MixedReplay:
    replay = MixedReplay(ReplayConfig(capacity=capacity), 1, share)
    for number in range(real):
        replay.add(f"r{number}")
    for number in range(imagined):
        replay.imagined.add(f"i{number}")
    return replay


@pytest.mark.parametrize(
    ("real", "imagined", "share", "expected"),
    [(8, 8, 0.5, 4), (8, 8, 0.25, 2), (8, 2, 0.5, 2), (8, 0, 0.5, 0), (1, 8, 0.5, 4), (8, 8, 0.1, 0)],
)
def test_a_batch_has_at_most_the_share_that_is_configured(real, imagined, share, expected) -> None:
    replay = mixed(real, imagined, share)
    for _ in range(3):
        entries = replay.sample(8)
        names = replay.names(entries)
        assert sum(name.startswith("i") for name in names) == expected
        assert names == sorted(names, key=lambda name: name.startswith("i")), "real ones come first"
        replay.update(entries, np.full((8, 3), 0.5))


def test_each_has_its_own_priorities_and_place() -> None:
    replay = mixed(4, 4, capacity=4)
    entries = replay.sample(8)
    replay.update(entries, np.array([[1.0, 1.0, 1.0]] * 4 + [[0.0, 0.1, 0.0]] * 4))
    other = mixed(0, 0, capacity=4)
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    assert other.all_ids == replay.all_ids == [f"{kind}{n}" for kind in "ri" for n in range(4)]
    assert other.sample(8).tolist() == replay.sample(8).tolist()
    assert replay.names(replay.refresh_slice()) == replay.all_ids
    assert replay.imagined.add("i4") == "i0"
    replay.discard(["r1", "i2", "unknown"])
    assert (replay.ids, replay.imagined.ids) == (["r0", "r2", "r3"], ["i1", "i3", "i4"])
    assert (len(replay), replay.metrics()["replay/imagined"]) == (3, 3.0)


# ---- what is learnt from them ----


def imagined(toy, name, steps, **changes):
    return toy.trajectory(
        name, steps, purpose=Purpose.IMAGINED, branch=branch_of(toy), **{"truncated": False, **changes}
    )


def branch_of(toy, step=2):
    real = toy.trajectory("real", [toy.step(1, (1,), (-1.0,))] * 4)
    return Branch.of(real, step, horizon=3)


def test_a_cut_branch_bootstraps_from_its_next_prompt_at_its_real_step(toy, policy, critic) -> None:
    message = toy.step(5, (0,), (0.0,), image=7).chats[0].messages
    steps = [toy.step(1, (2,), (-1.0,), image=1), toy.step(2, (3,), (-1.0,), image=2, shaping=0.4)]
    cut = imagined(toy, "cut", steps, truncated=True, outcome=Outcome.UNJUDGED, next_prompt=message)
    batch = toy.batch(policy, cut, toy.trajectory("won", [toy.step(1, (2,), (-1.0,), outcome=1.0)]))
    assert batch.imagined.tolist() == batch.is_open.tolist() == [True, False]
    assert batch.times.tolist() == [2, 3, 0]
    assert batch.final_step.tolist() == [4]
    assert batch.final_prompts.input_ids.tolist() == [[5]]
    assert batch.penalty[0].tolist() == pytest.approx([0.0, 0.4])
    assert batch.part(torch.tensor([1, 0])).times.tolist() == [0, 2, 3]
    limit = imagined(toy, "limit", steps, truncated=True, outcome=Outcome.STEP_LIMIT)
    for trajectory, terminated in ((cut, False), (limit, True)):  # `learner.time_limit: fails` is for limits
        assert compile_episode(trajectory, policy, bootstraps=False).terminated is terminated
    real = toy.trajectory("real", steps, truncated=True, next_prompt=message)
    with_pictures = compile_episode(real, policy)
    assert (with_pictures.terminated, with_pictures.final_prompt) == (False, ()), (
        "a screenshot takes its place"
    )
    blind = tuple(one.model_copy(update={"parts": (TextPart(text="5"),)}) for one in message)
    without = compile_episode(real.model_copy(update={"next_prompt": blind}), policy)
    assert (without.terminated, without.final_images) == (False, ())
    assert without.final_prompt == tuple(policy.prompt_ids(blind))
    assert without.final_step == 1, "the critic knows no later one"


def test_a_cut_branch_is_neither_success_nor_failure_but_what_its_end_is_worth(toy, policy, critic) -> None:
    config = LearnerConfig.model_validate({"algorithm": {"failure_weight": 0.1, "advantage_std_floor": None}})
    message = toy.step(5, (0,), (0.0,), image=7).chats[0].messages
    step = toy.step(1, (2,), (-1.0,), image=1)
    cut = imagined(toy, "cut", [step], truncated=True, outcome=Outcome.UNJUDGED, next_prompt=message)
    batch = toy.batch(policy, cut, toy.trajectory("won", [toy.step(1, (2,), (-1.0,), outcome=1.0)]))
    objective = Aride(config.algorithm, config)
    train_step = TrainStep(policy, critic, objective, config)
    for bias, weight in ((3.0, 1.0), (-3.0, 0.1)):  # the critic finds the last state good, or bad
        with torch.no_grad():
            critic.value.bias.fill_(bias)
        estimates = objective.estimate(batch, train_step._forward(batch).outputs, torch.ones(2))
        assert estimates.success.tolist() == [estimates.values.bootstrap[0], 1.0]
        alike = replace(estimates, advantages=torch.ones(2, 1))
        assert objective.normalised(batch, alike).tolist() == pytest.approx([weight, 1.0])
    metrics = train_step.measure(batch).metrics
    assert metrics["batch/imagined"] == 0.5


def test_digirl_keeps_a_cut_branch_by_what_its_end_is_worth(toy, policy, critic) -> None:
    config = LearnerConfig.model_validate({"algorithm": {"kind": "digirl", "top_fraction": 0.5}})
    message = toy.step(5, (0,), (0.0,), image=7).chats[0].messages
    step = toy.step(1, (2,), (-1.0,), image=1)
    cut = imagined(toy, "cut", [step], truncated=True, outcome=Outcome.UNJUDGED, next_prompt=message)
    lost = toy.trajectory("lost", [step, step, toy.step(1, (2,), (-1.0,), image=1, shaping=0.3)])
    batch = toy.batch(policy, cut, lost)
    with torch.no_grad():
        critic.value.bias.fill_(3.0)
    result = TrainStep(policy, critic, build_algorithm(config), config).measure(batch)
    assert result.metrics["batch/kept_fraction"] == 0.25, "the one step that leads to where success is likely"


RUN = {"model": "oracle", "imagined_per_real": 1, "min_real": 20, "horizon": 1, "max_imagined_share": 0.25}


def test_a_run_learns_from_them_and_counts_only_real_ones(toy, tmp_path) -> None:
    algorithm = {"kind": "ppo", "minibatches": 4}
    learner, world = build(
        toy, tmp_path, world=RUN, episodes=100, replay={"capacity": 32}, algorithm=algorithm
    )
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert (rows[-1]["episodes"], world.played) == (100, 100)
    real = list(world.store.iterate(Purpose.TRAIN))
    assert world.store.count(Purpose.IMAGINED) == rows[-1]["world/episodes"] == 80
    updates = [row for row in rows if "batch/imagined" in row]
    assert max(row["batch/imagined"] for row in updates) == 0.25
    # Each pays for a third of an update's worth, because it takes a quarter of a batch.
    assert learner.progress.updates == int((100 + 80 / 3) * 0.5)
    successes = [one.success for one in real]
    assert updates[-1]["train/success"] == pytest.approx(sum(successes) / 100, abs=0.05)
    ingest = learner.context.ingest
    assert ingest.metrics()["train/success"] == pytest.approx(sum(successes) / 100)
    used = [json.loads(line) for line in (tmp_path / "trained.jsonl").read_text().splitlines()]
    assert {line["id"] for line in used} & {one.id for one in world.store.iterate(Purpose.IMAGINED)}
    outcomes = {one.id: one.success for one in real}
    for row in updates:
        drawn = [line["id"] for line in used if line["update"] == row["step"] and line["id"] in outcomes]
        assert row["batch/success"] == pytest.approx(sum(map(outcomes.get, drawn)) / len(drawn))


def test_both_buffers_come_back_after_a_restart(toy, tmp_path) -> None:
    learner, _ = build(toy, tmp_path, world=RUN, stop_after=60)
    learner.run()
    context = learner.context
    context.scheduler._void = 1
    context.checkpointer.save(10**6, json.loads(json.dumps(state_of(context))))
    again, _ = build(toy, tmp_path, incarnation="i2", world=RUN)
    restore(again.context, again.context.checkpointer.load())
    assert again.context.replay.imagined.ids
    assert again.context.replay.all_ids == context.replay.all_ids
    assert set(again.context.ingest.episodes) == set(context.replay.all_ids)
    assert again.context.scheduler._void == 1, "those that came to nothing are not replaced"
    again.context.scheduler.set_phase("training")
    leases = again.context.scheduler.grant("w", 64)
    assert Purpose.IMAGINED in {lease.purpose for lease in leases}, "from states of before the restart"


def test_a_run_may_be_resumed_without_a_world_model_and_with_one_again(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, world=RUN, stop_after=60)
    learner.run()
    late = next(lease for lease in world.scheduler.grant("w", 8) if lease.purpose is Purpose.IMAGINED)
    world.store.add(world.play(late), world.toy.pixels)  # it has come since the checkpoint
    counts = learner.context.scheduler.accounted

    def resumed(incarnation, world):
        again, _ = build(toy, tmp_path, incarnation=incarnation, world=world)
        restore(again.context, again.context.checkpointer.load())
        return again.context

    without = resumed("i2", {})
    assert set(without.ingest.episodes) == set(without.replay.ids)
    assert without.scheduler.accounted(Purpose.IMAGINED) == counts(Purpose.IMAGINED), "it pays for nothing"
    without.progress.updates += 1
    without.checkpointer.save(without.progress.updates, json.loads(json.dumps(state_of(without))))
    again = resumed("i3", RUN)
    assert (again.replay.ids, again.replay.imagined.ids) == (without.replay.ids, [])
    again.scheduler.set_phase("training")
    assert Purpose.IMAGINED in {lease.purpose for lease in again.scheduler.grant("w", 64)}


def test_updates_that_are_due_are_forgiven_when_only_imagined_ones_are_left(toy, tmp_path) -> None:
    context = build(toy, tmp_path, world=RUN, min_replay=1)[0].context
    steps = [toy.step(1, (1,), (-1.0,))]
    for one in (toy.trajectory("real", steps), imagined(toy, "imagined", steps)):
        context.store.add(one, toy.pixels)
        context.ingest.take(one)
    assert context.scheduler.updates_due() > 0.5
    context.ingest.drop(["real"])
    context.ingest.drain(0.0)
    assert context.scheduler.updates_due() == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": {"kind": "browser"}}, "env.kind=browser does not"),
        ({"devices": {"pool": [{"kind": "sim"}]}}, "devices.pool does not"),
        ({"learner": {"algorithm": "grpo"}}, "learner.algorithm=grpo does not learn from imagined"),
        (
            {
                "agent": {"kind": "mobile-use", "options": {"mode": "incremental"}},
                "policy": {"kind": "hub", "model": "m"},
            },
            "mode=incremental",
        ),
    ],
)
def test_what_cannot_be_imagined_is_refused(changes, said) -> None:
    with pytest.raises(ValueError, match=said):
        Config.model_validate({"world": {"model": "oracle"}, **changes})
    Config.model_validate(changes)
