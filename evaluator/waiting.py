"""Waiting for the next episode of a pool of slots, and saying so while there is no device for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from distrl.core.errors import DistrlError
from distrl.evaluator.slots import Finished, SlotPool
from distrl.workers.places import Places

POLL_S = 0.2
FIRST_WORD_S = 15.0
"""How long there may be no device before a line says so; then after twice as long, and so on."""


def next_episode(
    pool: SlotPool,
    places: Places,
    patience_s: float,
    stop: threading.Event,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Finished | None:
    """Waits for an episode to end.

    Args:
        pool: Who runs episodes.
        places: Where.
        patience_s: How long to wait.
        stop: Ends the wait.
        say: Told where the devices stand while none can be used.
        clock: Monotonic seconds.

    Returns:
        The episode; None if `stop` was set.

    Raises:
        DistrlError: None ended in time, or something that no retry mends.
    """
    deadline = clock() + patience_s
    since, word_s = clock(), FIRST_WORD_S
    while clock() < deadline:
        if stop.is_set():
            return None
        finished = pool.take(POLL_S)
        if finished is not None:
            return finished
        if not _lacks_device(places):
            since, word_s = clock(), FIRST_WORD_S
        elif clock() - since >= word_s:
            word_s *= 2.0
            say(f"waits for a device, {clock() - since:.0f} s by now: {places.line()}")
    line = places.line()
    where = f"; devices: {line}" if line else ""
    raise DistrlError(
        f"No episode ended for {patience_s:g} s{where}.",
        f"Check the {'devices' if line else 'environments'}; continue with --resume.",
    )


def _lacks_device(places: Places) -> bool:
    """Whether there is a pool, and no device of it is in use or could be."""
    stats = places.stats()
    return bool(stats) and not stats["devices_busy"] and not stats["devices_ready"]
