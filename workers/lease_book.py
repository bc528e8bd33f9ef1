"""The leases of one worker: asked for, granted and not yet taken, at work and renewed, given back."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from distrl.core.messages import Lease, LeaseGrant

ANSWER_S = 5.0  # a lease request without an answer is repeated after this


@dataclass
class _Held:
    lease: Lease
    run_id: str
    granted_at: float
    renewed_at: float


class LeaseBook:
    """Not thread-safe: its owner locks.

    Attributes:
        num_waiting: Slots that wait for a lease now.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        self._granted: deque[_Held] = deque()
        self._at_work: dict[str, _Held] = {}
        self._given_back: list[_Held] = []
        self._ask_at = 0.0

    def num_to_ask(self) -> int:
        """How many leases to ask for now; the next request comes after the answer or `ANSWER_S`."""
        now = time.monotonic()
        count = self.num_waiting - len(self._granted)
        if count <= 0 or now < self._ask_at:
            return 0
        self._ask_at = now + ANSWER_S
        return min(count, 1024)

    def granted(self, grant: LeaseGrant, run_id: str) -> None:
        """The learner's answer; a grant of nothing says when to ask again."""
        now = time.monotonic()
        self._granted.extend(_Held(lease, run_id, now, now) for lease in grant.leases)
        self._ask_at = now if grant.leases else now + grant.retry_after_s

    def has_granted(self) -> bool:
        """Whether a slot can take one. Those that lay here too long, soon to expire, are given back."""
        now = time.monotonic()
        while self._granted and now - self._granted[0].granted_at > self._granted[0].lease.ttl_s / 2:
            self._given_back.append(self._granted.popleft())
        return bool(self._granted)

    def take(self) -> Lease | None:
        """Hands a lease to a slot."""
        if not self.has_granted():
            return None
        held = self._granted.popleft()
        self._at_work[held.lease.id] = held
        return held.lease

    def close(self, lease_id: str) -> None:
        """The slot has finished."""
        self._at_work.pop(lease_id, None)

    def give_back(self, lease_id: str) -> None:
        """The slot has given up."""
        held = self._at_work.pop(lease_id, None)
        if held is not None:
            self._given_back.append(held)

    def give_all_back(self) -> None:
        """The worker leaves."""
        self._given_back += [*self._granted, *self._at_work.values()]
        self._granted.clear()
        self._at_work.clear()

    def take_given_back(self) -> list[str]:
        """What the learner has to be told, once."""
        given_back, self._given_back = self._given_back, []
        return [held.lease.id for held in given_back]

    def run_of(self, lease_id: str) -> str:
        """The run that granted a lease at work, "" if unknown."""
        held = self._at_work.get(lease_id)
        return held.run_id if held is not None else ""

    def due_for_renewal(self) -> list[str]:
        """Leases at work a third of whose time has passed; they count as renewed now."""
        now = time.monotonic()
        due = []
        for held in self._at_work.values():
            if now - held.renewed_at > held.lease.ttl_s / 3:
                held.renewed_at = now
                due.append(held.lease.id)
        return due

    def reconnected(self, run_id: str) -> None:
        """The learner is there again: leases that another run granted and nobody took are void."""
        self._granted = deque(held for held in self._granted if held.run_id == run_id)
        self._given_back = [held for held in self._given_back if held.run_id == run_id]
        self._ask_at = 0.0
