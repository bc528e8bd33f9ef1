"""The phases before online training: demonstrations, cloning, the critic's warm-up."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from statistics import mean
from threading import Event

from distrl.core.errors import NothingCameIn, PolicyError
from distrl.core.types import Purpose
from distrl.learner.batching import StepBatch
from distrl.learner.demonstrations import take_dataset
from distrl.learner.episodes import StepData
from distrl.learner.parts import Parts
from distrl.learner.prefetch import Prefetcher
from distrl.learner.scheduler import DEMONSTRATIONS, WARM_UP
from distrl.learner.updates import Updates

POLL_S = 0.25
LOG_EVERY = 20
RECENT_LOSSES = 20  # cloning may end when their mean is low enough
_log = logging.getLogger(__name__)


def announce(parts: Parts, phase: str) -> None:
    """Enters a phase: the scheduler grants its leases, and everybody is told."""
    parts.scheduler.set_phase(phase)
    parts.server.set_phase(phase)
    _log.info("phase: %s", phase)


def demonstrate(parts: Parts, stop: Event) -> None:
    """Waits until the expert's episodes are in.

    Raises:
        NothingCameIn: The run's time is over before they are.
    """
    wanted = parts.config.learner.demonstrations.episodes
    take_dataset(parts, stop)
    if parts.scheduler.accounted(Purpose.DEMO) >= wanted:
        return
    announce(parts, DEMONSTRATIONS)
    minutes = parts.config.learner.max_minutes
    while not stop.is_set() and (count := parts.scheduler.accounted(Purpose.DEMO)) < wanted:
        parts.tend()
        if parts.is_out_of_time():
            raise NothingCameIn(
                f"Only {count} of {wanted} demonstrations came in within learner.max_minutes={minutes:g}.",
                "If workers run, their logs say what fails; else start some, or raise learner.max_minutes.",
            )
        if parts.drain(POLL_S):
            parts.tell({"demonstrations": float(parts.scheduler.accounted(Purpose.DEMO))})


def warm_up(parts: Parts, stop: Event) -> None:
    """Clones the demonstrations and writes the checkpoint `step_0`; if the time is over, as far as it got.

    Raises:
        PolicyError: Updates are asked for but no demonstration succeeded.
    """
    if stop.is_set():
        return
    config = parts.config.learner.demonstrations
    steps = [step for episode in parts.ingest.demonstrations for step in episode.steps]
    succeeded = any(episode.success > 0.5 for episode in parts.ingest.demonstrations)
    if config.updates and config.episodes and not succeeded:
        raise PolicyError(
            f"None of the {config.episodes} demonstrations succeeded.",
            "Lower learner.demonstrations.noise, or set learner.demonstrations.updates=0.",
        )
    announce(parts, WARM_UP)
    if steps and not _clone(parts, steps, stop):
        return
    parts.ingest.demonstrations.clear()
    parts.progress.is_warm = True
    parts.checkpointer.save(0, parts.state_dict())


def _clone(parts: Parts, steps: Sequence[StepData], stop: Event) -> bool:
    """Makes the cloning updates that there is time for. False if stopped before the end."""
    config = parts.config.learner.demonstrations
    parts.start_clock()
    prefetcher: Prefetcher[list[StepData], StepBatch] = Prefetcher(parts.batcher.steps)

    def draw() -> list[StepData]:
        size = min(config.batch_size, len(steps))
        return [parts.renaming(steps[i]) for i in parts.rng.choice(len(steps), size=size)]

    losses: list[float] = []
    recent: deque[float] = deque(maxlen=RECENT_LOSSES)
    try:
        for update in range(config.updates):
            if stop.is_set():
                return False
            parts.tend()
            is_over = parts.is_out_of_time()
            if losses and (is_over or update % LOG_EVERY == 0):
                _write_cloning(parts, losses, update)
                losses.clear()
            if is_over:
                _log_time_is_over(parts, f"{update} of {config.updates} cloning updates")
                return True
            while prefetcher.num_pending < 2:
                prefetcher.submit(draw())
            losses.append(parts.engine.clone(prefetcher.get()))
            recent.append(losses[-1])
            if _is_enough(recent, config.until_loss):
                _log.info("cloning ends after %d updates", update + 1)
                break
    finally:
        prefetcher.close()
    if losses:
        _write_cloning(parts, losses, update + 1)
    return True


def _is_enough(recent: deque[float], until_loss: float | None) -> bool:
    return until_loss is not None and len(recent) == RECENT_LOSSES and mean(recent) <= until_loss


def _write_cloning(parts: Parts, losses: Sequence[float], num_updates: int) -> None:
    parts.write_metrics({"loss/cloning": mean(losses), "cloning_updates": float(num_updates)})


def _log_time_is_over(parts: Parts, what: str) -> None:
    _log.warning("learner.max_minutes=%g are over after %s", parts.config.learner.max_minutes, what)


def critic_warm_up(parts: Parts, updates: Updates, stop: Event) -> bool:
    """Fits the critic to the first `min_replay` online episodes before the policy learns from it.

    Online, not demonstrations: those nearly all succeed, so a critic fitted to them would call every state
    of the weak policy good. Episodes are drawn uniformly and stay "unseen" for replay.

    Without a critic, or with updates off, there is nothing to do yet: the run may be resumed with them.

    Returns:
        Whether the critic is ready; False if stopped, or out of time, before the end.
    """
    config = parts.config.learner
    is_learning = config.updates_enabled and parts.engine.algorithm.has_critic
    if parts.progress.critic_is_warm or not is_learning:
        return True
    losses: list[float] = []
    wanted = config.demonstrations.critic_updates
    for update in range(wanted):
        if stop.is_set():
            return False
        parts.tend()
        if parts.is_out_of_time():
            _log_time_is_over(parts, f"{update} of {wanted} updates of the critic's warm-up")
            return False
        parts.drain(0.0)
        losses.append(parts.engine.fit_critic(updates.uniform_batch()))
    parts.progress.critic_is_warm = True
    if losses:
        tail = losses[-LOG_EVERY:]
        parts.write_metrics({"loss/critic_warm_up": sum(tail) / len(tail)})
    return True
