"""Clients whose trajectories are mostly rejected get no leases for a while. Network thread only."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

WINDOW = 20
"""The newest trajectories of a client that count; at least `LEAST` of them must have come in."""

LEAST = 6
FIRST_S, LONGEST_S = 60.0, 3600.0
MAX_CLIENTS = 4096  # the client that was silent for longest is forgotten
_log = logging.getLogger(__name__)


@dataclass
class _Client:
    rejected: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lasted_s: float = 0.0  # the last suspension
    until: float = 0.0
    reason: str = ""


class Suspensions:
    """Suspends a client while more than half of its newest trajectories were rejected.

    The first suspension lasts `FIRST_S`, each further one twice as long, up to `LONGEST_S`. After a full
    window with at most half rejected the next one lasts `FIRST_S` again.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def note(self, name: str, problem: str = "") -> None:
        """A new trajectory of `name` was accepted, or rejected because of `problem`."""
        client = self._clients.setdefault(name, _Client())
        self._clients.move_to_end(name)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        now = self._clock()
        if now < client.until:
            return  # it was on its way already
        client.rejected.append(bool(problem))
        total, count = len(client.rejected), sum(client.rejected)
        if problem and total >= LEAST and 2 * count > total:
            seconds = client.lasted_s = min(LONGEST_S, 2 * client.lasted_s or FIRST_S)
            client.until = now + seconds
            client.reason = f"{count} of its last {total} trajectories were rejected"
            client.rejected.clear()
            _log.warning(
                "worker %s gets no leases for %g s: %s; the last one: %s",
                name, seconds, client.reason, problem,
            )  # fmt: skip
        elif total == WINDOW and 2 * count <= total:
            client.lasted_s = 0.0

    def of(self, name: str) -> tuple[float, str]:
        """The seconds for which `name` gets no leases, and why; (0, "") if it may have some."""
        client = self._clients.get(name, _Client())
        left = client.until - self._clock()
        return (left, client.reason) if left > 0.0 else (0.0, "")

    @property
    def count(self) -> int:
        """How many clients are suspended now."""
        now = self._clock()
        return sum(client.until > now for client in self._clients.values())
