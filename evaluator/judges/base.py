"""The judge interface: a finished episode in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from distrl.core.types import Observation, TimeStep, Trajectory, Verdict


class Judge(Protocol):
    """Judges episodes that ended without a fault. Judges never act: stored episodes can be judged again.

    Attributes:
        name: The name in verdicts.
    """

    name: str

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The verdict on `trajectory`; `images` are its encoded screenshots by digest. Thread-safe.

        A judge that cannot decide returns an undecided verdict.

        Raises:
            JudgeUnavailable: No verdict now; a later request may succeed.
        """
        ...


def screens(trajectory: Trajectory) -> tuple[Observation, ...]:
    """Every screen of the episode, oldest first: before each step, and after the last."""
    shown = tuple(step.observation for step in trajectory.steps)
    return (*shown, trajectory.final) if trajectory.final is not None else shown


def acted(trajectory: Trajectory) -> tuple[TimeStep, ...]:
    """The steps that acted: all except a final claim that the episode is over."""
    steps = trajectory.steps
    is_claim = bool(steps) and steps[-1].action.kind in ("complete", "impossible")
    return steps[:-1] if is_claim else steps
