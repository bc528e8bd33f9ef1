"""Leases: phases, expiry, faults, freshness, validation, the state over a restart, which trajectories fit."""

from __future__ import annotations

import json

import pytest
from group_world import GroupWorld

from distrl.configs.learner import LearnerConfig
from distrl.core.messages import Lease, Submit, decode, encode
from distrl.core.types import (
    ActionRecord,
    Chat,
    Completion,
    Fault,
    Observation,
    Purpose,
    Sampling,
    Task,
    TimeStep,
    Trajectory,
)
from distrl.learner.leases import AVOID_S, MAX_ATTEMPTS, LeaseIssuer, sampling_for
from distrl.learner.scheduler import DEMONSTRATIONS, DONE, TRAINING, WARM_UP


class Rig(GroupWorld):
    """Without groups; episodes succeed."""

    def __init__(self, toy, phase=TRAINING, **changes) -> None:
        options = {"demonstrations": {"episodes": 6, "noise": 0.25}, "eval_episodes": 3}
        super().__init__(toy, **{"group_size": 1, **options, **changes})
        self.scheduler.set_phase(phase)

    def finish(self, lease, success=1.0, fault=Fault.NONE, **fields):
        return super().finish(lease, success, fault, **fields)


def test_demonstrations_spread_over_all_tasks_and_stop_at_their_number(toy) -> None:
    rig = Rig(toy, phase=DEMONSTRATIONS)
    leases = rig.lease(50)
    assert len(leases) == 6
    assert {lease.purpose for lease in leases} == {Purpose.DEMO}
    assert {lease.noise for lease in leases} == {0.25}
    assert len({lease.task.id for lease in leases[:5]}) == 5
    assert len({lease.id for lease in leases}) == 6
    assert rig.lease() == []


def test_a_restart_goes_on_with_the_tasks_that_were_not_demonstrated_yet(toy) -> None:
    rig = Rig(toy, phase=DEMONSTRATIONS)
    for lease in rig.lease(3):
        rig.finish(lease)
    again = Rig(toy, phase=DEMONSTRATIONS, incarnation="i1")
    again.store = rig.store
    again.train(replayed=True)
    leases = again.lease(50)
    assert len(leases) == 3
    assert len({one.task.id for one in (*rig.store, *leases[:2])}) == 5


def test_what_a_person_plays_is_a_demonstration_of_that_task(toy) -> None:
    rig = Rig(toy)
    task = rig.lease()[0].task
    lease = rig.scheduler.lease_by_hand("w", 3, task.id)
    assert (lease.task, lease.purpose, lease.by_hand, lease.policy_plays) == (task, Purpose.DEMO, 3, False)
    assert rig.scheduler.lease_by_hand("w", 3, "unknown").task.split == "train"
    rig.finish(lease)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 0


@pytest.mark.parametrize("end", ["release", "expire", "fault"])
def test_what_a_person_gives_up_is_played_by_nobody_else(toy, end) -> None:
    rig = Rig(toy, phase=DEMONSTRATIONS)
    for one in rig.lease(6):
        rig.finish(one)
    lease = rig.scheduler.lease_by_hand("w", 3, "unknown")
    if end == "release":
        rig.scheduler.release("w", [lease.id])
    elif end == "fault":
        rig.finish(lease, fault=Fault.DEVICE)
    else:
        rig.wait(61.0)
    assert rig.lease(worker="other") == []


@pytest.mark.parametrize("phase", [WARM_UP, DONE])
def test_nothing_is_leased_when_nothing_is_wanted(toy, phase) -> None:
    assert Rig(toy, phase=phase).lease(4) == []


def test_tasks_are_drawn_uniformly_and_by_seed(toy) -> None:
    orders = []
    for seed in (1, 1, 2):
        rig = Rig(toy, seed=seed)
        order = []
        for _ in range(20):
            (lease,) = rig.lease()
            rig.finish(lease)
            rig.scheduler.set_updates(len(rig.store))
            order.append(lease.task.id)
        assert all(order.count(task) == 4 for task in set(order))
        orders.append(order)
    assert orders[0] == orders[1] != orders[2]


def test_no_more_is_leased_than_can_still_be_fresh(toy) -> None:
    """4 versions of 2 updates of 2 episodes: 16 episodes may lie between a lease and its training."""
    rig = Rig(toy)
    leases = rig.lease(50)
    assert len(leases) == 16
    assert rig.scheduler.metrics()["scheduler/withheld"] == 1
    for lease in leases[:10]:
        rig.finish(lease)
    assert rig.lease() == []
    assert rig.scheduler.metrics()["scheduler/withheld"] == 2
    rig.scheduler.set_updates(5)
    assert len(rig.lease(50)) == 10


@pytest.mark.parametrize(
    ("purpose", "phase"),
    [(Purpose.DEMO, DEMONSTRATIONS), (Purpose.TRAIN, TRAINING), (Purpose.EVAL, TRAINING)],
)
def test_a_lease_that_is_given_back_is_granted_at_once_and_counts_as_no_attempt(toy, purpose, phase) -> None:
    rig = Rig(toy, phase=phase)
    if purpose is Purpose.EVAL:
        rig.scheduler.start_eval()
    lease = rig.lease(6)[0]
    assert lease.purpose is purpose
    rig.scheduler.release("a stranger", [lease.id])
    assert rig.scheduler.metrics()["scheduler/leases_out"] == 6
    for _ in range(MAX_ATTEMPTS + 1):
        rig.scheduler.release("w", [lease.id, "unknown"])
        (again,) = rig.lease()
        assert (again.task, again.purpose) == (lease.task, purpose)
        assert again.id != lease.id
        lease = again
    rig.wait(61.0)
    assert rig.scheduler.metrics()["scheduler/abandoned"] == 0


def test_an_expired_lease_is_run_again_elsewhere_first(toy) -> None:
    rig = Rig(toy)
    (lease,) = rig.lease(worker="slow")
    rig.now = 59.0
    rig.scheduler.renew("thief", [lease.id])
    rig.scheduler.renew("slow", [lease.id, "unknown"])
    rig.now = 60.0
    rig.scheduler.tick()
    assert rig.scheduler.metrics()["scheduler/expired"] == 0
    rig.now = 119.0
    rig.scheduler.tick()
    assert rig.scheduler.metrics()["scheduler/expired"] == 1
    (other,) = rig.lease(worker="slow")
    assert other.id != lease.id
    (again,) = rig.lease(worker="fast")
    assert again.task == lease.task
    assert again.id != lease.id


def test_a_lease_that_is_renewed_for_ever_is_run_elsewhere_and_the_run_ends(toy) -> None:
    rig = Rig(toy, episodes=1, max_episode_minutes=10.0)
    (stuck,) = rig.lease(worker="stuck")
    for _ in range(19):
        rig.now += 30.0
        rig.scheduler.renew("stuck", [stuck.id])
        rig.scheduler.tick()
    assert rig.lease(worker="other") == [], "a slow episode is left alone"
    rig.now += 30.0
    rig.scheduler.renew("stuck", [stuck.id])
    rig.scheduler.tick()
    (again,) = rig.lease(worker="other")
    assert again.task == stuck.task
    rig.finish(again)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 1
    rig.finish(stuck)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 2, "what comes late is data like any other"


def test_a_task_that_always_faults_is_given_up(toy) -> None:
    rig = Rig(toy, episodes=1)
    tasks = []
    for _ in range(MAX_ATTEMPTS):
        (lease,) = rig.lease()
        tasks.append(lease.task.id)
        rig.finish(lease, fault=Fault.ENV)
        rig.now += AVOID_S
    assert len(set(tasks)) == 1
    assert rig.scheduler.metrics()["scheduler/abandoned"] == 1
    (fresh,) = rig.lease()
    assert fresh.task.id != tasks[0]
    assert rig.scheduler.accounted(Purpose.TRAIN) == 0


def test_evaluation_goes_first_is_greedy_and_uses_the_same_tasks_each_time(toy) -> None:
    rig = Rig(toy)
    seen = []
    for _ in range(2):
        rig.scheduler.start_eval()
        leases = rig.lease(4)
        assert [lease.purpose for lease in leases] == [Purpose.EVAL] * 3 + [Purpose.TRAIN]
        assert {lease.sampling.temperature for lease in leases[:3]} == {0.0}
        assert leases[3].sampling.temperature == 1.0
        assert all(lease.task.split == "val" for lease in leases[:3])
        seen.append([lease.task.id for lease in leases[:3]])
        for lease, success in zip(leases[:3], (1.0, 0.0, 1.0), strict=True):
            rig.finish(lease, success)
        done = rig.scheduler.pop_eval()
        assert done.success == pytest.approx(2 / 3)
        assert rig.scheduler.pop_eval() is None
        assert not rig.scheduler.is_evaluating
    assert seen[0] == seen[1]
    assert rig.scheduler.accounted(Purpose.TRAIN) == 0


def test_a_round_runs_again_what_weights_older_than_it_asks_for_have_done(toy) -> None:
    rig = Rig(toy, eval_episodes=2)
    rig.scheduler.start_eval(min_version=3)
    old, new = rig.lease(2)
    rig.finish(old, 1.0, version=2)
    rig.finish(new, 0.0, version=3)
    assert rig.scheduler.pop_eval() is None
    (again,) = [lease for lease in rig.lease(2) if lease.purpose is Purpose.EVAL]
    assert again.task == old.task
    rig.finish(again, 0.0, version=4)
    done = rig.scheduler.pop_eval()
    assert done.scores == [0.0, 0.0]


def test_state_survives_a_restart_and_what_was_out_is_granted_anew(toy) -> None:
    rig = Rig(toy, max_staleness=100)
    leases = rig.lease(30)
    for index, lease in enumerate(leases[:10]):
        rig.finish(lease, float(index % 2))
    state = json.loads(json.dumps(rig.scheduler.state_dict()))
    again = Rig(toy, seed=7, max_staleness=100)
    again.scheduler.load_state_dict(state)
    assert again.scheduler.state_dict() == state
    assert again.scheduler.accounted(Purpose.TRAIN) == 10
    assert len(again.lease(50)) == 30


@pytest.mark.parametrize("rate", [0.125, 2.0])
def test_another_number_of_updates_per_episode_is_for_the_episodes_to_come(toy, rate) -> None:
    rig = Rig(toy)
    for lease in rig.lease(10):
        rig.finish(lease)
    rig.update()
    assert rig.updates == 5
    again = rig.restart(rig.save(), "i1", updates_per_episode=rate)
    assert again.scheduler.updates_due() == 5
    for lease in again.lease(1):
        again.finish(lease)
    assert again.scheduler.updates_due() == 5 + rate


def test_an_episode_that_cannot_be_read_is_run_again(toy) -> None:
    rig = Rig(toy, episodes=3, updates_per_episode=0.01)
    lost, *others = rig.lease(8)
    assert len(others) == 2
    trajectory = rig.commit(lost)
    rig.scheduler.lose(trajectory.model_copy(update={"steps": ()}))
    rig.taken += 1
    for lease in others:
        rig.finish(lease)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 2
    (again,) = rig.lease(8)
    rig.finish(again)
    assert rig.scheduler.accounted(Purpose.TRAIN) == 3
    assert rig.lease(8) == []


def test_truncation_reaches_training_and_no_measurement() -> None:
    config = LearnerConfig.model_validate({"algorithm": "bc", "top_p": 0.9, "top_k": 5})
    train, measured = (sampling_for(config, purpose) for purpose in (Purpose.TRAIN, Purpose.EVAL))
    assert (train.top_p, train.top_k) == (0.9, 5)
    assert measured == Sampling(temperature=0.0, max_new_tokens=config.max_new_tokens)


TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it", params={"n": (1, 2)}, seed=3)


def played(lease: Lease, name: str = "t", **changes: object) -> Trajectory:
    """As it comes over the wire."""
    answer = Completion(
        text="tap", token_ids=(1,), logprobs=(-1.0,), weight_versions=(1,), sampling=lease.sampling
    )
    step = TimeStep(
        observation=Observation(image="d", width=1, height=1),
        chats=(Chat(messages=(), completion=answer),) if lease.purpose is not Purpose.DEMO else (),
        action=ActionRecord(kind="back"),
    )
    trajectory = Trajectory(
        id=name,
        task=lease.task,
        purpose=lease.purpose,
        lease_id=lease.id,
        worker="w",
        group_id=lease.group_id,
        steps=(step,),
    ).model_copy(update=changes)
    return decode(encode(Submit.of(trajectory))).trajectory


@pytest.mark.parametrize("purpose", Purpose)
def test_a_trajectory_fits_its_lease_also_for_a_later_process_with_other_settings(purpose: Purpose) -> None:
    lease = LeaseIssuer(LearnerConfig(temperature=0.7), b"s").issue("i-1", "w", TASK, purpose, "g", False)
    later = LeaseIssuer(LearnerConfig(temperature=0.9), b"s")
    worded = TASK.model_copy(update={"goal": "As the environment words it"})
    assert later.check(played(lease, task=worded)) == ""
    assert later.check(played(lease, task=worded)) == "", "a resend"
    assert "was fulfilled by the trajectory t" in later.check(played(lease, "t2"))
    assert "was not granted" in LeaseIssuer(LearnerConfig(), b"another run").check(played(lease))
    assert "was not granted" in later.check(played(lease, worker="another"))


@pytest.mark.parametrize("field", ["id", "suite", "template", "split", "params", "seed", "max_steps"])
def test_a_trajectory_of_another_task_does_not_fit(field: str) -> None:
    issuer = LeaseIssuer(LearnerConfig(), b"s")
    lease = issuer.issue("i-1", "w", TASK, Purpose.TRAIN, "", False)
    other = TASK.model_copy(
        update={field: {"params": {"n": 9}, "seed": 4, "max_steps": 99}.get(field, "other")}
    )
    assert "was not granted" in issuer.check(played(lease, task=other))
    assert issuer.check(played(lease)) == "", "what was refused fulfils nothing"


def test_a_demonstration_brings_no_sampled_tokens() -> None:
    issuer = LeaseIssuer(LearnerConfig(), b"s")
    demo, train = (issuer.issue(p.value, "w", TASK, p, "", False) for p in (Purpose.DEMO, Purpose.TRAIN))
    assert issuer.check(played(demo, steps=played(train).steps)) == "a demonstration has no sampled tokens"
