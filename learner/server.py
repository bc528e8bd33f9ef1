"""The learner's network side: control, broadcast and weights sockets. Knows no algorithm and no torch.

    workers ──► control ROUTER ─┐                                   ┌─► bounded queue ──► training thread
                                ├─ network thread ── store commit ──┤
    all ◄──── broadcast PUB ────┘        ▲                          └─► ack
                                         │ waker
    training thread: publish_weights, set_phase, set_metrics, shutdown

    inference servers ──► weights ROUTER ── chunk thread ◄── WeightStore (the newest buffers)

A trajectory is acked after it is committed, never before. All that waits is committed together. When the
training thread's queue is full, ids wait here, the trajectories stay on disk, and workers are told to pause.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from distrl.core.errors import NetworkError, ProtocolError, StoreError
from distrl.core.messages import (
    Ack,
    Heartbeat,
    Hello,
    Lease,
    LeaseGrant,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    RejectCode,
    Shutdown,
    Status,
    StatusRequest,
    Submit,
    WeightInfo,
    Welcome,
)
from distrl.core.security import Security
from distrl.core.service import Service
from distrl.core.sockets import Poller, Received, Waker, Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Record, Trajectory, image_digest
from distrl.core.weights import Buffer, WeightStore
from distrl.learner.chunk_server import ChunkServer
from distrl.learner.peers import Peers

POLL_S = 0.2
BROADCAST_S = 1.0
IO_THREADS = 4  # connections spread over them: many receivers of weights, and CURVE, need more than one core
_log = logging.getLogger(__name__)


class Scheduler(Protocol):
    """Decides which episodes are run. Called by the network thread only; must not block."""

    def grant(self, worker: str, count: int) -> Sequence[Lease]:
        """Up to `count` leases for `worker`."""
        ...

    def renew(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Prolongs leases; ids that are unknown (e.g. from before a restart) are ignored."""
        ...

    def release(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Takes leases back that `worker` will not finish; ids that are unknown are ignored."""
        ...

    def finish(self, lease_id: str, trajectory: Trajectory) -> None:
        """A new trajectory is committed; its lease may be unknown or expired."""
        ...

    def tick(self) -> None:
        """Called several times a second: leases expire here."""
        ...


@dataclass(frozen=True)
class Endpoints:
    """Where the learner's three sockets are bound."""

    control: str
    broadcast: str
    weights: str


class LearnerServer:
    """Owns the learner's sockets and ingests what workers send.

    Args:
        endpoints: Where to bind; ports 0 or * pick free ones, see the attribute `endpoints`.
        security: Keys, None on loopback.
        store: Where trajectories are committed.
        scheduler: Grants leases.
        ingested: Bounded queue; each new trajectory is put in once, after its commit.
        run_id: Stable over restarts of the same run.
        heartbeat_s: How often peers say that they live; three missed beats and a peer is gone.
        keep_weights: How many published versions stay available.

    Raises:
        NetworkError: An address is in use.
        SecurityError: A public address without keys.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        security: Security | None,
        store: TrajectoryStore,
        scheduler: Scheduler,
        ingested: queue.Queue[Trajectory],
        run_id: str,
        heartbeat_s: float = 2.0,
        keep_weights: int = 3,
    ) -> None:
        self._store, self._scheduler, self._ingested = store, scheduler, ingested
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
        self.endpoints = Endpoints(self._control.endpoint, self._broadcast.endpoint, weights_channel.endpoint)
        self._weights = WeightStore(keep_weights)
        self._chunks = ChunkServer(weights_channel, self._weights)
        self._service = Service(self._control, self._handle)
        self._waker = Waker()
        self._lock = threading.Lock()
        self._status = Status(run_id=run_id, phase="starting")
        self._is_urgent = False
        self._shutdown: Shutdown | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        # Network thread only:
        self._submits: list[tuple[bytes, Trajectory, dict[str, bytes]]] = []
        self._backlog: deque[str] = deque()
        self._next_broadcast = 0.0
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        """Starts the threads."""
        self._thread.start()
        self._chunks.start()

    @property
    def status(self) -> Status:
        """What peers are told."""
        with self._lock:
            return self._status

    def check(self) -> None:
        """Raises what ended the network thread or the chunk thread, if anything did."""
        if self._error is not None:
            raise self._error
        self._chunks.check()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers new weights and announces them. `data` must not change afterwards. Any thread."""
        self._weights.publish(info, data)
        self._change(weights=info)

    def set_phase(self, phase: str) -> None:
        """Announces a phase (see `Status.phase`). Any thread."""
        self._change(phase=phase)

    def set_metrics(self, metrics: Mapping[str, float]) -> None:
        """Sets the metrics that the next broadcast carries. Any thread."""
        with self._lock:
            self._status = self._status.model_copy(update={"metrics": dict(metrics)})

    def peer_metrics(self) -> dict[str, float]:
        """What workers and inference servers say of themselves, together. For one thread."""
        return self._peers.metrics()

    def shutdown(self, reason: str) -> None:
        """Tells everybody to stop, again and again until `close`. Submits are still taken. Any thread."""
        with self._lock:
            self._shutdown = Shutdown(run_id=self._status.run_id, reason=reason)
        self._change(phase="done")

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops the threads and closes the sockets."""
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
        with contextlib.suppress(OSError):  # closed already: nobody listens any more
            self._waker.wake()

    # ---- network thread ----

    def _run(self) -> None:
        poller = Poller([self._control], self._waker)
        try:
            while not self._stopping.is_set():
                poller.wait(POLL_S)
                self._service.pump()
                self._commit()
                self._hand_over()
                self._change(paused=bool(self._backlog))
                self._scheduler.tick()
                if self._peers.expire():
                    self._list_act_endpoints()
                self._announce()
        except BaseException as error:
            self._error = error
            _log.exception("the network thread ended")
            raise

    def _handle(self, received: Received) -> None:
        message, peer = received.message, received.peer
        if isinstance(message, Submit):
            self._take(peer, message, received.blobs)
        elif isinstance(message, StatusRequest):
            self._service.reply(peer, self.status)
        elif isinstance(message, LeaseRenew):
            self._scheduler.renew(message.worker, message.lease_ids)
            self._service.reply(peer, self.status)
        elif isinstance(message, LeaseRelease):
            self._scheduler.release(message.worker, message.lease_ids)
            self._service.reply(peer, self.status)
        elif isinstance(message, (Hello, Heartbeat)):
            if self._peers.see(message):
                self._list_act_endpoints()
            answer: Record = self.status
            if isinstance(message, Hello):
                answer = Welcome(status=self.status, heartbeat_s=self._heartbeat_s)
            self._service.reply(peer, self._shutdown or answer)
        elif isinstance(message, LeaseRequest):
            self._service.reply(peer, self._shutdown or self._grant(message))
        else:
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"a {type(message).__name__} is no request to a learner"
            )

    def _grant(self, request: LeaseRequest) -> LeaseGrant:
        if self._backlog:
            return LeaseGrant()
        return LeaseGrant(leases=tuple(self._scheduler.grant(request.worker, request.count)))

    def _take(self, peer: bytes, submit: Submit, blobs: Sequence[memoryview]) -> None:
        """Checks a Submit and queues it for the next commit."""
        trajectory = submit.trajectory
        try:
            images = check_images(submit, blobs)
            missing = set(trajectory.image_digests) - images.keys()
            for _, _, waiting in self._submits:
                missing -= waiting.keys()
            missing -= self._store.known_images(missing)
            if missing:
                raise ProtocolError(RejectCode.DIGEST.value, f"{len(missing)} images are missing")
        except ProtocolError as error:
            self._service.reject(peer, error, ref=trajectory.id)
        else:
            self._submits.append((peer, trajectory, images))

    def _commit(self) -> None:
        """Commits all that waits at once; if that fails one by one, so that a bad one is rejected alone."""
        submits, self._submits = self._submits, []
        if not submits:
            return
        try:
            is_new = self._store.add_many([(trajectory, images) for _, trajectory, images in submits])
        except StoreError:
            for submit in submits:
                self._commit_one(*submit)
            return
        for (peer, trajectory, _), new in zip(submits, is_new, strict=True):
            self._committed(peer, trajectory, new)

    def _commit_one(self, peer: bytes, trajectory: Trajectory, images: dict[str, bytes]) -> None:
        try:
            is_new = self._store.add(trajectory, images)
        except StoreError as error:
            _log.error("trajectory %s is not stored: %s", trajectory.id, error)
            self._service.reject(
                peer, ProtocolError(RejectCode.INTERNAL.value, error.message), ref=trajectory.id
            )
        else:
            self._committed(peer, trajectory, is_new)

    def _committed(self, peer: bytes, trajectory: Trajectory, is_new: bool) -> None:
        self._service.reply(peer, Ack(trajectory_id=trajectory.id, duplicate=not is_new))
        if not is_new:
            return
        self._scheduler.finish(trajectory.lease_id, trajectory)
        if self._backlog:
            self._backlog.append(trajectory.id)
            return
        try:
            self._ingested.put_nowait(trajectory)
        except queue.Full:
            self._backlog.append(trajectory.id)

    def _hand_over(self) -> None:
        """Moves what waits on disk to the training thread as its queue empties."""
        while self._backlog and not self._ingested.full():
            try:
                self._ingested.put_nowait(self._store.get(self._backlog[0]))
            except StoreError as error:
                _log.error("not handed to training: %s", error)
            self._backlog.popleft()

    def _list_act_endpoints(self) -> None:
        self._change(act_endpoints=self._peers.act_endpoints())

    def _announce(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._is_urgent and now < self._next_broadcast:
                return
            self._is_urgent = False
            status, shutdown = self._status, self._shutdown
        self._next_broadcast = now + (POLL_S if shutdown else BROADCAST_S)
        self._broadcast.send(status)
        if shutdown is not None:
            self._broadcast.send(shutdown)


def check_images(submit: Submit, blobs: Sequence[memoryview]) -> dict[str, bytes]:
    """The images of a Submit by digest.

    Raises:
        ProtocolError: A frame is missing or has another BLAKE2b digest than it should.
    """
    if len(blobs) != len(submit.images):
        raise ProtocolError(
            RejectCode.MALFORMED.value, f"{len(submit.images)} images are named, {len(blobs)} frames came"
        )
    images = {name: bytes(blob) for name, blob in zip(submit.images, blobs, strict=True)}
    for name, data in images.items():
        if image_digest(data) != name:
            raise ProtocolError(RejectCode.DIGEST.value, f"the bytes of image {name:.40} have another digest")
    return images
