"""A process's link to the learner: presence, leases, delivery of trajectories, news.

    slot threads ── lease() / submit() ──► condition + spool ──► link thread ──► control DEALER ──► learner
                                                                     ▲
    weights, pause, shutdown ◄── listeners, `status`, `shutdown` ────┴────────── broadcast SUB ◄── learner

A trajectory is in the spool before it is sent and until its ack, so a crash on either side, a lost message or
a restart costs a resend and nothing else. While too much waits for acks, no new leases are asked for.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import ValidationError

from distrl.core.errors import LearnerUnreachable, NetworkError, ProtocolError, SecurityError
from distrl.core.fields import first_problem
from distrl.core.messages import (
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
    Welcome,
)
from distrl.core.sockets import Channel, PeerError, Poller, Waker, Wire
from distrl.core.types import Record, Trajectory
from distrl.workers.delivery import Delivery
from distrl.workers.lease_book import LeaseBook
from distrl.workers.spool import Spool

POLL_S = 0.2
HELLO_S = 0.5  # between two Hellos while nobody answers
MAX_MISFITS = 64  # reasons that are logged between two connections
SILENCE_BEATS = 4  # heartbeats without any answer before the learner counts as gone
_log = logging.getLogger(__name__)


class LearnerLink:
    """One connection to the learner, with a thread of its own.

    Args:
        wire: Makes the channels.
        control, broadcast: The learner's endpoints.
        role: What this process is.
        name: Unique among the processes of its role.
        slots: How many episodes it runs at once.
        spool: Where finished trajectories wait; needed to `submit`.
        act_endpoint: Where an inference server answers.
        relay: Where it passes weights on.
        max_unacked: Trajectories that may wait for their ack before leases stop.
        max_unjudged: Finished episodes that may wait for a judge before leases stop.

    Attributes:
        misfit: Why the learner and this process do not understand each other, if so; it may be updated yet.
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
        relay: str = "",
        max_unacked: int = 64,
        max_unjudged: int = 0,
    ) -> None:
        self._wire, self._control_endpoint, self._broadcast_endpoint = wire, control, broadcast
        waiting = max_unacked + max_unjudged if spool is not None else 0
        self._hello = Hello(
            role=role, name=name, slots=slots, waiting=waiting, act_endpoint=act_endpoint, relay=relay
        )
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
        self.misfit = ""
        # Guarded by the condition:
        self._is_connected = False
        self._book = LeaseBook()
        self._delivery = Delivery(spool) if spool is not None else None
        # Link thread only:
        self._misfits: set[str] = set()
        self._has_bad_stats = False
        self._heartbeat_s = 2.0
        self._last_heard = self._next_hello = self._next_heartbeat = 0.0

    def start(self) -> None:
        """Connects in the background, for as long as it takes."""
        control = self._wire.connect_dealer(self._control_endpoint)
        broadcast = self._wire.connect_sub(self._broadcast_endpoint)
        self._channels = control, broadcast
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Ends the link; what is not acked stays in the spool, and all leases are given back."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        with self._condition:
            self._condition.notify_all()
        self._waker.close()

    def check(self) -> None:
        """Raises what ended the link thread, if anything did."""
        if self._error is not None:
            raise self._error

    def add_listener(self, listener: Callable[[Status], None]) -> None:
        """Calls `listener` with each Status, in the link thread: it must be quick."""
        self._listeners.append(listener)

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Sets the numbers that the next heartbeats carry; those that are not finite cannot travel."""
        self._stats = {name: value for name, value in stats.items() if math.isfinite(value)}

    def holds(self, digest: str) -> None:
        """Tells the learner at once that the weights with this digest are passed on here. Any thread."""
        self._hello = self._hello.model_copy(update={"weights": digest})
        self._next_heartbeat = 0.0
        if not self._stopping.is_set():
            self._waker.wake()

    def wait_connected(self, timeout_s: float) -> Status:
        """Waits for the learner's first answer.

        Raises:
            LearnerUnreachable: None came within `timeout_s`.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._is_connected or self._is_over(), timeout_s)
            status = self.status if self._is_connected or self.shutdown.is_set() else None
        self.check()
        if status is None:
            raise LearnerUnreachable(
                f"No learner answered at {self._control_endpoint} within {timeout_s:g} s.",
                "Is `distrl run-learner` running there, with the same keys?",
            )
        return status

    def lease(self, timeout_s: float) -> Lease | None:
        """A lease for one episode, None when none came in time or the run is over.

        The link renews it until its trajectory is submitted or it is released.
        """
        with self._condition:
            self._book.num_waiting += 1
            self._waker.wake()
            try:
                self._condition.wait_for(lambda: self._book.has_granted() or self._is_over(), timeout_s)
                return None if self._is_over() else self._book.take()
            finally:
                self._book.num_waiting -= 1

    def release(self, lease_id: str) -> None:
        """Gives up a lease without a trajectory: the learner is told, and may grant it to another."""
        with self._condition:
            self._book.give_back(lease_id)
        if not self._stopping.is_set():
            self._waker.wake()

    def run_of(self, lease_id: str) -> str:
        """The run that an episode belongs to: that of its lease, else the present one, "" if unknown."""
        with self._condition:
            return self._book.run_of(lease_id) or (self.status.run_id if self.status else "")

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes], run_id: str | None = None) -> None:
        """Spools a finished trajectory; it is safe on return, and delivered in the background.

        Args:
            trajectory, images: The episode, and its screenshots by digest.
            run_id: The run that it belongs to, where its lease may not be known any more.

        Raises:
            StoreError: The spool's disk is full.
        """
        assert self._spool is not None, "this link has no spool"
        assert self._delivery is not None
        with self._condition:
            run_id = run_id or self.run_of(trajectory.lease_id)
            self._delivery.begin(trajectory.id)
        self._spool.put(trajectory, images, run_id)  # waits for the disk, so without what leases need
        with self._condition:
            self._book.close(trajectory.lease_id)
            self._delivery.add(trajectory.id, run_id)
        if not self._stopping.is_set():
            self._waker.wake()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything spooled for this run is acked. Returns whether it is."""
        with self._condition:
            self._condition.wait_for(lambda: not self._delivery or self._error is not None, timeout_s)
            return not self._delivery

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
                    self._ask_for_leases(control)
                    self._deliver(control)
                    self._give_back(control)
            with self._condition:
                self._book.give_all_back()
            if self._is_connected:
                self._give_back(control)
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
        """Takes all that has arrived; acks are applied together."""
        acked: list[str] = []
        while not self._stopping.is_set():
            try:
                received = channel.recv(0.0)
            except PeerError as error:
                self._misunderstood(f"it sends what is no message: {error.message}")
                continue
            if received is None:
                break
            if isinstance(received.message, Ack):
                acked.append(received.message.trajectory_id)
            else:
                self._take(received.message)
            self._last_heard = time.monotonic()
        if acked and self._delivery is not None:
            with self._condition:
                self._delivery.acked(acked)
                self._condition.notify_all()

    def _take(self, message: Record) -> None:
        if isinstance(message, Welcome):
            self._heartbeat_s = message.heartbeat_s
            self._news(message.status)
            if not self._is_connected:  # else the answer to an earlier one of several Hellos
                self._connected()
        elif isinstance(message, Status):
            self._news(message)
        elif isinstance(message, LeaseGrant):
            if message.reason:
                _log.warning(
                    "the learner grants no leases for %.0f s: %s", message.retry_after_s, message.reason
                )
            with self._condition:
                run_id = self.status.run_id if self.status else ""
                self._book.granted(message, run_id)
                self._condition.notify_all()
        elif isinstance(message, Shutdown):
            if self.status is None or self.status.run_id == message.run_id:
                self.shutdown_reason = message.reason
                self.shutdown.set()
                with self._condition:
                    self._condition.notify_all()
        elif isinstance(message, Reject):
            self._rejected(message)

    def _news(self, status: Status) -> None:
        if self.status is not None and self.status.run_id != status.run_id:
            _log.warning("another run, %s, listens at %s", status.run_id, self._control_endpoint)
            self._is_connected = False
        self.status = status
        for listener in self._listeners:
            listener(status)

    def _connected(self) -> None:
        assert self.status is not None
        _log.info("connected to run %s at %s", self.status.run_id, self._control_endpoint)
        self.misfit = ""
        self._misfits.clear()
        with self._condition:
            self._is_connected = True
            self._book.reconnected(self.status.run_id)
            if self._delivery is not None:
                self._delivery.reconnected(self.status.run_id)
            self._condition.notify_all()

    def _misunderstood(self, why: str) -> None:
        """Notes, and logs once, why the learner's words or ours, which are repeated, come to nothing."""
        self.misfit = why
        if why not in self._misfits and len(self._misfits) < MAX_MISFITS:
            self._misfits.add(why)
            _log.error("the learner at %s does not understand this process: %s", self._control_endpoint, why)

    def _rejected(self, reject: Reject) -> None:
        if reject.code is RejectCode.FORBIDDEN and not reject.ref:
            self._error = SecurityError(
                f"The learner at {self._control_endpoint} refuses this process: {reject.reason}.",
                "Set network.key_name to a key with that role, or run `distrl keys set` at the learner.",
            )
            with self._condition:
                self._condition.notify_all()
            return
        if not reject.ref:
            self._misunderstood(f"it refuses a message: {reject.reason} ({reject.code.value})")
            return
        _log.error("the learner refused %s: %s (%s)", reject.ref, reject.reason, reject.code.value)
        if self._delivery is not None:
            with self._condition:
                self._delivery.rejected(reject)
                self._condition.notify_all()

    def _greet(self, control: Channel) -> None:
        """Says Hello until there is a Welcome, also after the connection or the answers stopped."""
        now = time.monotonic()
        is_silent = now - self._last_heard > SILENCE_BEATS * self._heartbeat_s
        was_lost = control.lost_connection()
        if self._is_connected and (is_silent or was_lost):
            if not self.shutdown.is_set():
                _log.warning("lost the connection to the learner at %s; retrying", self._control_endpoint)
            self._is_connected = False
        if not self._is_connected and now >= self._next_hello and control.is_connected:
            self._next_hello = now + HELLO_S
            control.send_periodic(self._hello)

    def _beat(self, control: Channel) -> None:
        now = time.monotonic()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + self._heartbeat_s
        control.send_periodic(self._heartbeat())
        with self._condition:
            due = self._book.due_for_renewal()
        if due:
            control.send_periodic(LeaseRenew(worker=self._hello.name, lease_ids=tuple(due)))

    def _heartbeat(self) -> Heartbeat:
        """The next one; without numbers if these cannot travel."""
        hello = self._hello.model_dump(exclude={"type"})
        try:
            return Heartbeat(**hello, stats=dict(self._stats))
        except ValidationError as error:
            if not self._has_bad_stats:
                self._has_bad_stats = True
                _log.error("heartbeats carry no numbers: %.300s", first_problem(error))
            return Heartbeat(**hello)

    def _ask_for_leases(self, control: Channel) -> None:
        if self.shutdown.is_set() or (self.status is not None and self.status.paused):
            return
        with self._condition:
            if self._delivery is not None and len(self._delivery) >= self._max_unacked:
                return
            count = self._book.num_to_ask()
        if count:
            control.send_periodic(LeaseRequest(worker=self._hello.name, count=count))

    def _give_back(self, control: Channel) -> None:
        with self._condition:
            lease_ids = self._book.take_given_back()
        if lease_ids:
            control.send_periodic(LeaseRelease(worker=self._hello.name, lease_ids=tuple(lease_ids)))

    def _deliver(self, control: Channel) -> None:
        if self._delivery is None:
            return
        while True:
            with self._condition:
                trajectory_id = self._delivery.next_to_send()
            if trajectory_id is None:
                return
            try:
                message, blobs = self._delivery.load(trajectory_id)
                control.send(message, blobs, timeout_s=0.0)
            except ProtocolError as error:
                with self._condition:
                    self._delivery.refuse(trajectory_id, str(error))
                    self._condition.notify_all()
            except NetworkError:
                return  # no room now; it is sent again after its ack time is over
