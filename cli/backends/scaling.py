"""How many workers a run is worth: more while the learner waits, fewer while staleness holds leases back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WAIT = "time/wait_for_episodes"
WITHHELD = "scheduler/withheld"
LEARNER_WAITS = 0.1
"""The share of its time that the learner may wait for episodes before it counts as short of them."""


@dataclass(frozen=True)
class Scaling:
    """Keeps between `least` and `most` workers.

    While the learner waits for episodes and `learner.max_staleness` lets every worker have its leases, a
    quarter more are added. While it does not wait, and leases are withheld because their episodes would be
    stale, one is removed. Where both are so, episodes are too long for the limit: more workers would idle.
    """

    least: int
    most: int

    def wanted(self, now: int, before: Mapping[str, float], after: Mapping[str, float]) -> int:
        """The number that should follow `now` workers, by the learner's metrics at the last look and now."""
        if WAIT not in after:  # no update has been made yet
            return now
        is_short = after[WAIT] > LEARNER_WAITS
        is_withheld = after[WITHHELD] > before.get(WITHHELD, after[WITHHELD])
        if is_short and not is_withheld:
            now += max(1, now // 4)
        elif is_withheld and not is_short:
            now -= 1
        return min(max(now, self.least), self.most)
