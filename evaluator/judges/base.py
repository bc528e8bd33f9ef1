"""The judge interface: a finished episode in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydantic import Field

from distrl.core.types import Number, Record, Trajectory


class Verdict(Record):
    """What a judge says of an episode.

    Attributes:
        success: Whether the task counts as solved.
        score: Credit in [0, 1].
        reason: Why, in one sentence for people.
    """

    success: bool
    score: Number = Field(ge=0.0, le=1.0)
    reason: str


class Judge(Protocol):
    """Judges episodes that ended without a fault. Judges never act: stored episodes can be judged again."""

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The verdict on `trajectory`; `images` are its encoded screenshots by digest."""
        ...
