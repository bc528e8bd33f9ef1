"""Batches made ready by a thread of their own, while the training thread trains on the one before.

training thread: submit(request) ─► bounded queue ─► prefetch thread: build(request)
                 get()          ◄── bounded queue ◄─┘
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

BUILD_S = 1800.0
"""Longest wait. A batch of thousands of screenshots is minutes of decoding where other processes need the
cores too; what the thread raises comes at once."""

Request = TypeVar("Request")
Ready = TypeVar("Ready")


class Prefetcher(Generic[Request, Ready]):
    """Builds requested batches in order. Used by one thread.

    Args:
        build: Makes a batch; runs in the prefetch thread. What it raises, `get` raises.
        depth: How many requests may be under way; `submit` beyond that is our own bug.
    """

    def __init__(self, build: Callable[[Request], Ready], depth: int = 2) -> None:
        self._build = build
        self._requests: queue.Queue[Request | None] = queue.Queue(depth + 1)
        self._ready: queue.Queue[Ready | BaseException] = queue.Queue(depth)
        self._depth = depth
        self.num_pending = 0
        self.waited_s = 0.0
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Requests a batch."""
        assert self.num_pending < self._depth, "too many requests under way"
        self.num_pending += 1
        self._requests.put_nowait(request)

    def get(self, timeout_s: float = BUILD_S) -> Ready:
        """The batch of the oldest request; the time spent here adds to `waited_s`.

        Raises:
            TimeoutError: It is not ready by then.
        """
        assert self.num_pending > 0, "nothing was requested"
        start = time.monotonic()
        try:
            ready = self._ready.get(timeout=timeout_s)
        except queue.Empty as error:
            raise TimeoutError(f"no batch within {timeout_s} s") from error
        self.waited_s += time.monotonic() - start
        self.num_pending -= 1
        if isinstance(ready, BaseException):
            raise ready
        return ready

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the thread; batches that were not fetched are dropped. One that takes longer is left."""
        self._requests.put_nowait(None)
        self._thread.join(timeout_s)
        self.num_pending = 0

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._ready.put(self._build(request))
            except BaseException as error:  # noqa: BLE001 - handed to the training thread
                self._ready.put(error)
