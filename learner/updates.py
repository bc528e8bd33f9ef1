"""Policy updates: draw from replay, train (`TrainStep.update`), renew priorities, publish, measure time."""

from __future__ import annotations

import contextlib
import logging
import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from distrl.core.errors import DistrlError, NotFinite, NotStored, PolicyError
from distrl.core.metrics import IDLE, UPDATE_PARTS
from distrl.core.types import Purpose
from distrl.learner.algorithms.base import Loss
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.context import Context, drain, publish, start_clock
from distrl.learner.episodes import Episode, StepData
from distrl.learner.mismatch import MismatchProbe
from distrl.learner.off_policy import EVERY, Freshness
from distrl.learner.ranks import num_ranks
from distrl.learner.sum_tree import Indices
from distrl.learner.trained import TrainedLog
from distrl.learner.world import learn_world

MAX_SKIPPED = 10  # batches in a row
BUILD_S = 1800.0
"""Longest wait for a batch. Thousands of screenshots are minutes of decoding where other processes need the
cores too; what the prefetch thread raises comes at once."""
REFRESHES = 2  # times at least, while a trajectory is in replay, that a slice's priorities are renewed
MAX_REFRESH_EVERY = 20  # updates
_log = logging.getLogger(__name__)

T = TypeVar("T")


class Skipped:
    """Batches that were skipped because a loss or a gradient was not finite."""

    def __init__(self) -> None:
        self.count = 0
        self._row: list[list[str]] = []  # the trajectories of each since the last good one

    def record(self, ids: Sequence[str], is_skipped: bool) -> None:
        """Counts a batch; raises `NotFinite` after `MAX_SKIPPED` in a row."""
        if not is_skipped:
            self._row.clear()
            return
        self.count += 1
        names = list(dict.fromkeys(ids))
        self._row.append(names)
        _log.warning(
            "skipping a batch: its loss or gradient is not finite; trajectories %s", ", ".join(names)
        )
        if len(self._row) >= MAX_SKIPPED:
            names = [name for name, _ in Counter(name for row in self._row for name in row).most_common()]
            more = f" and {len(names) - 10} more, see the log" if len(names) > 10 else ""
            raise NotFinite(
                f"Losses or gradients were not finite in {MAX_SKIPPED} batches in a row, of the trajectories "
                f"{', '.join(names[:10])}{more}.",
                "Lower learner.optim.lr; `distrl inspect RUN --trajectory ID` shows a trajectory.",
            )


class Pending(NamedTuple):
    """A batch that the prefetch thread makes ready, and what it is made of.

    Attributes:
        episodes: From replay, then the demonstrations of which it has steps.
        entries: Of those from replay.
    """

    batch: Future[TrajectoryBatch]
    episodes: list[Episode]
    entries: Indices


class Updates:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._freshness, self._mismatch = Freshness(), MismatchProbe(context)
        self._trained = TrainedLog(context.store.path.with_name("trained.jsonl"))
        self._config = context.config.learner
        life = self._config.replay.capacity * self._config.updates_per_episode  # of a trajectory, in updates
        self._refresh_every = max(1, min(MAX_REFRESH_EVERY, int(life / REFRESHES)))
        self._quarantine, self.skipped = context.ingest.quarantine, Skipped()
        self._prefetch = ThreadPoolExecutor(1, "prefetch")
        self._pending: deque[Pending] = deque()
        # Of each update, seconds: since the end of the one before; of these without episodes, and a batch.
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=50)
        self._last_end = 0.0
        self._spent = defaultdict[str, float](float)  # seconds since then, by parts of an update and "idle"

    def owed(self) -> float:
        """Updates that the episodes so far pay for and that have not been made; none from an empty replay."""
        context = self._context
        return context.scheduler.updates_due() - context.progress.updates if len(context.replay) else 0.0

    def wait(self, timeout_s: float) -> None:
        """Waits for episodes that pay for an update; counted in `time/wait_for_episodes`."""
        with self._clocked("idle"):
            drain(self._context, timeout_s)

    @contextlib.contextmanager
    def _clocked(self, part: str) -> Iterator[None]:
        """Counts the time of the block as that of a part of the next update."""
        start = self._context.clock.now()
        try:
            yield
        finally:
            self._spent[part] += self._context.clock.now() - start

    def make(self) -> None:
        """One update and what belongs to it; with `updates_enabled` off, all but the step.

        No update is made if a batch is skipped, or if trajectories turn out to be unusable; then it is still
        owed.
        """
        context, config, progress = self._context, self._config, self._context.progress
        start_clock(context)
        start = context.clock.now()
        mismatch: dict[str, float] | None = {}
        with self._clocked("score"):
            if self._mismatch.is_due:
                arrived = context.ingest.pop_arrived()
                mismatch = self._guarded("scoring", arrived, lambda: self._mismatch.measure(arrived))
            if not config.value_recompute and context.train_step.algorithm.has_critic:
                self._keep_values()
        if (drawn := self._next_batch()) is None:
            return
        batch, pending = drawn
        staleness = (context.publisher.version - batch.oldest_version).numpy()
        with self._clocked("train"):
            result = self._guarded("update", pending.episodes, partial(self._train, batch))
        if result is None:
            context.replay.keep(pending.entries)
            return
        with self._clocked("train"):
            result.metrics.update(learn_world(context, 1, progress.updates) if config.updates_enabled else {})
        result.metrics.update(mismatch or {})
        result.metrics["off_policy/stale_fraction"] = float((staleness > config.max_staleness).mean())
        real, success = (~batch.imagined).cpu().numpy(), _numpy(batch.success)
        result.metrics["batch/success"] = float(success[real].mean())
        self._freshness.trained(staleness, success, result.steps, real)
        self._trained.write(progress.updates + 1, batch.ids, result.steps)
        priorities = _numpy(result.priorities)
        is_known = np.isfinite(priorities).all(1)
        context.replay.update(pending.entries[is_known], priorities[is_known])
        context.replay.keep(pending.entries)
        progress.updates += 1
        context.scheduler.set_updates(progress.updates)
        with self._clocked("refresh"):
            if config.replay.priority != "uniform" and progress.updates % self._refresh_every == 0:
                self._refresh()
        with self._clocked("publish"):
            if progress.updates % config.publish_every == 0 and config.updates_enabled:
                publish(context)
        self._write(result.metrics, staleness, start)
        if self._freshness.num_updates >= EVERY:
            self.write_freshness()

    def _train(self, batch: TrajectoryBatch) -> Loss | None:
        """The update of `batch`; None if it is skipped because a loss or a gradient is not finite."""
        if not self._config.updates_enabled:
            return self._measure(batch)
        result = self._context.train_step.update(batch, self._progress())
        self.skipped.record(batch.ids, is_skipped=result is None)
        return result

    def fit_critic(self) -> float | None:
        """One update of the critic alone, on trajectories drawn uniformly; priorities stay as they are.

        Returns:
            The loss; None if no trajectory can be used.
        """
        context = self._context
        while ids := context.replay.ids:
            size = min(len(ids), self._config.batch_trajectories)
            chosen = context.rng.choice(len(ids), size=size, replace=False)
            episodes = self._episodes([ids[i] for i in chosen])
            try:
                batch = self._build(episodes)
            except (PolicyError, NotStored) as error:
                self._drop_unusable(episodes, error)
                continue
            fit = partial(context.train_step.fit_critic, batch)
            if (loss := self._guarded("critic update", episodes, fit)) is not None:
                self.skipped.record(batch.ids, is_skipped=not math.isfinite(loss))
                return loss
        return None

    def _guarded(self, kind: str, episodes: Sequence[Episode], attempt: Callable[[], T]) -> T | None:
        """What `attempt` returns; None if it failed because of some of `episodes`, now quarantined."""
        with self._quarantine.working(kind, [episode.id for episode in episodes]):
            try:
                return attempt()
            except Exception as error:
                if num_ranks() > 1:  # the others may not have failed, and wait
                    raise
                self._drop_unusable(episodes, error, self._measure)
                return None

    def _drop_unusable(
        self,
        episodes: Sequence[Episode],
        error: Exception,
        attempt: Callable[[TrajectoryBatch], object] | None = None,
    ) -> None:
        """Quarantines those of which alone no batch can be built, or with whose batch `attempt` fails."""

        def alone(episode: Episode) -> None:
            if not episode.values:  # a demonstration, or one whose values were to be computed
                episode = replace(episode, values=(0.0,) * (len(episode.steps) + 1))
            batch = self._context.batcher.trajectories([episode])
            if attempt is not None:
                attempt(batch)

        self._context.ingest.drop(self._quarantine.blame(episodes, alone, error, attempt is None))

    def _measure(self, batch: TrajectoryBatch) -> Loss:
        result = self._context.train_step.measure(batch)
        if not bool(result.priorities.isfinite().all()):
            raise PolicyError("The scores are not finite.", "Lower learner.optim.lr.")
        return result

    def _keep_values(self) -> None:
        """For `value_recompute: false`: gives episodes without values those of the present critic."""
        episodes = self._context.ingest.episodes
        while new := [episode for episode in episodes.values() if not episode.values]:
            some = new[: self._config.batch_trajectories]
            self._guarded("scoring", some, partial(self._score, some))

    def _score(self, some: Sequence[Episode]) -> None:
        batch = self._context.batcher.trajectories(some)
        values, bootstrap = (found.tolist() for found in self._context.train_step.values(batch))
        for episode, first, last, after in zip(
            some, batch.first.tolist(), batch.last.tolist(), bootstrap, strict=True
        ):
            kept = (*values[first : last + 1], after)
            self._context.ingest.episodes[episode.id] = replace(episode, values=kept)

    def _build(
        self, episodes: Sequence[Episode], demonstrated: Sequence[tuple[Episode, StepData]] = ()
    ) -> TrajectoryBatch:
        names = [episode.id for episode in (*episodes, *(episode for episode, _ in demonstrated))]
        with self._quarantine.working("batching", names):
            try:
                batch = self._context.batcher.trajectories(episodes)
                if demonstrated:
                    batch.demonstrated = self._context.batcher.steps([step for _, step in demonstrated])
                return batch
            except DistrlError:
                raise
            except Exception as error:
                # The training thread finds out which trajectory is to blame: `_drop_unusable`.
                raise PolicyError(f"A batch could not be built: {type(error).__name__}: {error}.") from error

    def _progress(self) -> float:
        """The share of the run that is over, counted from its first update."""
        progress = self._context.progress
        episodes = self._context.scheduler.accounted(Purpose.TRAIN) / self._config.episodes
        share = min(1.0, max(episodes, self._context.clock.share()))
        if progress.share_before is None:
            progress.share_before = share
        left = 1.0 - progress.share_before
        return max(0.0, share - progress.share_before) / left if left > 0.0 else 0.0

    def write_freshness(self) -> None:
        """Writes how stale what the updates since the last time used was; see `Freshness`."""
        if self._freshness.num_updates:
            self._context.report.writer.write(self._context.progress.updates, self._freshness.take())

    def close(self) -> None:
        self._prefetch.shutdown(wait=False, cancel_futures=True)

    def _next_batch(self) -> tuple[TrajectoryBatch, Pending] | None:
        """The batch of this update and what it was made of; None if nothing in replay can be used.

        The next one's is made ready meanwhile if it is already paid for.
        """
        while True:
            if not self._pending:
                if not len(self._context.replay):
                    return None
                self._submit()
            pending = self._pending.popleft()
            try:
                with self._clocked("batch"):
                    batch = pending.batch.result(BUILD_S)
            except (PolicyError, NotStored) as error:
                self._drop_unusable(pending.episodes, error)
                self._context.replay.keep(pending.entries)
                continue
            if any(episode.id in self._quarantine.ids for episode in pending.episodes):
                self._context.replay.keep(pending.entries)
                continue  # it was drawn before one of them was quarantined
            if self.owed() >= 2:
                self._submit()
            return batch, pending

    def _submit(self) -> None:
        entries = self._context.replay.sample(self._config.batch_trajectories)
        episodes, demonstrated = self._episodes(self._context.replay.names(entries)), self._rehearsed()
        batch = self._prefetch.submit(self._build, episodes, demonstrated)
        demonstrations = {episode.id: episode for episode, _ in demonstrated}
        self._pending.append(Pending(batch, [*episodes, *demonstrations.values()], entries))

    def _rehearsed(self) -> list[tuple[Episode, StepData]]:
        """Steps of demonstrations to clone in the next update, drawn uniformly."""
        config = self._config.demonstrations
        if not config.rehearsal or not self._config.updates_enabled:
            return []
        demonstrations = self._context.ingest.demonstrations
        starts = list(accumulate((len(one.steps) for one in demonstrations), initial=0))
        drawn = []
        for place in self._context.rng.choice(starts[-1], min(config.batch_size, starts[-1])):
            i = bisect_right(starts, place) - 1
            drawn.append((demonstrations[i], demonstrations[i].steps[place - starts[i]]))
        return drawn

    def _episodes(self, ids: Sequence[str]) -> list[Episode]:
        return [self._context.ingest.episodes[name] for name in ids]

    def _refresh(self) -> None:
        """Renews the priorities of a slice of the buffer with the newest policy."""
        replay = self._context.replay
        entries = replay.refresh_slice()
        if len(entries):
            episodes, build = self._episodes(replay.names(entries)), self._context.batcher.trajectories
            result = self._guarded("scoring", episodes, lambda: self._measure(build(episodes)))
            if result is not None:
                replay.update(entries, _numpy(result.priorities))

    def _write(self, metrics: dict[str, float], staleness: NDArray[np.int64], start: float) -> None:
        context = self._context
        now = context.clock.now()
        spent, self._spent = self._spent, defaultdict(float)
        since = self._last_end if self._recent else start - spent["idle"]  # not with the warm start
        self._recent.append((now - since, spent["idle"], spent["batch"]))
        self._last_end = now
        total, idle_s, unready_s = (sum(part) for part in zip(*self._recent, strict=True))
        context.report.write(
            {
                **metrics,
                **context.ingest.metrics(),
                "batch/skipped": float(self.skipped.count),
                **context.replay.metrics(),
                **context.scheduler.metrics(),
                "off_policy/staleness_mean": float(staleness.mean()),
                "off_policy/staleness_max": float(staleness.max()),
                "time/update_s": now - start,
                IDLE: spent["idle"],
                **{f"time/{part}_s": spent[part] for part in UPDATE_PARTS},
                "time/wait_for_episodes": idle_s / total if total > 0 else 0.0,
                "time/wait_for_batch": unready_s / total if total > 0 else 0.0,
                "time/elapsed_s": context.clock.elapsed_s(),
                "time/online_s": context.clock.online_s(),
                "versions": float(context.publisher.version),
            }
        )


def _numpy(values: Tensor) -> NDArray[np.float64]:
    return values.cpu().double().numpy()
