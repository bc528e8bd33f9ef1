"""Counters of a run of continuous control: what a checkpoint keeps besides weights and statistics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrl.core.buckets import VERSIONS
from distrl.core.messages import Gradient

RECENT = 100
"""Training episodes whose mean return is the metric `train/return`, and may start a confirmation."""

KEPT_IDS = 1024
"""Units whose resend is recognised."""

RATIOS = {"kl": "off_policy/kl", "silenced_fraction": "off_policy/silenced_fraction"}
"""What is told by staleness of a round's ratios π/π_old, and how workers call it."""


@dataclass
class ControlProgress:
    """Where the run stands.

    Attributes:
        accepted, rejected: Gradients.
        env_steps, episodes: Of accepted gradients.
        recent: Returns of the newest training episodes.
        done: Units whose gradient was applied, the oldest first.
        next_validation, next_confirmation: Environment steps before which there is none.
        earlier_s: Seconds that earlier processes spent on this run.
    """

    accepted: int = 0
    rejected: int = 0
    env_steps: int = 0
    episodes: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    done: dict[str, None] = field(default_factory=dict)
    next_validation: int = 0
    next_confirmation: int = 0
    earlier_s: float = 0.0

    def account(self, gradient: Gradient) -> None:
        """Counts an accepted gradient."""
        self.accepted += 1
        self.env_steps += gradient.num_steps
        self.episodes += len(gradient.episodes)
        self.recent.extend(episode.total for episode in gradient.episodes)
        self.done[gradient.unit_id] = None
        if len(self.done) > KEPT_IDS:
            del self.done[next(iter(self.done))]

    def looks_solved(self, target: float) -> bool:
        """Whether the mean return of the newest episodes is at `target`, and a confirmation allowed."""
        is_allowed = len(self.recent) == RECENT and self.env_steps >= self.next_confirmation
        return is_allowed and sum(self.recent) / RECENT >= target

    def numbers(self) -> dict[str, float]:
        """The counters as metrics."""
        numbers = {
            "env_steps": float(self.env_steps),
            "train/episodes": float(self.episodes),
            "gradients/accepted": float(self.accepted),
            "gradients/rejected": float(self.rejected),
        }
        if self.recent:
            numbers["train/return"] = sum(self.recent) / len(self.recent)
        return numbers

    def state_dict(self, elapsed_s: float) -> dict[str, Any]:
        """As JSON; `elapsed_s` of the run so far."""
        return {
            "accepted": self.accepted,
            "rejected": self.rejected,
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "recent": list(self.recent),
            "done": list(self.done),
            "next_validation": self.next_validation,
            "next_confirmation": self.next_confirmation,
            "earlier_s": elapsed_s,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ControlProgress:
        """What `state_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: It is of another form.
        """
        progress = cls(**{**state, "recent": deque(state["recent"], maxlen=RECENT)})
        progress.done = dict.fromkeys(state["done"])
        return progress


class Window:
    """Means over the gradients since the last row of metrics.

    Args:
        since: Seconds of the run when it begins.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self._clear()

    def _clear(self) -> None:
        self._staleness: list[int] = []
        self._trained: dict[int, list[Gradient]] = {}  # by the bucket of their staleness
        self._values: dict[str, list[float]] = {}
        self._env_steps = 0

    def add(self, gradient: Gradient, staleness: int) -> None:
        """Counts an accepted gradient."""
        self._staleness.append(staleness)
        if all(name in gradient.metrics for name in RATIOS.values()):
            self._trained.setdefault(int(VERSIONS.index(staleness)), []).append(gradient)
        self._env_steps += gradient.num_steps
        for name, value in gradient.metrics.items():
            self._values.setdefault(name, []).append(value)

    def take(self, elapsed_s: float) -> dict[str, float]:
        """The means, and begins anew; empty without gradients."""
        if not self._staleness:
            return {}
        numbers = {name: sum(values) / len(values) for name, values in self._values.items()}
        numbers["off_policy/staleness_mean"] = sum(self._staleness) / len(self._staleness)
        numbers["off_policy/staleness_max"] = float(max(self._staleness))
        for bucket, gradients in self._trained.items():
            prefix = f"staleness/{VERSIONS.labels[bucket]}"
            numbers |= {f"{prefix}/{name}": value for name, value in _by_staleness(gradients).items()}
        if elapsed_s > self._since:
            numbers["throughput/env_steps_per_s"] = self._env_steps / (elapsed_s - self._since)
        self._since = elapsed_s
        self._clear()
        return numbers


def _by_staleness(gradients: Sequence[Gradient]) -> dict[str, float]:
    """Counts, the mean return of the episodes that ended, and the ratios' numbers, means over steps."""
    steps = sum(gradient.num_steps for gradient in gradients)
    totals = [episode.total for gradient in gradients for episode in gradient.episodes]
    return {
        "gradients": float(len(gradients)),
        "steps": float(steps),
        "episodes": float(len(totals)),
        **({"return": sum(totals) / len(totals)} if totals else {}),
        **{
            short: sum(gradient.num_steps * gradient.metrics[name] for gradient in gradients) / steps
            for short, name in RATIOS.items()
        },
    }
