"""How a lease asks for actions to be drawn, and which trajectories fit one."""

from __future__ import annotations

from typing import Any

import pytest

from distrl.configs.learner import LearnerConfig
from distrl.core.messages import Lease, Submit, decode, encode
from distrl.core.types import (
    ActionRecord,
    Chat,
    Completion,
    Observation,
    Purpose,
    Sampling,
    Task,
    TimeStep,
    Trajectory,
)
from distrl.learner.context import TRAINING
from distrl.learner.leases import LeaseIssuer, sampling_for
from distrl.learner.scheduler import TaskScheduler


@pytest.mark.parametrize("algorithm", ["aride", "bc"])
def test_sampling_is_untruncated_unless_asked_otherwise(algorithm: str) -> None:
    config = LearnerConfig.model_validate({"algorithm": algorithm, "temperature": 0.7, "max_new_tokens": 9})
    expected = Sampling(temperature=0.7, top_p=1.0, top_k=0, max_new_tokens=9)
    assert sampling_for(config, Purpose.TRAIN) == expected


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
    lease = LeaseIssuer(LearnerConfig(temperature=0.7), b"s").issue("i-1", "w", TASK, purpose, "g")
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
    lease = issuer.issue("i-1", "w", TASK, Purpose.TRAIN, "")
    other = TASK.model_copy(
        update={field: {"params": {"n": 9}, "seed": 4, "max_steps": 99}.get(field, "other")}
    )
    assert "was not granted" in issuer.check(played(lease, task=other))
    assert issuer.check(played(lease)) == "", "what was refused fulfils nothing"


def test_a_demonstration_brings_no_sampled_tokens() -> None:
    issuer = LeaseIssuer(LearnerConfig(), b"s")
    demo, train = (issuer.issue(p.value, "w", TASK, p, "") for p in (Purpose.DEMO, Purpose.TRAIN))
    assert issuer.check(played(demo, steps=played(train).steps)) == "a demonstration has no sampled tokens"


def test_a_trajectory_fits_after_its_lease_expired(toy: Any) -> None:
    now = 0.0
    config = LearnerConfig(lease_ttl_s=10.0)
    scheduler = TaskScheduler(config, [toy.task(0)], [], 0, "i", b"s", lambda: now)
    scheduler.set_phase(TRAINING)
    (lease,) = scheduler.grant("w", 1)
    now = 11.0
    scheduler.tick()
    assert scheduler.metrics()["scheduler/expired"] == 1
    assert "was not granted" in scheduler.check(played(lease, group_id="g9"))
    assert scheduler.check(played(lease)) == ""
