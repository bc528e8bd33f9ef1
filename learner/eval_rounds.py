"""Evaluation rounds: the same validation tasks again and again, while training goes on.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from distrl.core.types import RewardParts, Task


@dataclass
class EvalRound:
    """One measurement on validation tasks with greedy sampling.

    Attributes:
        updates: The learner's updates when it started.
        waiting: Tasks not leased yet.
        leases: Ids of its leases that are not accounted for.
        scores: Success of each finished episode that was judged.
        rewards: Its rewards, each part summed over its steps.
        abandoned: Episodes that faulted again and again.
    """

    updates: int
    waiting: deque[Task]
    leases: set[str] = field(default_factory=set)
    scores: list[float] = field(default_factory=list)
    rewards: list[RewardParts] = field(default_factory=list)
    abandoned: int = 0

    @property
    def success(self) -> float:
        """Mean success, 0 when nothing finished."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0

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

    def start(self, updates: int) -> None:
        """Starts a round. An unfinished one ends with what it has."""
        if self.current is not None and self.current.scores:
            self._ended.append(self.current)
        self.current = EvalRound(updates, deque(self._tasks)) if self._tasks else None

    def is_of_current(self, lease_id: str) -> bool:
        """Whether this lease belongs to the round under way."""
        return self.current is not None and lease_id in self.current.leases

    def account(self, lease_id: str, score: float | None, rewards: RewardParts) -> None:
        """An episode of this lease has come in; its score is None if nobody judged it."""
        if self.current is not None and lease_id in self.current.leases:
            self.current.leases.discard(lease_id)
            if score is not None:
                self.current.scores.append(score)
                self.current.rewards.append(rewards)
            self._close_if_complete()

    def give_up(self, lease_id: str) -> None:
        """The episode of this lease will not come."""
        if self.current is not None and lease_id in self.current.leases:
            self.current.leases.discard(lease_id)
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
