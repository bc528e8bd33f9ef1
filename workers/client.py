"""A process's link to the learner: presence, leases, delivery of trajectories, status.

    slot threads ── lease() / submit() ──► condition + spool ──► link thread ──► control DEALER ──► learner
                                                                     ▲
    weights, pause, shutdown ◄── listeners, `status`, `shutdown` ────┴────────── broadcast SUB ◄── learner

A trajectory is in the spool before it is sent and until its ack, so a crash on either side, a lost message or
a restart costs a resend and nothing else. While too many trajectories wait for acks, no leases are requested.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from distrl.core.errors import LearnerUnreachable, NetworkError, ProtocolError, SecurityError
from distrl.core.messages import (
    TRANSIENT,
    Ack,
    Heartbeat,
    Hello,
    Lease,
    LeaseGrant,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    Reject,
    RejectCode,
    Shutdown,
    Status,
    Submit,
    Welcome,
)
from distrl.core.sockets import Channel, PeerError, Poller, Waker, Wire, unknown_host
from distrl.core.types import Record, Trajectory
from distrl.workers.board import SlotBoard
from distrl.workers.spool import Spool

POLL_S = 0.2
HELLO_S = 0.5  # between two Hellos without an answer
ANSWER_S = 5.0  # a lease request without an answer is repeated after this
ACK_S = 30.0  # resent when not acked for so much longer than its bytes take
SLOWEST = 50_000.0  # bytes a second that a connection carries at least
RETRY_S = 10.0  # sent again, if the learner could not take it, after this
MAX_UNACKED = 64  # finished trajectories that may wait for their acks before leases stop
MAX_IN_FLIGHT, MAX_BYTES_IN_FLIGHT = 8, 4 * 2**20  # sent and not acked: heartbeats wait behind them
REMIND_S = 30.0  # between two lines while waiting for the learner
SILENCE_BEATS = 4  # heartbeats without any answer before the learner counts as gone
_log = logging.getLogger(__name__)


@dataclass
class _Held:
    lease: Lease
    run_id: str
    since: float  # granted or renewed


class LeaseBook:
    """The leases of one worker: requested, granted, in use and renewed, returned. Its owner locks.

    `num_waiting` slots wait for a lease now.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        self._granted: deque[_Held] = deque()
        self._at_work: dict[str, _Held] = {}
        self._released: list[_Held] = []
        self._ask_at = 0.0

    def num_to_request(self) -> int:
        """How many leases to request now; the next request follows the answer or `ANSWER_S`."""
        now = time.monotonic()
        count = self.num_waiting - sum(held.lease.by_hand is None for held in self._granted)
        if count <= 0 or now < self._ask_at:
            return 0
        self._ask_at = now + ANSWER_S
        return min(count, 1024)

    def granted(self, grant: LeaseGrant, run_id: str) -> None:
        """The learner's answer; an empty grant says when to request again."""
        now = time.monotonic()
        self._granted.extend(_Held(lease, run_id, now) for lease in grant.leases)
        self._ask_at = now if grant.leases else now + grant.retry_after_s

    def has_granted(self, slot: int | None = None) -> bool:
        """Whether a slot can take one. Leases that waited here too long, and expire soon, are returned."""
        now = time.monotonic()
        while self._granted and now - self._granted[0].since > self._granted[0].lease.ttl_s / 2:
            self._released.append(self._granted.popleft())
        return self._first(slot) is not None

    def _first(self, slot: int | None) -> _Held | None:
        """What a slot is to take: first what a person plays there."""
        own = [held for held in self._granted if held.lease.by_hand in (None, slot)]
        return min(own, key=lambda held: held.lease.by_hand is None, default=None)

    def take(self, slot: int | None = None) -> Lease | None:
        if not self.has_granted(slot) or (held := self._first(slot)) is None:
            return None
        self._granted.remove(held)
        self._at_work[held.lease.id] = held
        return held.lease

    def close(self, lease_id: str) -> None:
        self._at_work.pop(lease_id, None)

    def release(self, lease_id: str) -> None:
        held = self._at_work.pop(lease_id, None)
        if held is not None:
            self._released.append(held)

    def release_all(self) -> None:
        self._released += [*self._granted, *self._at_work.values()]
        self._granted.clear()
        self._at_work.clear()

    def pop_released(self) -> list[str]:
        """The returned leases that the learner has not been sent yet."""
        released, self._released = self._released, []
        return [held.lease.id for held in released]

    def run_of(self, lease_id: str) -> str:
        """The run that granted a lease at work, "" if unknown."""
        held = self._at_work.get(lease_id)
        return held.run_id if held is not None else ""

    def due_for_renewal(self) -> list[str]:
        """Leases at work a third of whose time has passed; they count as renewed now."""
        now = time.monotonic()
        due = []
        for held in self._at_work.values():
            if now - held.since > held.lease.ttl_s / 3:
                held.since = now
                due.append(held.lease.id)
        return due

    def reconnected(self, run_id: str) -> None:
        """The learner is connected again: unused leases of another run are void."""
        self._granted = deque(held for held in self._granted if held.run_id == run_id)
        self._released = [held for held in self._released if held.run_id == run_id]
        self._ask_at = 0.0


class Outbox:
    """The unacked trajectories of one run, oldest first. Its owner locks, except around `load`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._run_id: str | None = None
        self._due: dict[str, float] = {}  # id → when to send it (again)
        self._in_flight: dict[str, int] = {}  # id → its bytes
        self._beginning: set[str] = set()

    def __len__(self) -> int:
        return len(self._due)

    def reconnected(self, run_id: str) -> None:
        """The learner is connected (again): everything spooled for its run is due now."""
        if self._run_id != run_id:
            others = len(self._spool) - len(self._spool.ids(run_id))
            if others:
                _log.warning("%d spooled trajectories belong to another run and stay in the spool", others)
        self._run_id = run_id
        self._in_flight.clear()
        spooled = self._spool.ids(run_id)
        self._due = dict.fromkeys((name for name in spooled if name not in self._beginning), 0.0)

    def begin(self, trajectory_id: str) -> None:
        """A trajectory is about to be spooled: it is not sent until `add`."""
        self._beginning.add(trajectory_id)

    def add(self, trajectory_id: str, run_id: str) -> None:
        self._beginning.discard(trajectory_id)
        if self._run_id is None or run_id == self._run_id:
            self._due.setdefault(trajectory_id, 0.0)

    def acked(self, trajectory_ids: Sequence[str]) -> None:
        """The learner has these. One that is being spooled again at this moment is sent again later."""
        delivered = [name for name in trajectory_ids if name not in self._beginning]
        self._spool.delete(*delivered)
        sent = list(self._in_flight)
        newest = max((sent.index(name) for name in delivered if name in sent), default=len(sent))
        for name in delivered:
            self._forget(name)
        self._expect(*sent[newest + 1 :])  # what was sent before is lost, or its ack is

    def rejected(self, reject: Reject) -> None:
        """The learner rejected one: it is sent again later if that can help, else set aside."""
        if reject.ref not in self._due:
            return
        if reject.code in TRANSIENT:
            self.put_off(reject.ref, RETRY_S)
        else:
            self.refuse(reject.ref, f"{reject.code.value}: {reject.reason}")

    def put_off(self, trajectory_id: str, wait_s: float) -> None:
        """A trajectory has not arrived, and is sent again after `wait_s`."""
        self._in_flight.pop(trajectory_id, None)
        self._due[trajectory_id] = time.monotonic() + wait_s

    def refuse(self, trajectory_id: str, reason: str) -> None:
        """Sets a trajectory aside that the learner will never accept."""
        _log.error("trajectory %s is set aside in the spool: %s", trajectory_id, reason)
        self._spool.refuse(trajectory_id, reason)
        self._forget(trajectory_id)

    def next_to_send(self) -> str | None:
        """The oldest one that is due, marked as sent; None if none is due or enough are in flight."""
        now, in_flight = time.monotonic(), self._in_flight
        is_full = len(in_flight) >= MAX_IN_FLIGHT or sum(in_flight.values()) >= MAX_BYTES_IN_FLIGHT
        for trajectory_id, due_at in self._due.items():
            if due_at <= now and (trajectory_id in in_flight or not is_full):
                in_flight[trajectory_id] = in_flight.pop(trajectory_id, 0)  # the last one sent
                self._expect(trajectory_id)
                return trajectory_id
        return None

    def load(self, trajectory_id: str) -> tuple[Submit, list[bytes]]:
        body, images, _ = self._spool.packed(trajectory_id)
        self._in_flight[trajectory_id] = len(body) + sum(map(len, images.values()))
        self._expect(trajectory_id)
        return Submit(body=body, images=tuple(images)), list(images.values())

    def _expect(self, *trajectory_ids: str) -> None:
        """Acks of these are expected from now on."""
        due_at = time.monotonic() + ACK_S + sum(self._in_flight.values()) / SLOWEST
        self._due.update(dict.fromkeys(trajectory_ids, due_at))

    def _forget(self, trajectory_id: str) -> None:
        self._due.pop(trajectory_id, None)
        self._in_flight.pop(trajectory_id, None)


class LearnerLink:
    """A connection to the learner, with its own thread.

    Args:
        name: Unique among the processes of its role.
        slots: How many episodes it runs at once.
        spool: Where finished trajectories wait; required by `submit`.
        act_endpoint: This inference server's address.
        board: What the slots do, for people who watch.
        max_unacked, max_unjudged: Finished episodes that may wait for an ack or a judge before leases stop.

    `incompatibility` says why messages between the learner and this process are invalid, "" if they are not.
    """

    def __init__(
        self,
        wire: Wire,
        control: str,
        broadcast: str,
        role: Literal["worker", "inference", "evaluate", "monitor"],
        name: str,
        slots: int = 0,
        spool: Spool | None = None,
        act_endpoint: str = "",
        max_unacked: int = MAX_UNACKED,
        max_unjudged: int = 0,
        board: SlotBoard | None = None,
    ) -> None:
        self._board = board
        self._wire, self.control, self._broadcast = wire, control, broadcast
        waiting = max_unacked + max_unjudged if spool is not None else 0
        self._hello = Hello(role=role, name=name, slots=slots, waiting=waiting, act_endpoint=act_endpoint)
        self._spool, self._max_unacked = spool, max_unacked
        self._waker = Waker()
        self._condition = threading.Condition()
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Status], None]] = []
        self._stats: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="learner-link", daemon=True)
        self.status: Status | None = None
        self.shutdown = threading.Event()
        self.shutdown_reason = ""
        self.incompatibility = ""
        # Guarded by the condition:
        self._is_connected = False
        self._book = LeaseBook()
        self._outbox = Outbox(spool) if spool is not None else None
        # Link thread only:
        self._heartbeat_s = 2.0
        self._last_heard = self._next_hello = self._next_heartbeat = 0.0

    def start(self) -> None:
        """Connects in the background, without a limit."""
        self._channels = self._wire.connect_dealer(self.control), self._wire.connect_sub(self._broadcast)
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Ends the link; unacked trajectories stay in the spool, and all leases are returned."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        with self._condition:
            self._condition.notify_all()
        self._waker.close()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def add_listener(self, listener: Callable[[Status], None]) -> None:
        """Calls `listener` with each Status, in the link thread: it must be quick."""
        self._listeners.append(listener)

    def set_stats(self, stats: Mapping[str, float], is_urgent: bool = False) -> None:
        """Sets the numbers that the next heartbeats carry; numbers that are not finite are dropped.

        `is_urgent` sends a heartbeat at once. Any thread.
        """
        self._stats = {name: value for name, value in stats.items() if math.isfinite(value)}
        if is_urgent:
            self._next_heartbeat = 0.0
            self._waker.wake()

    @property
    def stats(self) -> dict[str, float]:
        """The numbers that heartbeats carry now."""
        return self._stats

    @property
    def has_policy(self) -> bool:
        return self.status is not None and bool(self.status.act_endpoints)

    def wait_connected(self, timeout_s: float) -> Status | None:
        """Waits for the learner's first answer, or for its shutdown; None if neither came in time."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_connected or self._is_over(), timeout_s)
            status = self.status if self._is_connected or self.shutdown.is_set() else None
        self.check()
        return status

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        """A lease for one episode, renewed until it is submitted or released; None if none came in time.

        `slot` is the one that asks: what a person plays there is for no other.
        """
        with self._condition:
            self._book.num_waiting += 1
            self._waker.wake()
            try:
                self._condition.wait_for(lambda: self._book.has_granted(slot) or self._is_over(), timeout_s)
                return None if self._is_over() else self._book.take(slot)
            finally:
                self._book.num_waiting -= 1

    def release(self, lease_id: str) -> None:
        """Returns a lease without a trajectory; the learner may grant it again."""
        with self._condition:
            self._book.release(lease_id)
        self._waker.wake()

    def run_of(self, lease_id: str) -> str:
        """The run that an episode belongs to: its lease's, else the present one, "" if unknown."""
        with self._condition:
            return self._book.run_of(lease_id) or (self.status.run_id if self.status else "")

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes], run_id: str | None = None) -> None:
        """Spools a finished trajectory: durable on return, and delivered in the background.

        `run_id` is the run that it belongs to, if its lease may be forgotten by now.
        """
        assert self._spool is not None, "this link has no spool"
        assert self._outbox is not None
        with self._condition:
            run_id = run_id or self.run_of(trajectory.lease_id)
            self._outbox.begin(trajectory.id)
        self._spool.put(trajectory, images, run_id)  # outside the lock, because it waits for the disk
        with self._condition:
            self._book.close(trajectory.lease_id)
            self._outbox.add(trajectory.id, run_id)
        self._waker.wake()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything spooled for this run is acked. Returns whether it is."""
        with self._condition:
            self._condition.wait_for(lambda: not self._outbox or self._error is not None, timeout_s)
            return not self._outbox

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.shutdown.is_set() or self._error is not None

    # ---- link thread ----

    def _run(self) -> None:
        control, broadcast = self._channels
        poller = Poller([control, broadcast], self._waker)
        try:
            while not self._stopping.is_set():
                poller.wait(POLL_S)
                for channel in self._channels:
                    self._drain(channel)
                self._greet(control)
                if self._is_connected:
                    self._beat(control)
                    self._show(control)
                    self._request_leases(control)
                    self._deliver(control)
                    self._send_releases(control)
            with self._condition:
                self._book.release_all()
            if self._is_connected:
                self._send_releases(control)
        except BaseException as error:
            self._error = error
            _log.exception("the link to the learner ended")
            raise
        finally:
            control.close()
            broadcast.close()
            with self._condition:
                self._condition.notify_all()

    def _drain(self, channel: Channel) -> None:
        """Handles all messages that have arrived; acks are applied together."""
        acked: list[str] = []
        while not self._stopping.is_set():
            try:
                received = channel.recv(0.0)
            except PeerError as error:
                self._incompatible(f"it sends an invalid message: {error.message}")
                continue
            if received is None:
                break
            self._last_heard = time.monotonic()
            message = received.message
            if isinstance(message, Ack):
                acked.append(message.trajectory_id)
                continue
            if isinstance(message, Welcome | Status):
                self._update(message.status if isinstance(message, Welcome) else message)
            with self._condition:
                self._take(message)
                self._condition.notify_all()
        if acked and self._outbox is not None:
            with self._condition:
                self._outbox.acked(acked)
                self._condition.notify_all()

    def _update(self, status: Status) -> None:
        if self.status is not None and self.status.run_id != status.run_id:
            _log.warning("another run, %s, now listens at %s", status.run_id, self.control)
            self._is_connected = False
        self.status = status
        for listener in self._listeners:
            listener(status)

    def _take(self, message: Record) -> None:
        run_id = self.status.run_id if self.status else ""
        if isinstance(message, Welcome):
            self._heartbeat_s = message.heartbeat_s
            if not self._is_connected:  # else it answers an earlier Hello
                _log.info("connected to run %s at %s", run_id, self.control)
                self.incompatibility = ""
                self._is_connected = True
                self._book.reconnected(run_id)
                if self._outbox is not None:
                    self._outbox.reconnected(run_id)
        elif isinstance(message, LeaseGrant):
            if message.reason:
                wait_s, why = message.retry_after_s, message.reason
                _log.warning("the learner grants no leases for the next %.0f s: %s", wait_s, why)
            self._book.granted(message, run_id)
        elif isinstance(message, Shutdown) and run_id in ("", message.run_id):
            self.shutdown_reason = message.reason
            self.shutdown.set()
        elif isinstance(message, Reject):
            self._rejected(message)

    def _incompatible(self, why: str) -> None:
        """Keeps the reason why messages, which are repeated, are invalid; logs a new one."""
        if why != self.incompatibility:
            self.incompatibility = why
            _log.error("the learner at %s and this process are incompatible: %s", self.control, why)

    def _rejected(self, reject: Reject) -> None:
        if reject.ref:
            _log.error("the learner rejected %s: %s (%s)", reject.ref, reject.reason, reject.code.value)
            if self._outbox is not None:
                self._outbox.rejected(reject)
        elif reject.code in TRANSIENT:
            _log.warning("the learner cannot answer now: %s", reject.reason)
        elif reject.code is RejectCode.FORBIDDEN:
            self._error = SecurityError(
                f"The learner at {self.control} rejects this process: {reject.reason}.",
                "Set network.key_name to a key with that role, or run `distrl keys set` at the learner.",
            )
        else:
            self._incompatible(f"it rejects a message: {reject.reason} ({reject.code.value})")

    def _greet(self, control: Channel) -> None:
        """Sends Hello until a Welcome arrives, also after the connection or the answers stopped."""
        now = time.monotonic()
        is_silent = now - self._last_heard > SILENCE_BEATS * self._heartbeat_s
        was_lost = control.lost_connection()
        if self._is_connected and (is_silent or was_lost):
            if not self.shutdown.is_set():
                _log.warning("lost the connection to the learner at %s; retrying", self.control)
            self._is_connected = False
            for channel in self._channels:
                channel.look_again()
        if not self._is_connected and now >= self._next_hello and control.is_connected:
            self._next_hello = now + HELLO_S
            control.send_periodic(self._hello)

    def _beat(self, control: Channel) -> None:
        now = time.monotonic()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + self._heartbeat_s
        control.send_periodic(Heartbeat(**self._hello.model_dump(exclude={"type"}), stats=dict(self._stats)))
        with self._condition:
            due = self._book.due_for_renewal()
        if due:
            control.send_periodic(LeaseRenew(worker=self._hello.name, lease_ids=tuple(due)))

    def _show(self, control: Channel) -> None:
        """Reports what the slots do, if people watch."""
        if self._board is not None and self.status is not None:
            found = self._board.take(self.status)
            if found is not None:
                control.send_periodic(*found)

    def _request_leases(self, control: Channel) -> None:
        if self.shutdown.is_set() or (self.status is not None and self.status.paused):
            return
        with self._condition:
            if self._outbox is not None and len(self._outbox) >= self._max_unacked:
                return
            count = self._book.num_to_request()
        if count:
            control.send_periodic(LeaseRequest(worker=self._hello.name, count=count))

    def _send_releases(self, control: Channel) -> None:
        with self._condition:
            lease_ids = self._book.pop_released()
        if lease_ids:
            control.send_periodic(LeaseRelease(worker=self._hello.name, lease_ids=tuple(lease_ids)))

    def _deliver(self, control: Channel) -> None:
        if self._outbox is None:
            return
        while True:
            with self._condition:
                trajectory_id = self._outbox.next_to_send()
            if trajectory_id is None:
                return
            try:
                message, blobs = self._outbox.load(trajectory_id)
                control.send(message, blobs, timeout_s=0.0)
            except ProtocolError as error:
                with self._condition:
                    self._outbox.refuse(trajectory_id, str(error))
                    self._condition.notify_all()
            except NetworkError:  # the socket is full
                with self._condition:
                    self._outbox.put_off(trajectory_id, 1.0)
                return


def wait_for_learner(
    link: LearnerLink,
    setting: str,
    wait_s: float | None,
    stop: threading.Event,
    say: Callable[[str], None] = _log.info,
) -> bool:
    """Waits for the learner's first answer. Returns False if `stop` was set meanwhile, or the run is over.

    `setting` is that of the learner's address, e.g. "network.control", for errors. `say` receives a line at
    the start and every `REMIND_S` seconds.

    Raises:
        LearnerUnreachable: No learner answered within `wait_s`, or it has another protocol version.
    """

    def remedy() -> str:
        if host := unknown_host(link.control):
            return f"The host {host} is unknown on this machine; correct {setting}, or /etc/hosts."
        return f"Start `distrl run-learner`, or correct {setting}; check that the keys match."

    say(f"waiting for the learner at {link.control}{'' if wait_s is None else f' (at most {wait_s:g} s)'}")
    start, remind_s = time.monotonic(), REMIND_S
    while not stop.is_set() and not link.shutdown.is_set():
        if link.wait_connected(POLL_S) is not None:
            return True
        waited_s = time.monotonic() - start
        if link.incompatibility:
            raise LearnerUnreachable(
                f"The learner at {link.control} and this process are incompatible: {link.incompatibility}.",
                "Run the same distrl version everywhere.",
            )
        if wait_s is not None and waited_s >= wait_s:
            raise LearnerUnreachable(f"No learner answered at {link.control} within {wait_s:g} s.", remedy())
        if waited_s >= remind_s:
            remind_s += REMIND_S
            say(f"still waiting for the learner at {link.control} ({waited_s:.0f} s). {remedy()}")
    return False
