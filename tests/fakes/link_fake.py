"""A judge that says what it was given, and a worker's link without a learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from distrl.core.messages import Lease
from distrl.core.types import Trajectory, Verdict

DEADLINE_S = 20.0


class FakeJudge:
    """Says, or raises, what it was given, in order; the last for ever."""

    name = "fake"

    def __init__(self, *says: Verdict | Exception) -> None:
        self.says, self.asked = list(says), 0
        self.gate = threading.Event()
        self.gate.set()

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        assert self.gate.wait(DEADLINE_S)
        assert set(trajectory.image_digests) <= set(images)
        self.asked += 1
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        return said


class FakeLink:
    """Hands out its leases, keeps what is submitted, and ends the run after `expected` trajectories."""

    def __init__(self, leases: Sequence[Lease] = (), expected: int = -1) -> None:
        self.leases, self.expected = list(leases), expected
        self.shutdown = threading.Event()
        self.has_policy = True
        self.submitted: list[Trajectory] = []
        self.images: list[Mapping[str, bytes]] = []
        self.runs: set[str | None] = set()
        self.released: list[str] = []
        self.log: list[str] = []
        self.stats: Mapping[str, float] = {}
        self.on_submit: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        with self._lock:
            if not self.leases:
                return None
            self.log.append("lease")
            return self.leases.pop(0)

    def release(self, lease_id: str) -> None:
        self.released.append(lease_id)

    def run_of(self, lease_id: str) -> str:
        return "r"

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes], run_id: str | None = None) -> None:
        with self._lock:
            self.log.append("submit")
            self.submitted.append(trajectory)
            self.images.append(images)
            self.runs.add(run_id)
            if len(self.submitted) == self.expected:
                self.shutdown.set()
        self.on_submit()

    def set_stats(self, stats: Mapping[str, float]) -> None:
        self.stats = stats

    def check(self) -> None:
        pass
