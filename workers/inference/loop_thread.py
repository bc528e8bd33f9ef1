"""An asyncio event loop in a thread of its own, for libraries that want one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

JOIN_S = 5.0

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads.

    Args:
        name: The thread's.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Runs a coroutine to its end, which is awaited here. Not from the loop's own thread.

        Raises:
            TimeoutError: It took longer; it is cancelled.
            Exception: Whatever the coroutine raised.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except FutureTimeout as error:
            if future.done():  # the coroutine's own
                raise
            raise TimeoutError(f"not done within {timeout_s:g} s") from error
        finally:
            future.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine that must see to its own errors."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancels what runs, waits for it, and ends the thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()
