"""What an inference server measures of itself: counts, and percentiles over the newest requests."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence

WINDOW = 1024


class ServerStats:
    """Numbers that the engine's threads add and any thread reads.

    `batches` counts how often requests were handed to the engine, and `batch_size` is the mean number that
    ran just after; `batch_p50_ms` is the time from there to a completion.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {
            "requests": 0,
            "batches": 0,
            "tokens": 0,
            "rejected": 0,
            "failed": 0,
            "weight_swaps": 0,
        }
        self._waits_s: deque[float] = deque(maxlen=WINDOW)
        self._runs_s: deque[float] = deque(maxlen=WINDOW)
        self._sizes: deque[int] = deque(maxlen=WINDOW)
        self._swap_pause_s = 0.0

    def batch(self, num_running: int) -> None:
        """The engine was given requests; so many run now."""
        with self._lock:
            self._counts["batches"] += 1
            self._sizes.append(num_running)

    def answered(self, wait_s: float, run_s: float, num_tokens: int) -> None:
        """A request was completed: how long it had queued, how long it ran, how many tokens it gave."""
        with self._lock:
            self._counts["requests"] += 1
            self._counts["tokens"] += num_tokens
            self._waits_s.append(wait_s)
            self._runs_s.append(run_s)

    def rejected(self) -> None:
        """A request was refused."""
        with self._lock:
            self._counts["rejected"] += 1

    def failed(self, num_requests: int) -> None:
        """The engine failed on requests."""
        with self._lock:
            self._counts["failed"] += num_requests

    def swapped(self, pause_s: float) -> None:
        """Weights were replaced, which held up the next batch for `pause_s`."""
        with self._lock:
            self._counts["weight_swaps"] += 1
            self._swap_pause_s = pause_s

    def snapshot(self) -> dict[str, float]:
        """All numbers by name; times in milliseconds."""
        with self._lock:
            waits, runs = sorted(self._waits_s), sorted(self._runs_s)
            return {
                **{name: float(count) for name, count in self._counts.items()},
                "batch_size": sum(self._sizes) / len(self._sizes) if self._sizes else 0.0,
                "queue_wait_p50_ms": 1000 * quantile(waits, 0.5),
                "queue_wait_p99_ms": 1000 * quantile(waits, 0.99),
                "batch_p50_ms": 1000 * quantile(runs, 0.5),
                "batch_p99_ms": 1000 * quantile(runs, 0.99),
                "swap_pause_ms": 1000 * self._swap_pause_s,
            }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
