"""Following a learner's broadcasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distrl.cli.local.watch import LearnerWatch
from distrl.configs.schema import NetworkConfig
from distrl.core.messages import Shutdown, Status
from distrl.core.sockets import Channel, Wire
from distrl.core.types import Record

POLLS = 200


@pytest.fixture
def broadcast() -> Iterator[Channel]:
    with Wire() as wire:
        yield wire.bind_pub("tcp://127.0.0.1:*")


def follow(watch: LearnerWatch, broadcast: Channel, message: Record, heard: Status | None = None) -> None:
    """Repeats a broadcast, as learners do, until the watch has taken it."""
    for _ in range(POLLS):
        broadcast.send(message)
        watch.poll(0.1)
        if watch.is_over or (heard is not None and watch.status == heard):
            return
    raise AssertionError("the broadcast never arrived")


def test_the_newest_status_is_kept_and_a_shutdown_ends_it(broadcast: Channel) -> None:
    with LearnerWatch(NetworkConfig(broadcast=broadcast.endpoint)) as watch:
        watch.poll(0.0)
        assert watch.status is None
        training = Status(run_id="r", phase="training", metrics={"episodes": 3.0})
        follow(watch, broadcast, training, training)
        assert watch.status == training
        assert not watch.is_over
        follow(watch, broadcast, Shutdown(run_id="r"))
        assert watch.is_over
        assert watch.status == training


def test_a_learner_that_is_done_is_over(broadcast: Channel) -> None:
    with LearnerWatch(NetworkConfig(broadcast=broadcast.endpoint)) as watch:
        follow(watch, broadcast, Status(run_id="r", phase="done"))
        assert watch.is_over
