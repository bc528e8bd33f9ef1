"""A worker's counts of episodes, for heartbeats and for people."""

from __future__ import annotations

import threading
import time

from distrl.core.types import Fault, Outcome, Trajectory


class Tally:
    """Counts episodes. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._episodes = self._successes = self._faults = self._steps = 0

    def add(self, trajectory: Trajectory) -> None:
        """Counts a trajectory."""
        with self._lock:
            self._episodes += 1
            self._steps += len(trajectory.steps)
            self._successes += trajectory.outcome is Outcome.SUCCESS
            self._faults += trajectory.fault is not Fault.NONE

    def stats(self) -> dict[str, float]:
        """The counts so far, for heartbeats."""
        with self._lock:
            return {
                "episodes": self._episodes,
                "steps": self._steps,
                "successes": self._successes,
                "faults": self._faults,
            }

    def line(self) -> str:
        """The counts so far, for people."""
        stats = self.stats()
        per_minute = 60.0 * stats["episodes"] / max(1e-9, time.monotonic() - self._started)
        return (
            f"{stats['episodes']:.0f} episodes ({per_minute:.1f} a minute), "
            f"{stats['successes']:.0f} successes, {stats['faults']:.0f} faults, {stats['steps']:.0f} steps"
        )
