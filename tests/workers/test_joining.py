"""Waiting for a learner: with an end, with a stop flag, with the setting that may be wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_learner import SmallLearner

from distrl.core.errors import LearnerUnreachable
from distrl.core.sockets import Wire
from distrl.workers.client import LearnerLink
from distrl.workers.joining import wait_for_learner

WAIT_S = 30.0
NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as wire:
        yield wire


def test_a_learner_that_answers(wire: Wire, tmp_path: Path) -> None:
    said: list[str] = []
    with SmallLearner([], tmp_path) as learner:
        address = learner.endpoints.control
        link = LearnerLink(wire, address, learner.endpoints.broadcast, "monitor", "m")
        link.start()
        assert wait_for_learner(link, address, "network.control", WAIT_S, threading.Event(), said.append)
        link.close()
    assert said == [f"looking for the learner at {address}, for up to 30 s"]


def test_nobody_there(wire: Wire) -> None:
    link = LearnerLink(wire, NOBODY, NOBODY, "monitor", "m")
    link.start()
    with pytest.raises(LearnerUnreachable, match=r"No learner answered .* within 0\.1 s.*correct --learner;"):
        wait_for_learner(link, NOBODY, "--learner", 0.1, threading.Event())
    link.close()


def test_a_stop_or_the_end_of_the_run_ends_the_wait(wire: Wire) -> None:
    link = LearnerLink(wire, NOBODY, NOBODY, "monitor", "m")
    stop = threading.Event()
    stop.set()
    assert not wait_for_learner(link, NOBODY, "--learner", WAIT_S, stop)
    link.shutdown.set()
    assert not wait_for_learner(link, NOBODY, "--learner", WAIT_S, threading.Event())
