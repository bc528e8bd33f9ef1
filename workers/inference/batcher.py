"""Dynamic batching: when a batch runs, and what it holds. Pure: time is an argument, threads are elsewhere.

A batch runs when |queue| ≥ B or the *oldest* request has waited T_max (AcceRL eq. 1). Watching the oldest
request, not the newest, bounds the wait of every request by T_max plus the batch that is running.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Queued(Generic[Item]):
    """A request and when it arrived (seconds, any monotonic clock)."""

    item: Item
    arrived_at: float


class Batcher(Generic[Item]):
    """A bounded first-in-first-out queue that says when its head should run.

    Args:
        max_batch: B, the size that starts a batch at once, and the largest batch.
        max_wait_s: T_max, how long the oldest request waits for company.
        max_queue: Requests beyond this are refused.
    """

    def __init__(self, max_batch: int, max_wait_s: float, max_queue: int) -> None:
        if max_batch < 1 or max_queue < 1 or max_wait_s < 0:
            raise ValueError("max_batch and max_queue must be at least 1, max_wait_s at least 0")
        self.max_batch, self.max_wait_s, self.max_queue = max_batch, max_wait_s, max_queue
        self._queue: deque[Queued[Item]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, item: Item, now: float) -> bool:
        """Queues a request; False, and nothing changes, when the queue is full."""
        if len(self._queue) >= self.max_queue:
            return False
        self._queue.append(Queued(item, now))
        return True

    def wait_s(self, now: float) -> float | None:
        """Seconds until a batch should run if no more requests come: 0 is now, None is never."""
        if not self._queue:
            return None
        if len(self._queue) >= self.max_batch:
            return 0.0
        return max(0.0, self._queue[0].arrived_at + self.max_wait_s - now)

    def take(self, limit: int | None = None) -> list[Queued[Item]]:
        """Removes and returns the oldest requests, at most `limit`, `max_batch` without one."""
        most = self.max_batch if limit is None else limit
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
