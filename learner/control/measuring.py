"""Measuring weights on workers: greedy episodes in units, handed out, expired and put together again.

    validation, now and then ─┐ mean ≥ R                         mean ≥ R: solved
    mean of training ≥ R ─────┴──────────► confirmation, 100 episodes ──► else on, with a pause

Not thread-safe: the master holds its lock around every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from distrl.configs.control import CONFIRMATION_SEEDS, VALIDATION_SEEDS
from distrl.core.messages import EpisodeReturn, WeightInfo, WorkUnit
from distrl.core.weights import Buffer

UNIT_EPISODES = 20
"""Episodes of one unit of work: a few seconds of a worker's time."""

CONFIRMATION_EPISODES = 100
Kind = Literal["validation", "confirmation"]


@dataclass(frozen=True)
class Weights:
    """Published weights, and where the run stood when they were.

    Attributes:
        step: Gradients accepted.
        env_steps: Transitions accepted.
        elapsed_s: Seconds of the run.
    """

    info: WeightInfo
    data: Buffer
    step: int
    env_steps: int
    elapsed_s: float


@dataclass
class _Part:
    """The seeds of a unit; `episodes` when they are done; who is at work on them, and until when."""

    seeds: tuple[int, ...]
    episodes: tuple[EpisodeReturn, ...] | None = None
    worker: str = ""
    deadline: float = 0.0


@dataclass
class Measurement:
    """One set of weights, measured over greedy episodes.

    Attributes:
        state: The JSON part of a checkpoint of these weights.
    """

    kind: Kind
    weights: Weights
    state: dict[str, Any]
    parts: dict[str, _Part] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all episodes are in."""
        return all(part.episodes is not None for part in self.parts.values())

    @property
    def returns(self) -> list[float]:
        """Of the episodes that are in."""
        return [episode.total for part in self.parts.values() for episode in part.episodes or ()]

    @property
    def mean(self) -> float:
        """The mean return of the episodes that are in."""
        returns = self.returns
        return sum(returns) / len(returns)


class Measuring:
    """At most one measurement at a time.

    Args:
        ttl_s: How long a worker has for a unit.
        prefix: Of the ids of units; unique to this process.
        clock: Monotonic seconds.

    Attributes:
        current: The one under way.
        begun, ended: What began, and what was completed; whoever has seen to them empties the lists.
        attempts: How many confirmations were begun; each has seeds of its own.
    """

    def __init__(self, ttl_s: float, prefix: str, clock: Callable[[], float]) -> None:
        self._ttl_s, self._prefix, self._clock = ttl_s, prefix, clock
        self._num_parts = 0
        self.current: Measurement | None = None
        self.begun: list[Measurement] = []
        self.ended: list[Measurement] = []
        self.attempts = 0

    def start(self, kind: Kind, weights: Weights, episodes: int, state: dict[str, Any]) -> None:
        """Begins to measure `weights`; what was under way is given up."""
        first = VALIDATION_SEEDS
        if kind == "confirmation":
            first = CONFIRMATION_SEEDS + self.attempts * CONFIRMATION_EPISODES
            self.attempts += 1
        seeds = range(first, first + episodes)
        parts = {}
        for start in range(0, episodes, UNIT_EPISODES):
            self._num_parts += 1
            parts[f"{self._prefix}-e{self._num_parts}"] = _Part(tuple(seeds[start : start + UNIT_EPISODES]))
        self.current = Measurement(kind, weights, state | {"attempts": self.attempts}, parts)
        self.begun.append(self.current)

    def grant(self, worker: str, progress: float) -> WorkUnit | None:
        """A unit of the measurement under way that nobody is at work on."""
        now = self._clock()
        for unit_id, part in self._open():
            if not part.worker or now >= part.deadline or part.worker == worker:
                part.worker, part.deadline = worker, now + self._ttl_s
                assert self.current is not None
                return WorkUnit(
                    id=unit_id,
                    kind="evaluate",
                    weights=self.current.weights.info,
                    progress=progress,
                    seeds=part.seeds,
                    ttl_s=self._ttl_s,
                )
        return None

    def keep_only(self, workers: Collection[str]) -> None:
        """Only these are alive: others may have the units of those who are gone at once."""
        for _, part in self._open():
            if part.worker not in workers:
                part.worker = ""

    def take(self, unit_id: str, episodes: tuple[EpisodeReturn, ...]) -> bool:
        """Takes the episodes of a unit. False if they are not wanted: done already, or given up."""
        part = self.current.parts.get(unit_id) if self.current is not None else None
        if part is None or part.episodes is not None or len(episodes) != len(part.seeds):
            return False
        part.episodes = episodes
        assert self.current is not None
        if self.current.is_complete:
            self.ended.append(self.current)
            self.current = None
        return True

    def _open(self) -> Iterator[tuple[str, _Part]]:
        parts = self.current.parts if self.current is not None else {}
        return ((unit_id, part) for unit_id, part in parts.items() if part.episodes is None)
