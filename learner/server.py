"""The learner's network side: control, broadcast and weights sockets. Knows no algorithm and no torch.

    workers ──► control ROUTER ─┐                                   ┌─► bounded queue ──► training thread
                                ├─ network thread ── store commit ──┤
    all ◄──── broadcast PUB ────┘        ▲                          └─► ack
                                         │ waker
    training thread: publish_weights, set_phase, set_metrics, shutdown

    inference servers ──► weights ROUTER ── chunk thread ◄── WeightStore (the newest buffers)

A trajectory is acked after it is committed, never before; one that is out of bounds or does not fit its
lease is rejected and never committed. All that waits is committed together. When the training thread's queue
is full, ids wait here, the trajectories stay on disk, and workers pause.
"""

from __future__ import annotations

import logging
import queue
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Protocol

from distrl.core.errors import ProtocolError, StoreError
from distrl.core.messages import (
    TRANSIENT,
    Ack,
    Lease,
    LeaseGrant,
    LeaseRelease,
    LeaseRenew,
    LeaseRequest,
    RejectCode,
    RunLimits,
    Submit,
)
from distrl.core.security import Client, Security
from distrl.core.sockets import Received
from distrl.core.store import TrajectoryStore
from distrl.core.types import Trajectory, image_digest
from distrl.learner.station import KEPT_WEIGHTS, Station
from distrl.learner.station import Endpoints as Endpoints
from distrl.learner.suspensions import MAX_CLIENTS, Suspensions

MAX_READS = 5
_log = logging.getLogger(__name__)


class Scheduler(Protocol):
    """Decides which episodes are run. Called by the network thread only; must not block."""

    def grant(self, worker: str, count: int, limit: int, client: Client | None) -> Sequence[Lease]:
        """Up to `count` leases for `worker`, which may hold `limit`; `client` is the one with its key."""
        ...

    def renew(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Prolongs leases; ids that are unknown (e.g. from before a restart) are ignored."""
        ...

    def release(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Takes leases back that `worker` will not finish; ids that are unknown are ignored."""
        ...

    def check(self, trajectory: Trajectory) -> str:
        """Why a trajectory does not fit its lease, which may have expired; "" if it does."""
        ...

    def finish(self, lease_id: str, trajectory: Trajectory) -> None:
        """A new trajectory is committed; its lease may be unknown or expired."""
        ...

    def lose(self, trajectory: Trajectory) -> None:
        """A trajectory that was finished can never be taken; its steps are missing here."""
        ...

    def tick(self) -> None:
        """Called several times a second: leases expire here."""
        ...


class LearnerServer(Station):
    """Ingests what workers send, and hands out leases. See `Station` for what it has besides.

    Args:
        endpoints: Where to bind; ports 0 or * pick free ones, see the attribute `endpoints`.
        security: Keys, None on loopback.
        store: Where trajectories are committed.
        scheduler: Grants leases.
        ingested: Bounded queue; each new trajectory is put in once, after its commit.
        run_id: Stable over restarts of the same run.
        heartbeat_s: How often peers say that they live; three missed beats and a peer is gone.
        keep_weights: How many published versions stay available.

    Attributes:
        limits: What a trajectory of this run may hold besides; to be set before `start`.

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
        keep_weights: int = KEPT_WEIGHTS,
    ) -> None:
        super().__init__(endpoints, security, run_id, heartbeat_s, keep_weights)
        self._store, self._scheduler, self._ingested = store, scheduler, ingested
        self.limits: RunLimits | None = None
        self._service.on_reject = self._rejected
        # Network thread only:
        self._suspensions = Suspensions()
        self._workers: OrderedDict[bytes, str] = OrderedDict()  # by connection, as they name themselves
        self._submits: list[tuple[bytes, Submit, dict[str, bytes]]] = []
        self._backlog: deque[Trajectory] = deque()  # on disk; here without their steps
        self._num_failed = 0  # attempts to read the first of them
        self._num_suspended = 0

    def peer_metrics(self) -> dict[str, float]:
        """As `Station.peer_metrics`, with the number of suspended workers."""
        return {**super().peer_metrics(), "workers/suspended": float(self._num_suspended)}

    # ---- network thread ----

    def _work(self) -> None:
        self._commit()
        self._hand_over()
        self._change(paused=bool(self._backlog))
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
        else:
            super()._handle(received)

    def _grant(self, request: LeaseRequest, client: Client | None) -> LeaseGrant:
        seconds, reason = self._suspensions.of(request.worker)
        if seconds:
            return LeaseGrant(retry_after_s=seconds, reason=reason)
        if self._backlog:
            return LeaseGrant()
        limit = self._peers.num_leases(request.worker)
        leases = self._scheduler.grant(request.worker, request.count, limit, client)
        return LeaseGrant(leases=tuple(leases))

    def _take(self, peer: bytes, submit: Submit, blobs: Sequence[memoryview]) -> None:
        """Checks a Submit and queues it for the next commit."""
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
        """Notes which worker is at the other end of a connection."""
        if worker:
            self._workers[peer] = worker
            self._workers.move_to_end(peer)
            if len(self._workers) > MAX_CLIENTS:
                self._workers.popitem(last=False)

    def _rejected(self, peer: bytes, error: ProtocolError, ref: str) -> None:
        """A message was refused; where `ref` names a trajectory, its worker may be suspended."""
        worker = self._workers.get(peer)  # None of a connection that has named none
        if worker and ref and RejectCode(error.code) not in TRANSIENT:
            self._suspensions.note(worker, f"{error.message} ({error.code})")

    def _commit(self) -> None:
        """Commits all that waits at once; if that fails one by one, so that a bad one is rejected alone."""
        submits, self._submits = self._submits, []
        if not submits:
            return
        try:
            items = [(submit.trajectory, images) for _, submit, images in submits]
            is_new = self._store.add_many(items, [submit.body for _, submit, _ in submits])
        except StoreError:
            for one in submits:
                self._commit_one(*one)
            return
        for (peer, submit, _), new in zip(submits, is_new, strict=True):
            self._committed(peer, submit.trajectory, new)

    def _commit_one(self, peer: bytes, submit: Submit, images: dict[str, bytes]) -> None:
        trajectory = submit.trajectory
        try:
            (is_new,) = self._store.add_many([(trajectory, images)], [submit.body])
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
        self._suspensions.note(self._workers.get(peer, ""))
        self._scheduler.finish(trajectory.lease_id, trajectory)
        if not self._backlog:
            try:
                self._ingested.put_nowait(trajectory)
                return
            except queue.Full:
                pass
        self._backlog.append(trajectory.model_copy(update={"steps": ()}))

    def _hand_over(self) -> None:
        """Moves what waits on disk to the training thread as its queue empties.

        One that cannot be read is tried `MAX_READS` times; then it is given up, and the scheduler told, or
        the run would wait for it.
        """
        while self._backlog and not self._ingested.full():
            first = self._backlog[0]
            try:
                self._ingested.put_nowait(self._store.get(first.id))
            except StoreError as error:
                self._num_failed += 1
                if self._num_failed < MAX_READS:
                    return
                _log.error("trajectory %s is lost to training: %s", first.id, error)
                self._scheduler.lose(first)
            self._num_failed = 0
            self._backlog.popleft()


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
