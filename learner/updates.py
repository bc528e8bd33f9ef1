"""Policy updates: draw from replay, train, renew priorities, publish, measure time."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from distrl.core.errors import DistrlError, NotFinite, NotStored, PolicyError
from distrl.core.types import Purpose
from distrl.learner import old_values
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.episodes import Episode
from distrl.learner.freshness import EVERY, Freshness
from distrl.learner.mismatch import MismatchProbe
from distrl.learner.parts import Parts
from distrl.learner.prefetch import Prefetcher
from distrl.learner.ranks import num_ranks
from distrl.learner.sum_tree import Indices

MAX_SKIPPED = 10  # batches in a row
_log = logging.getLogger(__name__)

T = TypeVar("T")


class Skipped:
    """Batches that were skipped because a loss or a gradient was not finite.

    Attributes:
        count: How many so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._row: list[list[str]] = []  # the trajectories of each since the last good one

    def note(self, ids: Sequence[str], is_skipped: bool) -> None:
        """Counts a batch.

        Raises:
            NotFinite: `MAX_SKIPPED` in a row were skipped; it names their trajectories.
        """
        if not is_skipped:
            self._row.clear()
            return
        self.count += 1
        names = list(dict.fromkeys(ids))
        self._row.append(names)
        _log.warning(
            "a batch is skipped: its loss or gradient is not finite; trajectories %s", ", ".join(names)
        )
        if len(self._row) >= MAX_SKIPPED:
            names = [name for name, _ in Counter(name for row in self._row for name in row).most_common()]
            more = f" and {len(names) - 10} more, which the log names" if len(names) > 10 else ""
            raise NotFinite(
                f"Losses or gradients were not finite in {MAX_SKIPPED} batches in a row, of the trajectories "
                f"{', '.join(names[:10])}{more}.",
                "Lower learner.optim.lr; `distrl inspect RUN --trajectory ID` shows a trajectory.",
            )


@dataclass(frozen=True)
class Request:
    """Episodes to make a batch of, their entries in replay, and the weights of their draw."""

    episodes: list[Episode]
    entries: Indices
    weights: list[float] | None = None


class Updates:
    """Makes updates as episodes come in; used by the training thread."""

    def __init__(self, parts: Parts, unix_time: Callable[[], float] = time.time) -> None:
        self.parts, self._unix_time = parts, unix_time
        self._freshness, self._mismatch = Freshness(), MismatchProbe(parts)
        self._config = parts.config.learner
        self._quarantine = parts.ingest.quarantine
        self.skipped = Skipped()
        self._prefetcher: Prefetcher[Request, TrajectoryBatch] = Prefetcher(
            lambda request: self._build(request.episodes, request.weights)
        )
        self._requests: deque[Request] = deque()  # those that the prefetcher has not answered yet
        # Of each update, seconds: since the end of the one before; of these without episodes, and a batch.
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=50)
        self._last_end, self._idle_s = parts.clock(), 0.0

    def owed(self) -> float:
        """Updates that the episodes so far pay for and that have not been made; none from an empty replay."""
        if not len(self.parts.replay):
            return 0.0
        return self.parts.scheduler.updates_due() - self.parts.progress.updates

    def wait(self, timeout_s: float) -> None:
        """Waits for episodes that pay for an update; counted in `time/wait_for_episodes`."""
        start = self.parts.clock()
        self.parts.drain(timeout_s)
        self._idle_s += self.parts.clock() - start

    def make(self) -> None:
        """One update and what belongs to it. With `updates_enabled` off, all but the learning.

        None is made on a batch that is skipped, or if trajectories turn out to be unusable; then it is still
        owed.
        """
        parts, config = self.parts, self._config
        parts.start_clock()
        start, waited = parts.clock(), self._prefetcher.waited_s
        mismatch = self._measure_mismatch()
        if not config.value_recompute and parts.engine.algorithm.has_critic:
            self._note_values()
        if (drawn := self._next_batch()) is None:
            return
        batch, request = drawn
        staleness = (parts.publisher.version - batch.oldest_version).numpy()
        if (result := self._learn(batch, request)) is None:
            return
        result.metrics.update(mismatch)
        result.metrics["off_policy/stale_fraction"] = float((staleness > config.max_staleness).mean())
        self._freshness.trained(staleness, _numpy(batch.success), result.steps)
        parts.replay.update(request.entries, _numpy(result.priorities))
        parts.progress.updates += 1
        parts.scheduler.set_updates(parts.progress.updates)
        is_prioritised = config.replay.priority != "uniform"
        if is_prioritised and parts.progress.updates % config.replay.refresh_every == 0:
            self._refresh()
        if parts.progress.updates % config.publish_every == 0 and config.updates_enabled:
            parts.publish()
        self._write(result.metrics, staleness, start, self._prefetcher.waited_s - waited)
        if self._freshness.num_updates >= EVERY:
            self.write_freshness()

    def _learn(self, batch: TrajectoryBatch, request: Request) -> Evaluation | None:
        """The update of a batch; None if there was none."""
        engine = self.parts.engine

        def update() -> tuple[Evaluation | None]:
            is_learning = self._config.updates_enabled
            return (engine.update(batch, self._progress()) if is_learning else self._measured(batch),)

        if (done := self._guarded("update", request.episodes, update)) is None:
            return None
        (result,) = done
        self.skipped.note(batch.ids, is_skipped=result is None)
        return result

    def fit_critic(self) -> float | None:
        """One update of the critic alone, on trajectories drawn uniformly.

        Returns:
            The loss; None if no trajectory can be used.
        """
        while (batch := self.uniform_batch()) is not None:
            episodes, fit = self._episodes(batch.ids), partial(self.parts.engine.fit_critic, batch)
            if (loss := self._guarded("critic update", episodes, fit)) is not None:
                self.skipped.note(batch.ids, is_skipped=not math.isfinite(loss))
                return loss
        return None

    def _guarded(self, kind: str, episodes: Sequence[Episode], attempt: Callable[[], T]) -> T | None:
        """What `attempt` returns; None if it failed because of some of `episodes`, now quarantined.

        Args:
            kind: See `Quarantine.working`.
        """
        with self._quarantine.working(kind, [episode.id for episode in episodes]):
            try:
                return attempt()
            except Exception as error:
                if num_ranks() > 1:  # the others may not have failed, and wait
                    raise
                self._drop_unusable(episodes, self._measure, error)
                return None

    def _measure(self, episodes: Sequence[Episode]) -> Evaluation:
        return self._measured(self.parts.batcher.trajectories(episodes))

    def _measured(self, batch: TrajectoryBatch) -> Evaluation:
        result = self.parts.engine.measure(batch)
        if not bool(result.priorities.isfinite().all()):
            raise PolicyError("The scores are not finite.", "Lower learner.optim.lr.")
        return result

    def _measure_mismatch(self) -> dict[str, float]:
        """The `mismatch/*` metrics, if it is time for them."""
        if not self._mismatch.is_due:
            return {}
        arrived = self.parts.ingest.take_arrived()
        return self._guarded("scoring", arrived, lambda: self._mismatch.measure(arrived)) or {}

    def _note_values(self) -> None:
        """Gives the episodes that came in their values, see `old_values`."""
        episodes, size = self.parts.ingest.episodes, self._config.batch_trajectories
        note = partial(old_values.note, episodes, self.parts.engine, self.parts.batcher, size)
        while new := [episode for episode in episodes.values() if not episode.values]:
            if self._guarded("scoring", new, note) is not None:
                return

    def _build(self, episodes: Sequence[Episode], weights: list[float] | None = None) -> TrajectoryBatch:
        with self._quarantine.working("batching", [episode.id for episode in episodes]):
            try:
                return self.parts.batcher.trajectories(episodes, weights)
            except DistrlError:
                raise
            except Exception as error:
                # The training thread finds out of which trajectory: `_drop_unusable`.
                raise PolicyError(f"A batch cannot be built: {type(error).__name__}: {error}.") from error

    def _drop_unusable(
        self, episodes: Sequence[Episode], attempt: Callable[[Sequence[Episode]], object], error: Exception
    ) -> None:
        """Quarantines those with which `attempt` fails alone too; raises `error` if there are none."""
        may_all_fail = attempt == self.parts.batcher.trajectories
        names = self._quarantine.blame(episodes, lambda one: attempt([one]), error, may_all_fail)
        self.parts.ingest.drop(names)

    def _usable_batch(self, ids: Sequence[str]) -> TrajectoryBatch | None:
        """A batch of these; None if none of them can be used."""
        while ids := [name for name in ids if name in self.parts.ingest.episodes]:
            episodes = self._episodes(ids)
            try:
                return self._build(episodes)
            except (PolicyError, NotStored) as error:
                self._drop_unusable(episodes, self.parts.batcher.trajectories, error)
        return None

    def _progress(self) -> float:
        """The share of the run that is over: of its episodes or its time limit, whichever is more."""
        episodes = self.parts.scheduler.accounted(Purpose.TRAIN) / self._config.episodes
        return min(1.0, max(episodes, self.parts.time_share()))

    def uniform_batch(self) -> TrajectoryBatch | None:
        """A batch of trajectories drawn uniformly, without touching priorities; None if none can be used."""
        ids = self.parts.replay.ids
        count = min(len(ids), self._config.batch_trajectories)
        chosen = self.parts.rng.choice(len(ids), size=count, replace=False)
        return self._usable_batch([ids[i] for i in chosen])

    def write_freshness(self) -> None:
        """Writes what is known of the age of what the updates since the last time used; see `Freshness`."""
        parts = self.parts
        if self._freshness.num_updates:
            metrics, histograms = self._freshness.take(
                parts.ingest.episodes.values(), parts.publisher.version, self._unix_time()
            )
            parts.metrics.write(parts.progress.updates, metrics, histograms)

    def close(self) -> None:
        """Ends the prefetch thread."""
        self._prefetcher.close()

    def _next_batch(self) -> tuple[TrajectoryBatch, Request] | None:
        """The batch of this update and what it was made of; None if nothing in replay can be used.

        The next one's is made ready meanwhile if it is already paid for.
        """
        while True:
            if self._prefetcher.num_pending == 0:
                if not len(self.parts.replay):
                    return None
                self._submit()
            request = self._requests.popleft()
            try:
                batch = self._prefetcher.get()
            except (PolicyError, NotStored) as error:
                self._drop_unusable(request.episodes, self.parts.batcher.trajectories, error)
                continue
            if any(episode.id in self._quarantine.ids for episode in request.episodes):
                continue  # it was drawn before one of them was quarantined
            if self.owed() >= 2:
                self._submit()
            return batch, request

    def _submit(self) -> None:
        self._requests.append(self._draw())
        self._prefetcher.submit(self._requests[-1])

    def _draw(self) -> Request:
        replay, config = self.parts.replay, self._config
        draw = replay.sample(config.batch_trajectories)
        episodes = self._episodes(replay.names(draw.entries))
        self._freshness.drawn(episodes, self._unix_time())
        weights = None
        if config.replay.importance:
            start = config.replay.importance_start
            weights = replay.importance_weights(draw, start + (1.0 - start) * self._progress())
        return Request(episodes, draw.entries, weights)

    def _episodes(self, ids: Sequence[str]) -> list[Episode]:
        return [self.parts.ingest.episodes[name] for name in ids]

    def _refresh(self) -> None:
        """Renews the priorities of a slice of the buffer with the newest policy."""
        replay = self.parts.replay
        entries = replay.refresh_slice()
        if len(entries):
            episodes = self._episodes(replay.names(entries))
            result = self._guarded("scoring", episodes, lambda: self._measure(episodes))
            if result is not None:
                replay.update(entries, _numpy(result.priorities))

    def _write(
        self, metrics: dict[str, float], staleness: NDArray[np.int64], start: float, waited_s: float
    ) -> None:
        parts = self.parts
        now = parts.clock()
        self._recent.append((now - self._last_end, self._idle_s, waited_s))
        self._last_end, self._idle_s = now, 0.0
        total, idle_s, unready_s = (sum(part) for part in zip(*self._recent, strict=True))
        parts.write_metrics(
            {
                **metrics,
                **parts.ingest.metrics(),
                "batch/skipped": float(self.skipped.count),
                **parts.replay.metrics(),
                **parts.scheduler.metrics(),
                "off_policy/staleness_mean": float(staleness.mean()),
                "off_policy/staleness_max": float(staleness.max()),
                "time/update_s": now - start,
                "time/wait_for_episodes": idle_s / total if total > 0 else 0.0,
                "time/wait_for_batch": unready_s / total if total > 0 else 0.0,
                "time/elapsed_s": parts.elapsed_s(),
                "time/online_s": parts.online_s(),
                "versions": float(parts.publisher.version),
            }
        )


def _numpy(values: Tensor) -> NDArray[np.float64]:
    return values.cpu().double().numpy()
