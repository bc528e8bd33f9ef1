"""The learner's sockets, driven by hand-made peers."""

import math
import queue
import time

import msgpack
import pytest
from waiting import until

from distrl.core.errors import NetworkError, StoreError
from distrl.core.messages import (
    MAX_FRAMES,
    PROTOCOL_VERSION,
    Ack,
    Heartbeat,
    Hello,
    Info,
    Lease,
    LeaseGrant,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    Reject,
    Shutdown,
    Status,
    StatusRequest,
    Submit,
    encode,
)
from distrl.core.packing import MAX_NAME, unpack
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Observation, Purpose, Task, TimeStep, Trajectory, image_digest
from distrl.core.weights import WeightFetcher, describe
from distrl.learner.peers import FIRST_S, LEAST
from distrl.learner.server import Endpoints, LearnerServer

WAIT_S = 20.0
TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")
PIXELS = b"pixels"


class FakeScheduler:
    """Grants without end and records what it is told."""

    def __init__(self):
        self.granted, self.renewed, self.released, self.finished, self.lost = [], [], [], [], []
        self.ticks, self.misfit = queue.Queue(), ""

    def grant(self, worker, count, limit, client):
        self.limit = limit
        leases = [Lease(id=f"{worker}-{len(self.granted)}", task=TASK) for _ in range(count)]
        self.granted += leases
        return leases

    def renew(self, worker, lease_ids):
        self.renewed.append((worker, tuple(lease_ids)))

    def release(self, worker, lease_ids):
        self.released.append((worker, tuple(lease_ids)))

    def check(self, trajectory):
        return self.misfit

    def finish(self, trajectory):
        self.finished.append((trajectory.lease_id, trajectory.id))

    def lose(self, trajectory):
        self.lost.append(trajectory.id)

    def tick(self):
        self.ticks.put(None)


class Peer:
    """One connection to the learner."""

    def __init__(self, wire, endpoint):
        self.channel = wire.connect_dealer(endpoint)

    def ask(self, message, blobs=()):
        self.channel.send(message, blobs)
        return self.answer()

    def answer(self):
        received = self.channel.recv(WAIT_S)
        assert received is not None, "no answer"
        return received.message


def edited(message: Submit, **changes: object) -> bytes:
    """The envelope of `message`, in whose trajectory these fields are changed."""
    envelope = msgpack.unpackb(encode(message))
    envelope["body"] = msgpack.packb({**unpack(message.body), **changes})
    return msgpack.packb(envelope)


def submit(name, *pictures, named=None, lease_id="lease", worker="", **changes):
    """A Submit whose trajectory refers to `pictures`; `named` are the images that it announces."""
    steps = tuple(
        TimeStep(
            observation=Observation(image=image_digest(picture), width=1, height=1),
            chats=(),
            action=ActionRecord(kind="back"),
        )
        for picture in pictures
    )
    digests = tuple(image_digest(picture) for picture in pictures)
    trajectory = Trajectory(id=name, task=TASK, steps=steps, lease_id=lease_id, worker=worker, **changes)
    return Submit.of(trajectory, digests if named is None else named)


@pytest.fixture
def scheduler():
    return FakeScheduler()


@pytest.fixture
def ingested():
    return queue.Queue(2)


@pytest.fixture
def store(tmp_path):
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    yield store
    store.close()


@pytest.fixture
def server(store, scheduler, ingested):
    local = Endpoints(*["tcp://127.0.0.1:0"] * 3)
    server = LearnerServer(local, None, store, scheduler, ingested, "run", heartbeat_s=0.5)
    server.start()
    yield server
    server.close()
    server.check()


@pytest.fixture
def wire():
    with Wire() as wire:
        yield wire


@pytest.fixture
def peer(server, wire):
    return Peer(wire, server.endpoints.control)


def hear(sub, wanted):
    """Waits for a broadcast that is wanted."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        received = sub.recv(WAIT_S)
        assert received is not None, "nothing is broadcast"
        if wanted(received.message):
            return
    raise AssertionError("waited in vain")


def test_leases_are_granted_renewed_and_given_back(server, peer, scheduler):
    peer.ask(Hello(role="worker", name="w", slots=2, waiting=4))
    grant = peer.ask(LeaseRequest(worker="w", count=3))
    assert scheduler.limit == 6
    assert grant.leases == tuple(scheduler.granted)
    assert len(grant.leases) == 3
    assert isinstance(peer.ask(LeaseRenew(worker="w", lease_ids=("a", "unknown"))), Status)
    assert scheduler.renewed == [("w", ("a", "unknown"))]
    assert isinstance(peer.ask(LeaseRelease(worker="w", lease_ids=("a",))), Status)
    assert scheduler.released == [("w", ("a",))]


def test_an_ack_means_stored_finished_and_handed_over_once(server, peer, store, scheduler, ingested):
    message = submit("t", PIXELS)
    assert peer.ask(message, [PIXELS]) == Ack(trajectory_id="t")
    assert store.get("t") == message.trajectory
    assert store.images([image_digest(PIXELS)])
    assert peer.ask(message, [PIXELS]) == Ack(trajectory_id="t", duplicate=True)
    scheduler.misfit = "its lease was granted by a run that is gone"
    assert peer.ask(message, [PIXELS]) == Ack(trajectory_id="t", duplicate=True), "it was accepted before"
    assert ingested.get(timeout=WAIT_S) == message.trajectory
    assert ingested.empty()
    assert scheduler.finished == [("lease", "t")]


def test_a_demonstration_by_a_worker_with_the_longest_name_does_not_end_the_learner(server, peer):
    message = submit("t", PIXELS, worker="w" * MAX_NAME, slot=7, purpose=Purpose.DEMO)
    assert peer.ask(message, [PIXELS]) == Ack(trajectory_id="t")
    assert isinstance(peer.ask(StatusRequest()), Status)


def test_an_image_that_is_stored_need_not_come_again(server, peer, store):
    peer.ask(submit("a", PIXELS), [PIXELS])
    assert isinstance(peer.ask(submit("b", PIXELS, named=())), Ack)


def test_a_submit_that_is_no_message_is_refused_by_its_trajectorys_id(server, peer, store):
    peer.channel.raw.send(edited(submit("newer"), a_newer_field=1))
    reject = peer.answer()
    assert (reject.code.value, reject.ref) == ("malformed", "newer")
    peer.channel.raw.send_multipart([encode(submit("wide")), *[b""] * (MAX_FRAMES + 1)])
    reject = peer.answer()
    assert (reject.code.value, reject.ref) == ("too-large", "wide")
    assert store.count() == 0


@pytest.mark.parametrize(
    ("message", "blobs", "code"),
    [
        (submit("t", PIXELS), [b"other bytes"], "digest"),
        (submit("t", PIXELS, named=()), [], "digest"),
        (submit("t", PIXELS), [], "malformed"),
        (submit("t", PIXELS, named=()), [PIXELS], "malformed"),
    ],
)
def test_images_that_do_not_fit_are_refused(server, peer, store, message, blobs, code):
    reject = peer.ask(message, blobs)
    assert isinstance(reject, Reject)
    assert (reject.code.value, reject.ref) == (code, "t")
    assert store.count() == 0


def test_one_that_cannot_be_stored_is_refused_alone(server, peer, store, monkeypatch):
    poison = Trajectory(id="poison", task=TASK)
    real = store.add_many

    def add_many(items, bodies):
        if any(trajectory.id == "poison" for trajectory, _ in items):
            raise StoreError("disk full")
        return real(items)

    monkeypatch.setattr(store, "add_many", add_many)
    for message in (Submit.of(poison), submit("good")):
        peer.channel.send(message)
    answers = {type(answer): answer for answer in (peer.answer(), peer.answer())}
    assert answers[Ack].trajectory_id == "good"
    assert (answers[Reject].code.value, answers[Reject].ref) == ("internal", "poison")


def test_a_full_queue_stops_leases_and_loses_nothing(server, wire, peer, ingested):
    announced: list[str] = []
    server.on_arrival = lambda trajectory: announced.append(trajectory.id)
    sub = wire.connect_sub(server.endpoints.broadcast)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        peer.ask(submit(name))
    assert peer.ask(LeaseRequest(worker="w")) == LeaseGrant()
    hear(sub, lambda status: status.paused)
    assert [ingested.get(timeout=WAIT_S).id for _ in names] == names
    hear(sub, lambda status: not status.paused)
    assert list(dict.fromkeys(announced)) == names
    assert peer.ask(LeaseRequest(worker="w")).leases


def test_one_that_can_never_be_read_is_lost_and_the_scheduler_told(
    server, peer, ingested, store, scheduler, monkeypatch, caplog
):
    real = store.get

    def get(name):
        if name == "t3":
            raise StoreError("damaged")
        return real(name)

    monkeypatch.setattr(store, "get", get)
    for number in range(5):
        peer.ask(submit(f"t{number}"))
    assert [ingested.get(timeout=WAIT_S).id for _ in range(4)] == ["t0", "t1", "t2", "t4"]
    assert scheduler.lost == ["t3"]
    assert "trajectory t3 is lost to training: damaged" in caplog.text


def test_what_is_no_request_is_refused(server, peer):
    reject = peer.ask(Info(name="x", policy="p", weight_version=1))
    assert reject.code.value == "unexpected"


def test_all_learn_how_many_slots_each_worker_has(server, wire, peer):
    for name, slots in (("b", 3), ("a", 8), ("b", 4)):
        peer.ask(Heartbeat(role="worker", name=name, slots=slots))
    assert peer.ask(StatusRequest()).slots == {"a": 8, "b": 4}
    hear(wire.connect_sub(server.endpoints.broadcast), lambda status: status.slots == {})


def test_inference_servers_come_and_go(server, wire, peer):
    peer.ask(Hello(role="inference", name="i", act_endpoint="tcp://127.0.0.1:9"))
    assert peer.ask(StatusRequest()).act_endpoints == ("tcp://127.0.0.1:9",)
    assert peer.ask(Heartbeat(role="inference", name="i", act_endpoint="ipc:///tmp/moved")).act_endpoints == (
        "ipc:///tmp/moved",
    )
    hear(wire.connect_sub(server.endpoints.broadcast), lambda status: status.act_endpoints == ())


@pytest.mark.parametrize(
    "changes",
    [
        {"act_endpoint": "tcp://" + "a" * 1000 + ":1"},
        {"act_endpoint": "tcp://" + "a" * 9_000_000 + ":1"},
        {"act_endpoint": "127.0.0.1:9"},
        {"act_endpoint": "tcp://127.0.0.1:9\n"},
        {"act_endpoint": "http://127.0.0.1:9"},
        {"name": "n" * 1000},
        {"name": "n\x1b[2J"},
    ],
)
def test_a_peer_with_impossible_addresses_or_names_is_rejected(server, peer, changes):
    hello = {"v": PROTOCOL_VERSION, "type": "hello", "role": "inference", "name": "i", **changes}
    peer.channel.raw.send(msgpack.packb(hello))
    reject = peer.answer()
    assert isinstance(reject, Reject)
    code = reject.code.value
    assert code == ("limit" if any(len(value) > 200 for value in changes.values()) else "malformed")
    assert server.peer_metrics()[f"rejected/{code}"] == 1
    assert peer.ask(StatusRequest()).act_endpoints == ()


def test_totals_stay_finite_whatever_peers_report(server, peer):
    peer.ask(Heartbeat(role="worker", name="w", stats={"faults": 0, "steps": 0}))
    for value in (1.7e308, 0.0, 1.7e308):
        body = msgpack.unpackb(encode(Heartbeat(role="worker", name="w")))
        peer.channel.raw.send(msgpack.packb(body | {"stats": {"faults": value, "steps": value}}))
        peer.answer()
    peer.ask(Heartbeat(role="worker", name="w", stats={"faults": 3, "steps": 3}))
    metrics = server.peer_metrics()
    assert metrics["workers/faults"] == 3
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_worker_whose_trajectories_are_mostly_rejected_gets_no_leases_for_a_while(
    server, wire, peer, scheduler, caplog
):
    assert peer.ask(LeaseRequest(worker="broken")).leases
    scheduler.misfit = "another task"
    for number in range(LEAST):
        assert peer.ask(submit(f"bad{number}")).code.value == "lease-mismatch"
    grant = peer.ask(LeaseRequest(worker="broken"))
    assert grant.leases == ()
    assert FIRST_S - 1 <= grant.retry_after_s <= FIRST_S
    assert f"{LEAST} of its last {LEAST} trajectories were rejected" in grant.reason
    assert "worker broken gets no leases for 60 s" in caplog.text
    until(lambda: server.peer_metrics()["workers/suspended"] == 1)
    assert server.peer_metrics()["rejected/lease-mismatch"] == LEAST
    assert Peer(wire, server.endpoints.control).ask(LeaseRequest(worker="other")).leases


@pytest.mark.parametrize("is_named", [True, False])
def test_trajectories_that_are_no_messages_count_for_the_worker_of_the_connection(
    server, peer, caplog, is_named
):
    if is_named:
        peer.ask(LeaseRequest(worker="broken"))
    frame = edited(submit("bad"), success=1e30)
    for _ in range(LEAST):
        peer.channel.raw.send(frame)
        assert peer.answer().ref == "bad"
    assert ("gets no leases" in caplog.text) is is_named
    assert bool(peer.ask(LeaseRequest(worker="broken")).reason) is is_named


def test_a_status_that_cannot_be_sent_does_not_end_the_network_thread(server, wire, peer, caplog):
    server.set_metrics({letter * 9_000_000: 1.0 for letter in "ab"})
    for phase in ("warm-up", "training"):
        server.set_phase(phase)
        assert peer.ask(StatusRequest()).code.value == "too-large"
    until(lambda: "cannot send a Status" in caplog.text)
    server.set_metrics({"loss": 1.0, "odd": float("nan")})
    sub = wire.connect_sub(server.endpoints.broadcast)
    hear(sub, lambda status: (status.phase, status.metrics) == ("training", {"loss": 1.0}))
    assert sum("cannot send a Status" in record.getMessage() for record in caplog.records) == 1


def test_weights_are_announced_and_served(server, wire, peer):
    data = bytes(range(256)) * 1000
    info = describe(3, data, chunk_bytes=10_000)
    server.publish_weights(info, data)
    assert peer.ask(StatusRequest()).weights == info
    fetcher = WeightFetcher(wire, server.endpoints.weights)
    assert fetcher.fetch(info, WAIT_S) == data
    fetcher.close()
    assert Peer(wire, server.endpoints.weights).ask(StatusRequest()).code.value == "unexpected"


def test_shutdown_reaches_everybody_and_submits_are_still_taken(server, wire, peer, store):
    sub = wire.connect_sub(server.endpoints.broadcast)
    assert sub.recv(WAIT_S)
    server.shutdown("all done")
    goodbye = Shutdown(run_id="run", reason="all done")
    hear(sub, lambda message: message == goodbye)
    assert peer.ask(Hello(role="worker", name="late")) == goodbye
    assert peer.ask(LeaseRequest(worker="late")) == goodbye
    assert peer.ask(StatusRequest()).phase == "done"
    assert isinstance(peer.ask(submit("last")), Ack)
    assert store.count() == 1


def test_an_address_in_use_is_named_and_leaves_nothing_behind(server, store, scheduler, ingested):
    free = "tcp://127.0.0.1:0"
    taken = Endpoints(free, free, server.endpoints.control)
    with pytest.raises(NetworkError, match="in use"):
        LearnerServer(taken, None, store, scheduler, ingested, "run")
