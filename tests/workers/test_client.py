"""The link to the learner, against a fake learner that a test drives message by message."""

import logging
import threading
import time
from dataclasses import dataclass, field

import msgpack
import pytest
from waiting import until

from distrl.core.errors import LearnerUnreachable, NetworkError
from distrl.core.messages import (
    Ack,
    Heartbeat,
    Hello,
    Lease,
    LeaseGrant,
    LeaseRelease,
    LeaseRequest,
    Reject,
    RejectCode,
    Shutdown,
    Status,
    Submit,
    Welcome,
    encode,
)
from distrl.core.sockets import Channel, Poller, Wire
from distrl.core.types import Record, Task, Trajectory, image_digest
from distrl.workers import client as client_module
from distrl.workers.client import ACK_S, ANSWER_S, LearnerLink, LeaseBook, Outbox, wait_for_learner
from distrl.workers.spool import Spool

WAIT_S = 20.0
TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")
IMAGES = {image_digest(b"pixels"): b"pixels"}


def episode(name: str, lease_id: str = "") -> Trajectory:
    return Trajectory(id=name, task=TASK, lease_id=lease_id)


@dataclass
class FakeLearner:
    """Answers from a thread, as its fields say, and records what came; `raw` replaces every answer."""

    wire: Wire
    endpoint: str = "tcp://127.0.0.1:0"
    run_id: str = "run"
    ack: bool = True
    reject: RejectCode | None = None
    leases: int = 0
    reason: str = ""
    paused: bool = False
    welcomes: int = 1
    raw: bytes | None = None
    seen: list[Record] = field(default_factory=list)

    def __post_init__(self):
        self.control = self.bind()
        self.pub = self.wire.bind_pub("tcp://127.0.0.1:0")
        self.endpoint = self.control.endpoint
        self.changed = threading.Condition()
        self.to_broadcast: list[Record] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def bind(self) -> Channel:
        """The address of a learner that has just stopped is free a moment later."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self.wire.bind_router(self.endpoint)
            except NetworkError:
                if time.monotonic() > deadline:
                    raise

    @property
    def status(self) -> Status:
        return Status(run_id=self.run_id, phase="training", paused=self.paused)

    def run(self):
        poller = Poller([self.control])
        while not self.stopping.is_set():
            if poller.wait(0.02):
                received = self.control.recv(0.0)
                answer = self.answer(received.message)
                times = self.welcomes if isinstance(answer, Welcome) else int(answer is not None)
                for _ in range(times):
                    if self.raw is not None:
                        self.control.raw.send_multipart([received.peer, self.raw])
                    else:
                        self.control.send(answer, peer=received.peer)
                with self.changed:
                    self.seen.append(received.message)
                    self.changed.notify_all()
            for message in list(self.to_broadcast):
                self.pub.send(message)

    def answer(self, message: Record) -> Record | None:
        if isinstance(message, Hello):
            return Welcome(status=self.status, heartbeat_s=0.1)
        if isinstance(message, Submit):
            if self.reject is not None:
                return Reject(code=self.reject, reason="no", ref=message.trajectory.id)
            return Ack(trajectory_id=message.trajectory.id) if self.ack else None
        if isinstance(message, LeaseRequest):
            count, self.leases = min(self.leases, message.count), max(0, self.leases - message.count)
            leases = [Lease(id=f"l{self.leases}-{i}", task=TASK) for i in range(count)]
            return LeaseGrant(
                leases=tuple(leases), retry_after_s=60.0 if self.reason else 0.02, reason=self.reason
            )
        return self.status

    def wait_for(self, cls: type[Record], count: int = 1) -> list[Record]:
        """The messages of a type, once there are enough."""

        def found():
            return [message for message in self.seen if isinstance(message, cls)]

        with self.changed:
            assert self.changed.wait_for(lambda: len(found()) >= count, WAIT_S), self.seen
            return found()

    def stop(self):
        if self.stopping.is_set():
            return
        self.stopping.set()
        self.thread.join()
        self.control.close()
        self.pub.close()


@pytest.fixture
def wire():
    with Wire() as wire:
        yield wire


@pytest.fixture
def learner(wire):
    learner = FakeLearner(wire)
    yield learner
    learner.stop()


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool.sqlite3")
    yield spool
    spool.close()


@pytest.fixture
def unstarted(wire, learner, spool):
    link = LearnerLink(
        wire, learner.endpoint, learner.pub.endpoint, "worker", "w", slots=2, spool=spool, max_unacked=2
    )
    yield link
    if not link._stopping.is_set():
        link.close()
    link.check()


@pytest.fixture
def link(unstarted):
    unstarted.start()
    assert unstarted.wait_connected(WAIT_S).run_id == "run"
    return unstarted


def test_it_introduces_itself_and_keeps_saying_that_it_lives(link, learner):
    link.set_stats({"episodes": 3.0})
    assert learner.wait_for(Hello)[0] == Hello(role="worker", name="w", slots=2, waiting=2)
    assert learner.wait_for(Heartbeat, 3)[-1].stats == {"episodes": 3.0}
    assert len(learner.wait_for(Hello)) == 1


def test_numbers_that_are_not_finite_do_not_travel(link, learner):
    link.set_stats({"cost": float("inf"), "episodes": 3.0})
    count = len(learner.wait_for(Heartbeat))
    assert learner.wait_for(Heartbeat, count + 2)[-1].stats == {"episodes": 3.0}


def test_leases_that_are_given_up_are_given_back(link, learner):
    learner.leases = 3
    first, second = link.lease(WAIT_S), link.lease(WAIT_S)
    link.release(first.id)
    assert learner.wait_for(LeaseRelease)[0] == LeaseRelease(worker="w", lease_ids=(first.id,))
    third = link.lease(WAIT_S)
    link.submit(episode("t", second.id), IMAGES)
    assert link.flush(WAIT_S)
    link.close()
    assert learner.wait_for(LeaseRelease, 2)[1].lease_ids == (third.id,)


def test_a_slow_disk_under_one_slot_keeps_no_other_from_its_lease(link, learner, spool, monkeypatch):
    put, disk = spool.put, threading.Event()

    def slow(*arguments):
        assert disk.wait(WAIT_S)
        put(*arguments)

    monkeypatch.setattr(spool, "put", slow)
    learner.leases = 1
    submitting = threading.Thread(target=link.submit, args=(episode("t"), IMAGES))
    submitting.start()
    try:
        assert link.lease(WAIT_S / 2) is not None
    finally:
        disk.set()
        submitting.join()
    assert link.flush(WAIT_S)


def test_what_is_being_spooled_is_neither_sent_nor_deleted_meanwhile(spool):
    outbox = Outbox(spool)
    outbox.begin("t")
    spool.put(episode("t"), IMAGES, "run")
    outbox.reconnected("run")
    assert outbox.next_to_send() is None
    outbox.add("t", "run")
    assert outbox.next_to_send() == "t"
    outbox.begin("t")  # by a slot that ran the episode of a killed worker again
    outbox.acked(["t"])
    outbox.add("t", "run")
    assert outbox.load("t")[0].trajectory.id == "t"
    outbox.acked(["t"])
    assert len(spool) == len(outbox) == 0


def test_on_a_slow_connection_nothing_is_sent_twice_and_what_was_lost_is_sent_again(spool, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(client_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(client_module, "MAX_BYTES_IN_FLIGHT", 1)
    monkeypatch.setattr(client_module, "SLOWEST", 1e-3)
    outbox = Outbox(spool)
    names = [f"t{number}" for number in range(12)]
    for name in names:
        spool.put(episode(name), IMAGES, "run")
        outbox.add(name, "run")

    def sent() -> list[str]:
        found = []
        while (name := outbox.next_to_send()) is not None:
            outbox.load(name)
            found.append(name)
        return found

    assert sent() == ["t0"], "it has as many bytes as may be in flight"
    now[0] += 100 * ACK_S
    assert sent() == [], "they may take long"
    monkeypatch.setattr(client_module, "SLOWEST", 1e12)
    monkeypatch.setattr(client_module, "MAX_BYTES_IN_FLIGHT", 2**20)
    monkeypatch.setattr(client_module, "MAX_IN_FLIGHT", 3)
    way = ["t0", *sent()]
    for _ in range(6):  # each takes nearly as long as a whole connection may be silent
        now[0] += ACK_S - 1
        outbox.acked([way.pop(0)])
        way += sent()
    assert way == ["t6", "t7", "t8"], "in order, each once"
    outbox.rejected(Reject(code=RejectCode.INTERNAL, reason="no", ref=way[0]))
    assert sent() == ["t9"]
    now[0] += ACK_S + 1
    assert sent() == ["t7", "t8", "t9"], "all acks were lost"
    outbox.acked(["t8"])
    assert sent() == ["t6"], "the oldest first"
    now[0] += ACK_S - 1
    outbox.acked(["t9"])
    assert sent() == ["t10"]
    now[0] += 2
    assert sent() == ["t7"], "one that was sent before it is lost, or its ack is"


def test_another_runs_spool_is_kept_back(unstarted, learner, spool):
    spool.put(episode("foreign"), IMAGES, "another run")
    spool.put(episode("ours"), IMAGES, "run")
    unstarted.start()
    unstarted.wait_connected(WAIT_S)
    assert unstarted.flush(WAIT_S)
    assert [submit.trajectory.id for submit in learner.wait_for(Submit)] == ["ours"]
    assert spool.ids() == ["foreign"]


def test_too_many_unacked_stop_the_leases(link, learner):
    learner.ack, learner.leases = False, 10
    for name in "ab":
        link.submit(episode(name), IMAGES)
    learner.wait_for(Submit, 2)
    assert not link.flush(0.0)
    assert link.lease(0.3) is None
    assert not [message for message in learner.seen if isinstance(message, LeaseRequest)]


def test_a_paused_learner_is_asked_for_no_leases_until_it_goes_on(unstarted, learner):
    learner.leases, learner.paused = 1, True
    unstarted.start()
    unstarted.wait_connected(WAIT_S)
    assert unstarted.lease(0.1) is None
    assert not [message for message in learner.seen if isinstance(message, LeaseRequest)]
    learner.paused = False
    assert unstarted.lease(WAIT_S) is not None


def test_a_suspended_worker_says_why_and_does_not_ask_again_before_it_may(unstarted, learner, caplog):
    learner.reason = "8 of its last 10 trajectories were rejected"
    unstarted.start()
    unstarted.wait_connected(WAIT_S)
    assert unstarted.lease(0.5) is None
    wanted = "the learner grants no leases for the next 60 s: 8 of its last 10 trajectories were rejected"
    assert [message for message in caplog.messages if message == wanted] == [wanted]
    assert len([message for message in learner.seen if isinstance(message, LeaseRequest)]) == 1


@pytest.mark.parametrize("code", ["malformed", "digest", "limit", "lease-mismatch"])
def test_what_is_refused_for_good_is_set_aside(link, learner, spool, code):
    learner.reject = RejectCode(code)
    link.submit(episode("bad"), IMAGES)
    assert link.flush(WAIT_S)
    assert spool.refused() == {"bad": f"{code}: no"}


def test_what_is_refused_for_now_is_sent_again(link, learner, spool, monkeypatch):
    monkeypatch.setattr(client_module, "ACK_S", 0.1)
    monkeypatch.setattr(client_module, "RETRY_S", 0.1)
    learner.reject = RejectCode.INTERNAL
    link.submit(episode("a"), IMAGES)
    learner.wait_for(Submit, 2)
    learner.reject, learner.ack = None, False  # a missing ack means a resend, too
    learner.wait_for(Submit, 4)
    learner.ack = True
    assert link.flush(WAIT_S)
    assert spool.refused() == {}


def test_what_no_learner_can_take_is_set_aside(link, spool, monkeypatch):
    monkeypatch.setattr("distrl.core.messages.MAX_BLOB_BYTES", 1000)
    link.submit(episode("big"), {"d": bytes(1001)})
    assert link.flush(WAIT_S)
    assert "big" in spool.refused()


def test_each_connection_is_told_and_begun_once(wire, unstarted, learner, monkeypatch, caplog):
    """A learner that was busy answers all the Hellos that have waited meanwhile."""
    caplog.set_level(logging.INFO, logger="distrl.workers.client")
    monkeypatch.setattr(client_module, "ACK_S", 1000.0)
    learner.ack, learner.welcomes = False, 3
    unstarted.start()
    unstarted.wait_connected(WAIT_S)
    unstarted.submit(episode("a"), IMAGES)
    learner.wait_for(Heartbeat, 3)
    assert len(learner.wait_for(Submit)) == 1
    learner.stop()
    again = FakeLearner(wire, learner.endpoint, welcomes=3)
    assert unstarted.flush(WAIT_S)
    again.wait_for(Heartbeat, 3)
    again.stop()
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.INFO] == [
        f"connected to run run at {learner.endpoint}"
    ] * 2


def test_a_shutdown_ends_all_waiting(link, learner):
    learner.to_broadcast.append(Shutdown(run_id="another run", reason="not ours"))
    learner.to_broadcast.append(Shutdown(run_id="run", reason="all done"))
    assert link.lease(WAIT_S) is None
    assert link.shutdown.wait(WAIT_S)
    assert link.shutdown_reason == "all done"


def test_closing_ends_all_waiting(link):
    threading.Timer(0.1, link.close).start()
    assert link.lease(WAIT_S) is None


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(client_module, "time", clock)
    return clock


@pytest.fixture
def book(clock):
    return LeaseBook()


def grant(*names, ttl_s=30.0):
    return LeaseGrant(leases=tuple(Lease(id=name, task=TASK, ttl_s=ttl_s) for name in names))


def test_it_requests_once_for_all_slots_that_wait_until_there_is_an_answer_or_it_is_late(book, clock):
    assert book.num_to_request() == 0
    book.num_waiting = 3
    assert [book.num_to_request(), book.num_to_request()] == [3, 0]
    book.granted(grant("a"), "run")
    assert [book.num_to_request(), book.num_to_request()] == [2, 0]
    clock.now += ANSWER_S
    assert book.num_to_request() == 2
    book.granted(LeaseGrant(retry_after_s=2.0), "run")
    clock.now += 1.9
    assert book.num_to_request() == 0
    clock.now += 0.2
    assert book.num_to_request() == 2


def test_leases_at_work_are_renewed_and_those_that_wait_too_long_returned(book, clock):
    book.granted(grant("taken", "waiting"), "run")
    assert book.take().id == "taken"
    clock.now += 11.0
    assert [book.due_for_renewal(), book.due_for_renewal()] == [["taken"], []]
    clock.now += 11.0
    assert book.take() is None
    assert book.pop_released() == ["waiting"]
    book.close("taken")
    assert book.due_for_renewal() == []


def test_what_a_person_plays_is_for_that_slot_alone(book):
    book.granted(LeaseGrant(leases=(Lease(id="own", task=TASK, by_hand=2),)), "run")
    book.granted(grant("any"), "run")
    book.num_waiting = 1
    assert book.num_to_request() == 0
    assert book.take(2).id == "own"
    assert book.take(1).id == "any"
    book.granted(LeaseGrant(leases=(Lease(id="other", task=TASK, by_hand=0),)), "run")
    assert not book.has_granted(1)
    assert book.num_to_request() == 1


def test_another_run_voids_what_nobody_took(book):
    book.granted(grant("a", "c", "b"), "old")
    book.take(), book.take()
    book.release("c")
    book.reconnected("new")
    assert book.pop_released() == []
    assert not book.has_granted()
    assert book.run_of("a") == "old"
    assert book.run_of("b") == ""


NOBODY = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("address", "remedy"),
    [(NOBODY, "correct --learner; check"), ("tcp://no.invalid:1", "The host no.invalid is unknown")],
)
def test_nobody_there(unstarted: LearnerLink, address: str, remedy: str) -> None:
    unstarted.control = address
    with pytest.raises(LearnerUnreachable, match=rf"No learner answered .* within 0\.1 s.*{remedy}"):
        wait_for_learner(unstarted, "--learner", 0.1, threading.Event())


def test_a_stop_or_the_end_of_the_run_ends_the_wait(wire: Wire) -> None:
    link = LearnerLink(wire, NOBODY, NOBODY, "monitor", "m")
    stop = threading.Event()
    stop.set()
    assert not wait_for_learner(link, "--learner", WAIT_S, stop)
    link.shutdown.set()
    assert not wait_for_learner(link, "--learner", WAIT_S, threading.Event())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (msgpack.packb({"v": 99, "type": "welcome"}), r"protocol version 99 is not \d+\."),
        (encode(Reject(code=RejectCode.MALFORMED, reason="role: unknown")), r"role: unknown \(malformed\)\."),
    ],
    ids=["version", "reject"],
)
def test_another_version_is_told_and_does_not_fill_the_log(
    unstarted, learner, caplog, answer: bytes, why: str
) -> None:
    learner.raw = answer
    unstarted.start()
    learner.wait_for(Hello, 3)
    until(lambda: unstarted.incompatibility)
    wanted = rf"and this process are incompatible: .*{why} Run the same distrl version"
    with pytest.raises(LearnerUnreachable, match=wanted):
        wait_for_learner(unstarted, "--learner", None, threading.Event())
    assert caplog.text.count("and this process are incompatible") == 1


def test_a_learner_that_fails_for_now_is_not_incompatible(unstarted, learner) -> None:
    learner.raw = encode(Reject(code=RejectCode.INTERNAL, reason="see the log"))
    unstarted.start()
    learner.wait_for(Hello, 3)
    assert unstarted.incompatibility == ""
    learner.raw = None
    assert wait_for_learner(unstarted, "--learner", WAIT_S, threading.Event())


def test_without_a_limit_it_waits_and_reminds(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "REMIND_S", 0.01)
    link = LearnerLink(wire, NOBODY, NOBODY, "monitor", "m")
    link.start()
    said: list[str] = []
    stop = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            stop.set()

    assert not wait_for_learner(link, "network.control", None, stop, say)
    link.close()
    assert said[0] == f"waiting for the learner at {NOBODY}"
    assert all(line.startswith("still waiting") and "`distrl run-learner`" in line for line in said[1:])
