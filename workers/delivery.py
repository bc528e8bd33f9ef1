"""Which spooled trajectories are on their way to the learner, and which are due to be sent (again)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from distrl.core.messages import TRANSIENT, Reject, Submit
from distrl.workers.spool import Spool

ACK_S = 10.0  # resent when not acked for this long
MAX_IN_FLIGHT = 8  # sent and not acked: bounds the memory that sockets hold
_log = logging.getLogger(__name__)


class Delivery:
    """The unacked trajectories of one run, oldest first. Not thread-safe: its owner locks (`load` apart).

    Args:
        spool: Where they are on disk.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._run_id: str | None = None
        self._due: dict[str, float] = {}  # id → when to send it (again)
        self._in_flight: set[str] = set()
        self._beginning: set[str] = set()

    def __len__(self) -> int:
        return len(self._due)

    def reconnected(self, run_id: str) -> None:
        """The learner is there (again): everything spooled for its run is due now."""
        if self._run_id != run_id:
            others = len(self._spool) - len(self._spool.ids(run_id))
            if others:
                _log.warning("%d spooled trajectories wait for the learner of another run", others)
        self._run_id = run_id
        self._in_flight.clear()
        spooled = self._spool.ids(run_id)
        self._due = dict.fromkeys((name for name in spooled if name not in self._beginning), 0.0)

    def begin(self, trajectory_id: str) -> None:
        """One is about to be put into the spool: until `add` it is not sent."""
        self._beginning.add(trajectory_id)

    def add(self, trajectory_id: str, run_id: str) -> None:
        """It is in the spool."""
        self._beginning.discard(trajectory_id)
        if self._run_id is None or run_id == self._run_id:
            self._due.setdefault(trajectory_id, 0.0)

    def acked(self, trajectory_ids: Sequence[str]) -> None:
        """The learner has these. One that is being put again just now is sent again later."""
        delivered = [name for name in trajectory_ids if name not in self._beginning]
        self._spool.delete(*delivered)
        for name in delivered:
            self._forget(name)

    def rejected(self, reject: Reject) -> None:
        """The learner refused one: again later when that can help, else set aside for people."""
        if reject.ref not in self._due:
            return
        if reject.code in TRANSIENT:
            self._in_flight.discard(reject.ref)
            self._due[reject.ref] = time.monotonic() + ACK_S
        else:
            self.refuse(reject.ref, f"{reject.code.value}: {reject.reason}")

    def refuse(self, trajectory_id: str, reason: str) -> None:
        """Sets one aside that will never be taken."""
        _log.error("trajectory %s is set aside in the spool: %s", trajectory_id, reason)
        self._spool.refuse(trajectory_id, reason)
        self._forget(trajectory_id)

    def next_to_send(self) -> str | None:
        """The oldest one that is due, marked as sent; None when none is or enough are in flight."""
        now = time.monotonic()
        for trajectory_id, due_at in self._due.items():
            if due_at > now:
                continue
            if trajectory_id not in self._in_flight and len(self._in_flight) >= MAX_IN_FLIGHT:
                return None
            self._in_flight.add(trajectory_id)
            self._due[trajectory_id] = now + ACK_S
            return trajectory_id
        return None

    def load(self, trajectory_id: str) -> tuple[Submit, list[bytes]]:
        """The message and its image frames, read from the spool."""
        body, images = self._spool.packed(trajectory_id)
        return Submit(body=body, images=tuple(images)), list(images.values())

    def _forget(self, trajectory_id: str) -> None:
        self._due.pop(trajectory_id, None)
        self._in_flight.discard(trajectory_id)
