"""Policy updates: draw from replay, train, renew priorities, publish, measure time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from distrl.core.types import Purpose
from distrl.learner import old_values
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.episodes import Episode
from distrl.learner.freshness import EVERY, Freshness
from distrl.learner.mismatch import MismatchProbe
from distrl.learner.parts import Parts
from distrl.learner.prefetch import Prefetcher
from distrl.learner.sum_tree import Indices


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
        batcher = parts.batcher
        self._prefetcher: Prefetcher[Request, tuple[TrajectoryBatch, Indices]] = Prefetcher(
            lambda request: (batcher.trajectories(request.episodes, request.weights), request.entries)
        )
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
        """One update and what belongs to it. With `updates_enabled` off, all but the learning."""
        parts, config = self.parts, self._config
        parts.start_clock()
        start, waited = parts.clock(), self._prefetcher.waited_s
        mismatch = self._mismatch.measure()
        if not config.value_recompute and parts.engine.algorithm.has_critic:
            old_values.note(parts.ingest.episodes, parts.engine, parts.batcher, config.batch_trajectories)
        batch, entries = self._next_batch()
        staleness = (parts.publisher.version - batch.oldest_version).numpy()
        if config.updates_enabled:
            result = parts.engine.update(batch, self._progress())
        else:
            result = parts.engine.measure(batch)
        result.metrics.update(mismatch)
        result.metrics["off_policy/stale_fraction"] = float((staleness > config.max_staleness).mean())
        self._freshness.trained(staleness, _numpy(batch.success), result.steps)
        parts.replay.update(entries, _numpy(result.priorities))
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

    def _progress(self) -> float:
        """The share of the run that is over: of its episodes or of its time, whichever is more."""
        episodes = self.parts.scheduler.accounted(Purpose.TRAIN) / self._config.episodes
        return min(1.0, max(episodes, self.parts.elapsed_s() / (60.0 * self._config.max_minutes)))

    def uniform_batch(self) -> TrajectoryBatch:
        """A batch of trajectories drawn uniformly, without touching priorities."""
        ids = self.parts.replay.ids
        count = min(len(ids), self._config.batch_trajectories)
        chosen = self.parts.rng.choice(len(ids), size=count, replace=False)
        return self.parts.batcher.trajectories(self._episodes([ids[i] for i in chosen]))

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

    def _next_batch(self) -> tuple[TrajectoryBatch, Indices]:
        """The batch of this update and its entries in replay.

        The next one's is made ready meanwhile if it is already paid for.
        """
        if self._prefetcher.num_pending == 0:
            self._prefetcher.submit(self._draw())
        ready = self._prefetcher.get()
        if self.owed() >= 2:
            self._prefetcher.submit(self._draw())
        return ready

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
            result = self.parts.engine.measure(self.parts.batcher.trajectories(episodes))
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
                **parts.replay.metrics(),
                **parts.scheduler.metrics(),
                "off_policy/staleness_mean": float(staleness.mean()),
                "off_policy/staleness_max": float(staleness.max()),
                "time/update_s": now - start,
                "time/wait_for_episodes": idle_s / total if total > 0 else 0.0,
                "time/wait_for_batch": unready_s / total if total > 0 else 0.0,
                "time/elapsed_s": parts.elapsed_s(),
                "versions": float(parts.publisher.version),
            }
        )


def _numpy(values: Tensor) -> NDArray[np.float64]:
    return values.cpu().double().numpy()
