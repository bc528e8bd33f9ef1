"""A judge that says what it was told to say."""

from __future__ import annotations

import threading
from collections.abc import Mapping

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
