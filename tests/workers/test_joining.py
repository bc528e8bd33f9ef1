"""Waiting for a learner: with an end, with a stop flag, with the setting that may be wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from small_learner import SmallLearner
from waiting import until

from distrl.core.errors import LearnerUnreachable
from distrl.core.messages import Reject, RejectCode, encode
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
    assert said == [f"waiting for the learner at {address} (at most 30 s)"]


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


class Foreigner:
    """A learner of another version: whatever it is told, it answers with `answer`."""

    def __init__(self, wire: Wire, answer: bytes) -> None:
        self.channel = wire.bind_router("tcp://127.0.0.1:*")
        self.count = 0
        self._answer, self._stopping = answer, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            received = self.channel.recv(0.02)
            if received is not None:
                self.channel.raw.send_multipart([received.peer, self._answer])
                self.count += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.channel.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (msgpack.packb({"v": 99, "type": "welcome"}), r"protocol version 99 is not \d+\."),
        (encode(Reject(code=RejectCode.MALFORMED, reason="role: unknown")), r"role: unknown \(malformed\)\."),
    ],
)
def test_another_version_is_told_and_does_not_fill_the_log(
    wire: Wire, caplog, answer: bytes, why: str
) -> None:
    learner = Foreigner(wire, answer)
    address = learner.channel.endpoint
    link = LearnerLink(wire, address, NOBODY, "monitor", "m")
    link.start()
    until(lambda: learner.count >= 3 and link.misfit)
    with pytest.raises(
        LearnerUnreachable, match=rf"does not understand this process: .*{why} Run the same distrl version"
    ):
        wait_for_learner(link, address, "--learner", None, threading.Event())
    link.close()
    learner.stop()
    assert caplog.text.count("does not understand this process") == 1


def test_without_a_limit_it_waits_and_reminds_every_half_minute(wire: Wire) -> None:
    link = LearnerLink(wire, NOBODY, NOBODY, "monitor", "m")
    link.start()
    said: list[str] = []
    stop = threading.Event()
    seconds = iter(range(0, 10_000, 10))  # each look at the clock is ten seconds later

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 4:
            stop.set()

    assert not wait_for_learner(
        link, NOBODY, "network.control", None, stop, say, lambda: float(next(seconds))
    )
    link.close()
    assert said[0] == f"waiting for the learner at {NOBODY}"
    assert [line.partition(":1 ")[2].partition(":")[0] for line in said[1:]] == ["(30 s)", "(60 s)", "(90 s)"]
    assert "`distrl run-learner`" in said[1]
