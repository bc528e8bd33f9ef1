"""The phases before online training: demonstrations, cloning, the critic's warm-up."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import mean
from threading import Event

import torch

from distrl.core.errors import PolicyError
from distrl.core.process import num_cpus
from distrl.core.types import Purpose
from distrl.learner.batching import StepBatch
from distrl.learner.demonstrations import take_dataset
from distrl.learner.episodes import Episode, StepData
from distrl.learner.parts import Parts
from distrl.learner.prefetch import Prefetcher
from distrl.learner.ranks import num_ranks
from distrl.learner.scheduler import CRITIC_WARM_UP, DEMONSTRATIONS, TRAINING, WARM_UP
from distrl.learner.updates import Skipped, Updates

POLL_S = 0.25
LOG_EVERY = 20
RECENT_LOSSES = 20  # cloning may end when their mean is low enough
WARM_UP_THREADS = 4  # workers are idle, or soon will be; small models gain nothing from more
_log = logging.getLogger(__name__)


def announce(parts: Parts, phase: str) -> None:
    """Enters a phase: the scheduler grants its leases, and the broadcasts name it."""
    parts.scheduler.set_phase(phase)
    announce_part(parts, phase)


def announce_part(parts: Parts, name: str) -> None:
    """The broadcasts name a part of a phase; the scheduler grants the phase's leases as before."""
    parts.show(0, 0)
    parts.server.set_phase(name)
    _log.info("phase: %s", name)


def demonstrate(parts: Parts, cloning: Cloning, stop: Event) -> None:
    """Waits until the expert's episodes are in, and clones meanwhile as far as they go.

    Raises:
        NothingCameIn: None came in for a long time.
    """
    wanted = parts.config.learner.demonstrations.episodes
    take_dataset(parts, stop)
    if parts.scheduler.accounted(Purpose.DEMO) >= wanted:
        return
    announce(parts, DEMONSTRATIONS)
    while not stop.is_set() and (count := parts.scheduler.accounted(Purpose.DEMO)) < wanted:
        parts.show(count, wanted)
        parts.tend()
        parts.expect_episodes(f"{count} of {wanted} demonstrations are there")
        if cloning.has_fresh_steps():
            parts.drain(0.0)
            cloning.update()
        else:
            parts.drain(POLL_S)


@contextlib.contextmanager
def _more_threads() -> Iterator[None]:
    """As many threads as there are CPUs, at most `WARM_UP_THREADS`, then `learner.threads` again."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, min(WARM_UP_THREADS, num_cpus())))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def warm_up(parts: Parts, cloning: Cloning, stop: Event) -> None:
    """Makes the cloning updates that are left, and writes the checkpoint `step_0`.

    Raises:
        PolicyError: Updates are asked for but no demonstration succeeded.
    """
    if stop.is_set():
        return
    config = parts.config.learner.demonstrations
    succeeded = any(episode.success > 0.5 for episode in parts.ingest.demonstrations)
    if config.updates and config.episodes and not succeeded:
        raise PolicyError(
            f"None of the {config.episodes} demonstrations succeeded.",
            "Lower learner.demonstrations.noise, or set learner.demonstrations.updates=0.",
        )
    announce(parts, WARM_UP)
    parts.start_clock()  # demonstrations of a dataset have not done so
    with _more_threads():
        while not cloning.is_over():
            if stop.is_set():
                return
            parts.show(cloning.num_updates, config.updates)
            parts.tend()
            cloning.update()
    cloning.write()
    parts.ingest.demonstrations.clear()
    parts.progress.is_warm = True
    parts.checkpointer.save(0, parts.state_dict())


class Cloning:
    """Behaviour cloning of the demonstrations that are in.

    Updates begin while demonstrations still come in, but draw no more steps than have come in by then. So the
    first demonstrations do not weigh much more than the last.

    Attributes:
        num_updates: Updates made.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts, self._config = parts, parts.config.learner.demonstrations
        self.num_updates = 0
        self._num_drawn = 0
        self._steps: list[tuple[str, StepData]] = []  # with the ids of their episodes
        self._num_taken = 0  # of the episodes
        self._has_success = False
        self._losses: list[float] = []  # since they were written last
        self._recent: deque[float] = deque(maxlen=RECENT_LOSSES)
        self._skipped, self._drawn = Skipped(), deque[list[str]]()
        self._prefetcher: Prefetcher[list[StepData], StepBatch] = Prefetcher(parts.batcher.steps)

    def has_fresh_steps(self) -> bool:
        """Whether an update is due before all demonstrations are in."""
        self._take()
        is_covered = self._num_drawn + 2 * self._config.batch_size <= len(self._steps)  # `update` draws ahead
        return self._has_success and is_covered and not self.is_over()

    def is_over(self) -> bool:
        """Whether all updates are made, or the loss is low enough."""
        self._take()
        limit = self._config.until_loss
        is_enough = limit is not None and len(self._recent) == RECENT_LOSSES and mean(self._recent) <= limit
        return is_enough or self.num_updates >= self._config.updates or not self._steps

    def update(self) -> None:
        """One update; the next one's batch is made ready meanwhile."""
        while self._prefetcher.num_pending < 2:
            self._prefetcher.submit(self._draw())
        names, quarantine = self._drawn.popleft(), self._parts.ingest.quarantine
        with quarantine.working("cloning", names):
            try:
                loss = self._parts.engine.clone(self._prefetcher.get())
            except Exception as error:
                if num_ranks() > 1:  # the others may not have failed, and wait
                    raise
                drawn = [one for one in self._parts.ingest.demonstrations if one.id in names]
                self._drop(quarantine.blame(drawn, self._score, error))
                return
        self._skipped.note(names, is_skipped=not math.isfinite(loss))
        self.num_updates += 1
        if math.isfinite(loss):
            self._losses.append(loss)
            self._recent.append(loss)
        if self.num_updates % LOG_EVERY == 0:
            self.write()

    def _score(self, episode: Episode) -> None:
        self._parts.engine.logprobs(self._parts.batcher.steps(episode.steps))

    def _drop(self, names: Sequence[str]) -> None:
        """Forgets quarantined demonstrations, and the batches that are under way."""
        demonstrations = self._parts.ingest.demonstrations
        demonstrations[:] = [episode for episode in demonstrations if episode.id not in names]
        self._num_taken -= len(names)
        self._steps = [(name, step) for name, step in self._steps if name not in names]
        self._drawn.clear()
        for _ in range(self._prefetcher.num_pending):
            with contextlib.suppress(Exception):
                self._prefetcher.get()

    def write(self) -> None:
        """Writes the mean loss since the last time."""
        if self._losses:
            number = float(self.num_updates)
            self._parts.write_metrics({"loss/cloning": mean(self._losses), "cloning_updates": number})
            self._losses.clear()

    def close(self) -> None:
        """Ends the prefetch thread."""
        self._prefetcher.close()

    def _take(self) -> None:
        for episode in self._parts.ingest.demonstrations[self._num_taken :]:
            self._steps += [(episode.id, step) for step in episode.steps]
            self._has_success |= episode.success > 0.5
            self._num_taken += 1

    def _draw(self) -> list[StepData]:
        size = min(self._config.batch_size, len(self._steps))
        self._num_drawn += size
        chosen = [self._steps[i] for i in self._parts.rng.choice(len(self._steps), size=size)]
        self._drawn.append([name for name, _ in chosen])
        return [self._parts.renaming(step) for _, step in chosen]


def critic_warm_up(parts: Parts, updates: Updates, stop: Event) -> bool:
    """Fits the critic to the first `min_replay` online episodes before the policy learns from it.

    Online, not demonstrations: those nearly all succeed, so a critic fitted to them would call every state
    of the weak policy good. Episodes are drawn uniformly and stay "unseen" for replay.

    Without a critic, or with updates off, there is nothing to do yet: the run may be resumed with them.

    Its time does not count towards `learner.max_minutes`.

    Returns:
        Whether the critic is ready; False if stopped before the end, or if no trajectory can be used.
    """
    config = parts.config.learner
    is_learning = config.updates_enabled and parts.engine.algorithm.has_critic
    if parts.progress.critic_is_warm or not is_learning:
        return True
    losses: list[float] = []
    wanted = config.demonstrations.critic_updates
    parts.stop_online()
    announce_part(parts, CRITIC_WARM_UP)
    with _more_threads():
        for update in range(wanted):
            if stop.is_set():
                return False
            parts.show(update, wanted)
            parts.tend()
            parts.drain(0.0)
            loss = updates.fit_critic()
            if loss is None:
                return False
            losses += [loss] if math.isfinite(loss) else []
    parts.progress.critic_is_warm = True
    announce_part(parts, TRAINING)
    if losses:
        tail = losses[-LOG_EVERY:]
        parts.write_metrics({"loss/critic_warm_up": sum(tail) / len(tail)})
    return True
