"""The batcher between two threads: one offers requests, the engine's thread waits for batches."""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

from distrl.workers.inference.batcher import Batcher, Queued

Item = TypeVar("Item")


class BatchQueue(Generic[Item]):
    """A `Batcher` behind a condition.

    Args:
        batcher: Decides when a batch runs; bounds the queue.
    """

    def __init__(self, batcher: Batcher[Item]) -> None:
        self._batcher = batcher
        self._condition = threading.Condition()
        self._poked = False
        self._is_closed = False

    def __len__(self) -> int:
        with self._condition:
            return len(self._batcher)

    def offer(self, item: Item) -> bool:
        """Queues a request; False when the queue is full or closed."""
        with self._condition:
            if self._is_closed:
                return False
            accepted = self._batcher.offer(item, time.monotonic())
            self._condition.notify_all()
            return accepted

    @property
    def is_closed(self) -> bool:
        """Whether every offer is refused."""
        with self._condition:
            return self._is_closed

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
