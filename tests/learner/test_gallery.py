"""What observers see of the slots: their leases, the newest pictures, and bounds against bad workers."""

import queue
import threading

import pytest

from distrl.core.errors import ProtocolError
from distrl.core.messages import (
    MAX_FOLLOWED,
    MAX_PICTURE_BYTES,
    Command,
    Heartbeat,
    Hello,
    LeaseGrant,
    LeaseRequest,
    Reject,
    SlotReport,
    Status,
    StatusRequest,
    Wall,
    Watch,
)
from distrl.core.slot_view import Hand, SlotView, Touch
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.learner import gallery as module
from distrl.learner.gallery import HAND_S, LEASE_S, MAX_OBSERVERS, Gallery
from distrl.learner.server import Endpoints, LearnerServer

STATUS = Status(run_id="r", phase="training")
ALL = Watch(name="o", wants="pictures")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def report(worker, *slots, pictures=()):
    views = tuple(SlotView(slot=slot, state="acting", task="t") for slot in slots)
    return SlotReport(worker=worker, slots=views, pictures=pictures)


def seen(gallery, known=0):
    wall, pictures = gallery.watch(b"o", ALL.model_copy(update={"known": known}), STATUS)
    return wall, dict(zip(wall.pictures, pictures, strict=True))


def test_slots_are_watched_as_long_as_an_observer_asks():
    clock = Clock()
    gallery = Gallery(clock)
    assert gallery.watching() == ("status", ())
    gallery.watch(b"a", Watch(name="a", wants="slots", followed=("w/1",)), STATUS)
    gallery.watch(b"b", Watch(name="b", followed=("w/2",)), STATUS)
    assert gallery.watching() == ("slots", ("w/1", "w/2"))
    clock.now = LEASE_S / 2
    gallery.watch(b"b", ALL, STATUS)
    assert gallery.watching() == ("pictures", ("w/1",))
    clock.now = LEASE_S * 1.2
    assert gallery.watching() == ("pictures", ())
    clock.now = LEASE_S * 3
    assert gallery.watching() == ("status", ())


def test_an_observer_gets_only_pictures_that_it_does_not_have():
    gallery = Gallery(Clock())
    seen(gallery)
    gallery.report(report("w", 0, 1, pictures=(0, 1)), [b"a", b"b"], 2)
    wall, first = seen(gallery)
    assert first == {("w", 0): b"a", ("w", 1): b"b"}
    gallery.report(report("w", 0, 1, pictures=(1,)), [b"c"], 2)
    later, second = seen(gallery, wall.number)
    assert second == {("w", 1): b"c"}
    assert seen(gallery, later.number)[1] == {}
    assert seen(gallery)[1] == {("w", 0): b"a", ("w", 1): b"c"}  # one that has just come
    assert gallery.watch(b"p", Watch(name="p", wants="slots"), STATUS)[1] == []


def test_what_nobody_watches_is_not_kept():
    clock = Clock()
    gallery = Gallery(clock)
    gallery.report(report("w", 0, pictures=(0,)), [b"a"], 1)
    assert seen(gallery)[0].reports == ()
    gallery.report(report("w", 0, pictures=(0,)), [b"a"], 1)
    clock.now = 2 * LEASE_S
    gallery.watching()
    assert seen(gallery)[0].reports == ()


@pytest.mark.parametrize(
    ("message", "blobs", "code"),
    [
        (report("w", 0, pictures=(0,)), [], "malformed"),
        (report("w", 0, pictures=(1,)), [b"a"], "malformed"),
        (report("w", 0, 0), [], "limit"),
        (report("w", 2), [], "limit"),  # it has announced two slots
        (report("w", 0, pictures=(0,)), [bytes(MAX_PICTURE_BYTES + 1)], "limit"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(message, blobs, code):
    gallery = Gallery(Clock())
    seen(gallery)
    with pytest.raises(ProtocolError) as caught:
        gallery.report(message, blobs, 2)
    assert caught.value.code == code
    assert seen(gallery)[0].reports == ()


def test_all_reports_together_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 3 * (2**17 + 2**14))
    gallery = Gallery(Clock())
    seen(gallery)
    for number in range(9):
        gallery.report(report(f"w{number}", 0, pictures=(0,)), [bytes(2**17)], 1)
    assert [one.worker for one in seen(gallery)[0].reports] == ["w6", "w7", "w8"]


def test_observers_are_bounded():
    gallery = Gallery(Clock())
    for number in range(MAX_OBSERVERS):
        gallery.watch(b"%d" % number, ALL, STATUS)
    with pytest.raises(ProtocolError, match="observers"):
        gallery.watch(b"one more", ALL, STATUS)


class Scheduler:
    """Grants nothing."""

    def grant(self, worker, count, limit, client):
        return []

    def tick(self):
        pass


@pytest.fixture
def server(tmp_path):
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    local = Endpoints(*["tcp://127.0.0.1:0"] * 3)
    made = LearnerServer(local, None, store, Scheduler(), queue.Queue(), "r", 0.5)
    made.start()
    yield made
    made.close()
    made.check()
    store.close()


def test_a_slot_is_played_until_it_is_left_or_nothing_is_heard_any_more():
    clock = Clock()
    gallery = Gallery(clock)
    gallery.watch(b"o", ALL, STATUS)
    gallery.report(report("w/x", 1), [], 2)
    gallery.play(Hand(slot="w/x/1"))
    assert gallery.without_lease("w/x") == [(1, "t")]
    assert gallery.without_lease("w/x") == gallery.without_lease("w") == []
    for _ in range(2):
        gallery.play(Hand(slot="w/x/1", number=9, action=Touch(kind="back")))
    (first,) = gallery.hands()
    gallery.play(Hand(slot="w/x/1"))
    assert gallery.hands() == (first,), "an action stays the newest while the slot is kept"
    gallery.play(Hand(slot="w/x/1", action=Touch(kind="home")))
    assert gallery.hands()[0].number == first.number + 1 > 9
    clock.now = HAND_S + 1.0
    assert gallery.hands() == ()
    for slot in range(MAX_FOLLOWED):
        gallery.play(Hand(slot=f"w/{slot}"))
    with pytest.raises(ProtocolError, match="are already played by hand"):
        gallery.play(Hand(slot="v/0"))
    gallery.leave("w/0")
    gallery.play(Hand(slot="v/0"))


@pytest.fixture
def ask(server):
    with Wire() as wire:
        channel = wire.connect_dealer(server.endpoints.control)

        def ask(message, blobs=()):
            channel.send(message, blobs)
            received = channel.recv(20.0)
            assert received is not None
            return received.message, [bytes(blob) for blob in received.blobs]

        ask.send = channel.send
        yield ask


def test_workers_are_told_and_their_slots_reach_the_observer(server, ask):
    ask(Hello(role="worker", name="w", slots=2))
    wall, _ = ask(Watch(name="o", wants="pictures", followed=("w/1",)))
    assert isinstance(wall, Wall)
    told = threading.Event()
    while not told.is_set():
        status, _ = ask(Heartbeat(role="worker", name="w", slots=2))
        if (status.watched, status.followed) == ("pictures", ("w/1",)):
            told.set()
    ask.send(report("w", 0, 1, pictures=(1,)), [b"jpeg"])
    wall, blobs = ask(Watch(name="o", wants="pictures"))
    assert [view.slot for one in wall.reports for view in one.slots] == [0, 1]
    assert (wall.pictures, blobs) == ((("w", 1),), [b"jpeg"])
    ask.send(report("w", 7))
    refused, _ = ask(StatusRequest())
    assert isinstance(refused, Reject)
    assert refused.code.value == "limit"


def test_the_owner_pauses_the_run_and_requests_a_checkpoint(server, ask):
    ask(Hello(role="worker", name="w", slots=1))
    assert ask(Command(name="o", action="pause"))[0].is_held
    assert ask(LeaseRequest(worker="w", count=1))[0] == LeaseGrant()
    assert not ask(Command(name="o", action="resume"))[0].is_held
    assert not server.takes_checkpoint()
    ask(Command(name="o", action="checkpoint"))
    assert server.takes_checkpoint()
    assert not server.takes_checkpoint()
