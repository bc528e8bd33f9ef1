"""Dynamic batching: when a batch runs, and what it holds. Pure: time is an argument, threads are elsewhere.

A batch runs when |queue| ≥ B or the *oldest* request has waited T_max (AcceRL eq. 1). Watching the oldest
request, not the newest, bounds the wait of every request by T_max plus the batch that is running.
"""

from __future__ import annotations

import threading
import time
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
    """A first-in-first-out queue that says when its head should run.

    Args:
        max_batch: B, the size that starts a batch at once, and the largest batch.
        max_wait_s: T_max, how long the oldest request waits for company.
    """

    def __init__(self, max_batch: int, max_wait_s: float) -> None:
        self.max_batch, self.max_wait_s = max_batch, max_wait_s
        self._queue: deque[Queued[Item]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, item: Item, now: float) -> None:
        """Queues a request."""
        self._queue.append(Queued(item, now))

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


class BatchQueue(Generic[Item]):
    """A `Batcher` behind a condition. Any thread."""

    def __init__(self, batcher: Batcher[Item]) -> None:
        self._batcher = batcher
        self._condition = threading.Condition()
        self._poked = False
        self._is_closed = False

    def __len__(self) -> int:
        with self._condition:
            return len(self._batcher)

    def offer(self, item: Item) -> bool:
        """Queues a request; False when the queue is closed."""
        with self._condition:
            if not self._is_closed:
                self._batcher.offer(item, time.monotonic())
                self._condition.notify_all()
            return not self._is_closed

    def close(self) -> list[Queued[Item]]:
        """Refuses what is offered from now on; returns what still waits."""
        with self._condition:
            self._is_closed = True
            return self._batcher.take(len(self._batcher))

    def poke(self) -> None:
        """Lets a waiting `take` return at once, even without a batch."""
        with self._condition:
            self._poked = True
            self._condition.notify_all()

    def take(self, timeout_s: float, limit: int | None = None) -> list[Queued[Item]]:
        """Waits for a batch that is due; empty at the deadline and after `poke`.

        Args:
            timeout_s: How long to wait.
            limit: How many requests are wanted at most; with 0 it only waits. None: a whole batch.
        """
        deadline = time.monotonic() + timeout_s
        with self._condition:
            while not self._poked:
                now = time.monotonic()
                due_s = self._batcher.wait_s(now) if limit != 0 else None
                if due_s == 0.0:
                    return self._batcher.take(limit)
                left_s = deadline - now
                if left_s <= 0.0:
                    break
                self._condition.wait(left_s if due_s is None else min(left_s, due_s))
            self._poked = False
            return []
