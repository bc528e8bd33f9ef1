"""Evaluation rounds: the same validation tasks again and again, while training goes on.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from distrl.core.types import RewardParts, Task, Trajectory


@dataclass
class EvalRound:
    """One measurement on validation tasks with greedy sampling.

    Attributes:
        updates: The learner's updates when it started.
        size: How many episodes it has.
        waiting: Tasks not leased yet.
        min_version: Episodes acted with older weights, if only for a token, are run again.
        leases: The tasks of its leases that are not accounted for, by the lease's id.
        scores: Success of each finished episode that was judged.
        rewards: Its rewards, each part summed over its steps.
        abandoned: Episodes that faulted again and again.
    """

    updates: int
    size: int
    waiting: deque[Task]
    min_version: int = -1
    leases: dict[str, Task] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)
    rewards: list[RewardParts] = field(default_factory=list)
    abandoned: int = 0

    @property
    def success(self) -> float | None:
        """Mean success; None when nothing was measured."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def measured_share(self) -> float:
        """The share of its episodes that have finished and were judged."""
        return len(self.scores) / self.size

    @property
    def num_unjudged(self) -> int:
        """How many of a complete round's finished episodes nobody judged."""
        return self.size - len(self.scores) - self.abandoned

    @property
    def mean_rewards(self) -> dict[str, float]:
        """The mean of each part of the reward over the scored episodes; empty when nothing finished."""
        count = len(self.rewards)
        names = RewardParts.model_fields if count else ()
        return {name: sum(getattr(parts, name) for parts in self.rewards) / count for name in names}

    @property
    def is_complete(self) -> bool:
        """Whether every episode has come back or been given up."""
        return not self.waiting and not self.leases


class EvalRounds:
    """The round under way, and those that ended.

    Args:
        tasks: Validation tasks.
        seed: Of the choice among them, which never changes.
        episodes: How many a round has.
    """

    def __init__(self, tasks: Sequence[Task], seed: int, episodes: int) -> None:
        shuffled = list(tasks)
        random.Random(seed).shuffle(shuffled)
        self._tasks = shuffled[:episodes]
        self._ended: list[EvalRound] = []
        self.current: EvalRound | None = None

    def start(self, updates: int, min_version: int = -1) -> None:
        """Starts a round. An unfinished one ends with what it has, if only nothing; of the same updates it
        is begun anew.
        """
        if self.current is not None and self.current.updates != updates:
            self._ended.append(self.current)
        size, waiting = len(self._tasks), deque(self._tasks)
        self.current = EvalRound(updates, size, waiting, min_version) if size else None

    def account(self, trajectory: Trajectory, score: float | None) -> None:
        """An episode has come in; its score is None if nobody judged it. Other leases do not count."""
        if self.current is not None and trajectory.lease_id in self.current.leases:
            task = self.current.leases.pop(trajectory.lease_id)
            if 0 <= trajectory.oldest_version < self.current.min_version:
                self.current.waiting.append(task)
            elif score is not None:
                self.current.scores.append(score)
                self.current.rewards.append(trajectory.reward_parts)
            self._close_if_complete()

    def give_up(self, lease_id: str) -> None:
        """The episode of this lease will not come."""
        if self.current is not None and lease_id in self.current.leases:
            del self.current.leases[lease_id]
            self.current.abandoned += 1
            self._close_if_complete()

    def take_ended(self) -> list[EvalRound]:
        """The rounds that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _close_if_complete(self) -> None:
        if self.current is not None and self.current.is_complete:
            self._ended.append(self.current)
            self.current = None
