"""Dynamic batching: when a batch runs, and what it holds.

A batch runs when |queue| ≥ B or the *oldest* request has waited T_max (AcceRL eq. 1). Watching the oldest
request, not the newest, bounds the wait of every request by T_max plus the batch that is running.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Queued(Generic[Item]):
    """A request and when it arrived, by the queue's clock."""

    item: Item
    arrived_at: float


class BatchQueue(Generic[Item]):
    """A first-in-first-out queue that says when its head should run. Any thread.

    A batch has at most `max_batch` (B) requests; the oldest waits `max_wait_s` (T_max) for company.
    """

    def __init__(
        self, max_batch: int, max_wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_batch, self._max_wait_s, self._clock = max_batch, max_wait_s, clock
        self._queue: deque[Queued[Item]] = deque()
        self._condition = threading.Condition()
        self._poked = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, item: Item) -> bool:
        """Queues a request; False when the queue is closed."""
        with self._condition:
            if not self._is_closed:
                self._queue.append(Queued(item, self._clock()))
                self._condition.notify_all()
            return not self._is_closed

    def close(self) -> list[Queued[Item]]:
        """Refuses what is offered from now on; returns what still waits."""
        with self._condition:
            self._is_closed = True
            return self._pop(len(self._queue))

    def poke(self) -> None:
        """Lets a waiting `take` return at once, even without a batch."""
        with self._condition:
            self._poked = True
            self._condition.notify_all()

    def wait_s(self) -> float | None:
        """Seconds until a batch should run if no more requests come: 0 is now, None is never."""
        with self._condition:
            if not self._queue:
                return None
            if len(self._queue) >= self._max_batch:
                return 0.0
            return max(0.0, self._queue[0].arrived_at + self._max_wait_s - self._clock())

    def take(self, timeout_s: float, limit: int | None = None) -> list[Queued[Item]]:
        """Waits for a batch that is due; empty at the deadline and after `poke`.

        At most `limit` requests are wanted; with 0 it only waits. None: a whole batch.
        """
        deadline = self._clock() + timeout_s
        with self._condition:
            while not self._poked:
                due_s = self.wait_s() if limit != 0 else None
                if due_s == 0.0:
                    return self._pop(self._max_batch if limit is None else limit)
                left_s = deadline - self._clock()
                if left_s <= 0.0:
                    break
                self._condition.wait(left_s if due_s is None else min(left_s, due_s))
            self._poked = False
            return []

    def _pop(self, most: int) -> list[Queued[Item]]:
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
