"""The learner's network side: control, broadcast and weights sockets. Needs no objective and no torch.

    workers ──► control ROUTER ─┐                                   ┌─► bounded queue ──► training thread
                                ├─ network thread ── store commit ──┤
    all ◄──── broadcast PUB ────┘        ▲                          └─► ack
                                         │ waker
    any thread: publish_weights, set_phase, set_metrics, shutdown

    inference servers ──► weights ROUTER ── chunk thread (the newest buffers)

`ServerBase` is what every learner has (presence, status, weights, the end of the run), `LearnerServer` adds
leases and trajectories.

A trajectory is acked after it is committed, never before. One that is out of bounds or does not fit its
lease is rejected and never committed. All that waits is committed together. When the training thread's
queue is full, ids wait here, the trajectories stay on disk, and workers pause.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from distrl.core.errors import NetworkError, ProtocolError, StoreError
from distrl.core.messages import (
    MAX_STATISTIC,
    TRANSIENT,
    Ack,
    Command,
    Heartbeat,
    Hello,
    LeaseGrant,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    RejectCode,
    Shutdown,
    SlotReport,
    Status,
    StatusRequest,
    Submit,
    Watch,
    WeightInfo,
    Welcome,
)
from distrl.core.prometheus import show
from distrl.core.rendezvous import Meeting, publish, reachable
from distrl.core.security import Client, Security
from distrl.core.service import CONTROL, WEIGHTS, Permits, Service
from distrl.core.sockets import Poller, Received, Waker, Wire
from distrl.core.store import TrajectoryStore
from distrl.core.transfer import TURN, Transfer
from distrl.core.types import Purpose, Record, Trajectory, image_digest
from distrl.core.weights import Buffer, ChunkServer
from distrl.learner.gallery import Gallery
from distrl.learner.peers import MAX_CLIENTS, Peers, Suspensions

if TYPE_CHECKING:
    from distrl.learner.scheduler import TaskScheduler

POLL_S = 0.2
BROADCAST_S, TURN_POLL_S = 1.0, 0.01
IO_THREADS = 4  # connections spread over them: many receivers of weights, and CURVE, need more than one core
KEPT_WEIGHTS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoints:
    """Where the learner's three sockets are bound, and the rendezvous where this is published, if any."""

    control: str
    broadcast: str
    weights: str
    rendezvous: str | None = None

    def publish(self, security: Security | None) -> None:
        """Publishes the addresses under which others reach the sockets."""
        if self.rendezvous is not None:
            control, broadcast, weights = map(reachable, (self.control, self.broadcast, self.weights))
            public = security.server_public if security is not None else ""
            meeting = Meeting(control=control, broadcast=broadcast, weights=weights, public=public)
            publish(self.rendezvous, meeting)


@dataclass(frozen=True)
class RunLimits:
    """The limits of one run.

    Attributes:
        max_prompt_tokens, max_sequence_tokens: Of a prompt, and of a sequence with its answers; None where
            the policy does not bound them.
        newest_version: Returns the newest weight version of the run.
    """

    num_tokens: int
    max_prompt_tokens: int | None
    max_sequence_tokens: int | None
    max_new_tokens: int
    newest_version: Callable[[], int]

    def check(self, trajectory: Trajectory) -> str:
        """The first value of `trajectory` that this run does not accept, in words; "" if there is none."""
        num_steps, most = len(trajectory.steps), trajectory.task.max_steps
        if num_steps > most:
            return f"it has {num_steps} steps, and its task allows {most}"
        newest, length = self.newest_version(), 0
        for number, step in enumerate(trajectory.steps):
            for chat in step.chats:
                one = chat.completion
                prompt, tokens = one.prompt_token_ids, one.token_ids
                length = (length if chat.continues else 0) + len(prompt) + len(tokens)
                for what, value, limit in (
                    ("a token id", max((*prompt, *tokens), default=0), self.num_tokens - 1),
                    ("a weight version", max(one.weight_versions, default=0), newest),
                    ("the length of an answer (learner.max_new_tokens)", len(tokens), self.max_new_tokens),
                    (
                        "the length of a prompt (policy.max_prompt_tokens)",
                        0 if chat.continues else len(prompt),
                        self.max_prompt_tokens,
                    ),
                    ("the length of a sequence", length, self.max_sequence_tokens),
                ):
                    if limit is not None and value > limit:
                        return f"steps.{number}: {what} is {value}, more than {limit}"
        return ""


class ServerBase:
    """Owns a learner's sockets, and the threads that serve them.

    Attributes:
        weight_permits: Which roles of keys may fetch weights.

    Args:
        endpoints: Where to bind; ports 0 or * pick free ones, see the attribute `endpoints`.
        run_id: Stable over restarts of the same run.
        heartbeat_s: How often peers send heartbeats; a peer that misses three is gone.
        keep_weights: How many published versions stay available.
    """

    weight_permits: ClassVar[Permits] = WEIGHTS

    def __init__(
        self,
        endpoints: Endpoints,
        security: Security | None,
        run_id: str,
        heartbeat_s: float = 2.0,
        keep_weights: int = KEPT_WEIGHTS,
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._peers = Peers(3.0 * heartbeat_s)
        self._wire = Wire(security, IO_THREADS)
        try:
            self._control = self._wire.bind_router(endpoints.control)
            self._broadcast = self._wire.bind_pub(endpoints.broadcast)
            weights_channel = self._wire.bind_router(endpoints.weights)
        except NetworkError:
            self._wire.close()
            raise
        bound = (self._control.endpoint, self._broadcast.endpoint, weights_channel.endpoint)
        self.endpoints = Endpoints(*bound, endpoints.rendezvous)
        self._security = security
        self._chunks = ChunkServer(weights_channel, self.weight_permits, keep_weights)
        self._service = Service(self._control, self._handle, CONTROL)
        self._waker = Waker()
        self._lock = threading.Lock()
        self._status = Status(run_id=run_id, phase="starting")
        self._is_urgent = False
        self._shutdown: Shutdown | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        # Network thread only:
        self._next_broadcast = 0.0
        self._gallery = Gallery()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        show(lambda: self.status.metrics)
        self._thread.start()
        self._chunks.start()
        self.endpoints.publish(self._security)

    @property
    def status(self) -> Status:
        """What is broadcast to peers."""
        with self._lock:
            return self._status

    def check(self) -> None:
        """Raises what ended the network thread or the chunk thread, if anything did."""
        if self._error is not None:
            raise self._error
        self._chunks.check()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers new weights and announces them. `data` must not change afterwards. Any thread."""
        self._chunks.publish(info, data)
        self._change(weights=info)

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Makes older weights available again, without announcing them. Any thread."""
        self._chunks.publish(info, data)

    def announce_transfer(self, transfer: Transfer | None) -> None:
        """Announces what servers receive from GPU to GPU. Any thread."""
        self._change(transfer=transfer)

    def pass_turn(self, wait_s: float) -> bool:
        """Passes a shared GPU to the learner, or back to its server (see `Status.turn`). For one thread.

        Returns whether the server obeys within `wait_s`.
        """
        turn, deadline = self.status.turn + 1, time.monotonic() + wait_s
        self._change(turn=turn)
        while any(one.get(TURN, turn) != turn for one in self.server_stats().values()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(TURN_POLL_S)
        return True

    def server_stats(self) -> dict[str, Mapping[str, float]]:
        """What each inference server that is alive last reported, by name. Any thread."""
        return self._peers.stats("inference")

    def set_phase(self, phase: str) -> None:
        """Announces a phase (see `Status.phase`). Any thread."""
        self._change(phase=phase)

    def set_metrics(self, metrics: Mapping[str, float]) -> None:
        """Sets the metrics that the next broadcast carries, without those that no peer would read."""
        kept = {name: value for name, value in metrics.items() if abs(value) <= MAX_STATISTIC}
        with self._lock:
            self._status = self._status.model_copy(update={"metrics": kept})

    def peer_metrics(self) -> dict[str, float]:
        """What workers and inference servers report, together, and messages rejected, by code.

        For one thread.
        """
        rejected = {f"rejected/{code}": float(n) for code, n in self._service.num_rejected.items() if n}
        return {**self._peers.metrics(), **rejected, "weights/sent_bytes": float(self._chunks.num_bytes)}

    def shutdown(self, reason: str) -> None:
        """Sends every peer a shutdown, repeatedly until `close`. Submits are still taken. Any thread."""
        with self._lock:
            self._shutdown = Shutdown(run_id=self._status.run_id, reason=reason)
        self._change(phase="done")

    def close(self, timeout_s: float = 5.0) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        self._chunks.close(timeout_s)
        self._control.close()
        self._broadcast.close()
        self._wire.close()
        self._waker.close()

    def _change(self, **update: object) -> None:
        with self._lock:
            changed = self._status.model_copy(update=update)
            if changed == self._status:
                return
            self._status, self._is_urgent = changed, True
        with contextlib.suppress(OSError):  # closed already
            self._waker.wake()

    # ---- network thread ----

    def _run(self) -> None:
        poller = Poller([self._control], self._waker)
        try:
            while not self._stopping.is_set():
                poller.wait(POLL_S)
                self._service.pump()
                self._work()
                if self._peers.expire():
                    self._change(act_endpoints=self._peers.act_endpoints(), slots=self._peers.slots())
                watched, followed = self._gallery.watching()
                self._change(watched=watched, followed=followed, hands=self._gallery.hands())
                self._announce()
        except BaseException as error:
            self._error = error
            _log.exception("the network thread ended")
            raise

    def _work(self) -> None:
        """What a subclass does several times a second, after messages were handled. Must not block."""

    def _handle(self, received: Received) -> None:
        """Answers a message; a subclass takes its own kinds first."""
        message, peer = received.message, received.peer
        if isinstance(message, StatusRequest):
            self._service.reply(peer, self.status)
        elif isinstance(message, (Hello, Heartbeat)):
            if self._peers.register(message):
                self._change(act_endpoints=self._peers.act_endpoints(), slots=self._peers.slots())
            answer: Record = self.status
            if isinstance(message, Hello):
                answer = Welcome(status=self.status, heartbeat_s=self._heartbeat_s)
            self._service.reply(peer, self._shutdown or answer)
        elif isinstance(message, SlotReport):
            num_slots, _ = self._peers.announced(message.worker)
            self._gallery.report(message, received.blobs, num_slots)
        elif isinstance(message, Watch):
            self._service.reply(peer, *self._gallery.watch(peer, message, self.status))
        else:
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"a {type(message).__name__} is not a request to this learner"
            )

    def _announce(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._is_urgent and now < self._next_broadcast:
                return
            self._is_urgent = False
            status, shutdown = self._status, self._shutdown
        self._next_broadcast = now + (POLL_S if shutdown else BROADCAST_S)
        self._broadcast.send_periodic(status)
        if shutdown is not None:
            self._broadcast.send_periodic(shutdown)


class LearnerServer(ServerBase):
    """Ingests what workers send, and hands out leases. See `ServerBase` for the rest.

    Args:
        ingested: Bounded queue; each new trajectory is put in once, after its commit.

    Attributes:
        limits: What a trajectory of this run may hold besides; to be set before `start`.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        security: Security | None,
        store: TrajectoryStore,
        scheduler: TaskScheduler,
        ingested: queue.Queue[Trajectory],
        run_id: str,
        heartbeat_s: float = 2.0,
    ) -> None:
        super().__init__(endpoints, security, run_id, heartbeat_s)
        self._store, self._scheduler, self._ingested = store, scheduler, ingested
        self.limits: RunLimits | None = None
        # Called in the network thread with each trajectory before it is put into `ingested`.
        self.on_arrival: Callable[[Trajectory], None] = lambda trajectory: None
        self._service.on_reject = self._rejected
        self._checkpoint_wanted = threading.Event()
        # Network thread only:
        self._suspensions = Suspensions()
        self._workers: OrderedDict[bytes, str] = OrderedDict()  # by connection, as they name themselves
        self._submits: list[tuple[bytes, Submit, dict[str, bytes]]] = []
        self._backlog: deque[Trajectory] = deque()  # on disk; here without their steps
        self._num_suspended = 0

    def peer_metrics(self) -> dict[str, float]:
        return {**super().peer_metrics(), "workers/suspended": float(self._num_suspended)}

    def takes_checkpoint(self) -> bool:
        """Whether the owner has requested a checkpoint since the last call. For one thread."""
        if not self._checkpoint_wanted.is_set():
            return False
        self._checkpoint_wanted.clear()  # only now: a request since the look above is not lost
        return True

    # ---- network thread ----

    def _work(self) -> None:
        submits, self._submits = self._submits, []
        self._commit(submits)
        self._hand_over()
        self._change(paused=bool(self._backlog) or self.status.is_held)
        self._scheduler.tick()
        self._num_suspended = self._suspensions.count

    def _handle(self, received: Received) -> None:
        message, peer = received.message, received.peer
        if isinstance(message, Submit):
            self._name(peer, message.trajectory.worker)
            self._take(peer, message, received.blobs)
        elif isinstance(message, LeaseRenew):
            self._scheduler.renew(message.worker, message.lease_ids)
            self._service.reply(peer, self.status)
        elif isinstance(message, LeaseRelease):
            self._scheduler.release(message.worker, message.lease_ids)
            self._service.reply(peer, self.status)
        elif isinstance(message, LeaseRequest):
            self._name(peer, message.worker)
            self._service.reply(peer, self._shutdown or self._grant(message, received.client))
        elif isinstance(message, Command):
            self._obey(message)
            self._service.reply(peer, self.status)
        else:
            super()._handle(received)

    def _obey(self, command: Command) -> None:
        if command.hand is not None:
            if command.action == "play":
                self._gallery.play(command.hand)
            else:
                self._gallery.leave(command.hand.slot)
            return
        _log.info("%s of %s", command.action, command.name)
        if command.action == "checkpoint":
            self._checkpoint_wanted.set()
        elif command.action in ("pause", "resume"):
            self._change(is_held=command.action == "pause")

    def _grant(self, request: LeaseRequest, client: Client | None) -> LeaseGrant:
        seconds, reason = self._suspensions.of(request.worker)
        if seconds:
            return LeaseGrant(retry_after_s=seconds, reason=reason)
        if self._backlog or self.status.is_held:
            return LeaseGrant()
        _, limit = self._peers.announced(request.worker)
        taken = self._gallery.without_lease(request.worker)
        by_hand = [self._scheduler.lease_by_hand(request.worker, *one) for one in taken]
        leases = self._scheduler.grant(request.worker, request.count, limit, client)
        return LeaseGrant(leases=(*by_hand, *leases))

    def _take(self, peer: bytes, submit: Submit, blobs: Sequence[memoryview]) -> None:
        trajectory = submit.trajectory
        try:
            if problem := self.limits.check(trajectory) if self.limits is not None else "":
                raise ProtocolError(RejectCode.LIMIT.value, problem)
            images = check_images(submit, blobs)
            missing = set(trajectory.image_digests) - images.keys()
            for _, _, waiting in self._submits:
                missing -= waiting.keys()
            missing -= self._store.known_images(missing)
            if missing:
                raise ProtocolError(RejectCode.DIGEST.value, f"{len(missing)} images are missing")
            if problem := self._scheduler.check(trajectory):
                raise ProtocolError(RejectCode.LEASE_MISMATCH.value, problem)
        except ProtocolError as error:
            if trajectory.id in self._store:  # resent, and accepted before
                self._service.reply(peer, Ack(trajectory_id=trajectory.id, duplicate=True))
            else:
                self._service.reject(peer, error, ref=trajectory.id)
        else:
            self._submits.append((peer, submit, images))

    def _name(self, peer: bytes, worker: str) -> None:
        if worker:
            self._workers[peer] = worker
            self._workers.move_to_end(peer)
            if len(self._workers) > MAX_CLIENTS:
                self._workers.popitem(last=False)

    def _rejected(self, peer: bytes, error: ProtocolError, ref: str) -> None:
        """A message was refused; where `ref` names a trajectory, its worker may be suspended."""
        worker = self._workers.get(peer)  # None of a connection that has named none
        if worker and ref and RejectCode(error.code) not in TRANSIENT:
            self._suspensions.record(worker, f"{error.message} ({error.code})")

    def _commit(self, submits: Sequence[tuple[bytes, Submit, dict[str, bytes]]]) -> None:
        """Commits all at once; if that fails one by one, so that a bad one is rejected alone."""
        if not submits:
            return
        try:
            items = [(submit.trajectory, images) for _, submit, images in submits]
            is_new = self._store.add_many(items, [submit.body for _, submit, _ in submits])
        except StoreError as error:
            if len(submits) > 1:
                for one in submits:
                    self._commit([one])
                return
            peer, submit, _ = submits[0]
            _log.error("trajectory %s is not stored: %s", submit.trajectory.id, error)
            problem = ProtocolError(RejectCode.INTERNAL.value, error.message)
            self._service.reject(peer, problem, ref=submit.trajectory.id)
            return
        for (peer, submit, _), new in zip(submits, is_new, strict=True):
            self._committed(peer, submit.trajectory, new)

    def _committed(self, peer: bytes, trajectory: Trajectory, is_new: bool) -> None:
        self._service.reply(peer, Ack(trajectory_id=trajectory.id, duplicate=not is_new))
        if not is_new:
            return
        self._suspensions.record(self._workers.get(peer, ""))
        if trajectory.purpose is Purpose.DEMO:
            self._gallery.leave(f"{trajectory.worker}/{trajectory.slot}")
        self._scheduler.finish(trajectory)
        if not self._backlog:
            try:
                self._put(trajectory)
                return
            except queue.Full:
                pass
        self._backlog.append(trajectory.model_copy(update={"steps": ()}))

    def _put(self, trajectory: Trajectory) -> None:
        """Hands one to the training thread, or raises `queue.Full`."""
        self.on_arrival(trajectory)  # before it can be taken
        self._ingested.put_nowait(trajectory)

    def _hand_over(self) -> None:
        """Moves what waits on disk to the training thread as its queue empties.

        The scheduler gives up one that cannot be read, or the run would wait for it.
        """
        while self._backlog and not self._ingested.full():
            first = self._backlog.popleft()
            try:
                self._put(self._store.get(first.id))
            except StoreError as error:
                _log.error("trajectory %s is lost to training: %s", first.id, error)
                self._scheduler.lose(first)


def check_images(submit: Submit, blobs: Sequence[memoryview]) -> dict[str, bytes]:
    """The images of a Submit by digest."""
    if len(blobs) != len(submit.images):
        raise ProtocolError(
            RejectCode.MALFORMED.value, f"{len(submit.images)} images are named, {len(blobs)} frames came"
        )
    images = {name: bytes(blob) for name, blob in zip(submit.images, blobs, strict=True)}
    for name, data in images.items():
        if image_digest(data) != name:
            raise ProtocolError(RejectCode.DIGEST.value, f"the bytes of image {name:.40} have another digest")
    return images
