"""The warm start before online training: demonstrations, cloning, the critic's warm-up."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from threading import Event
from typing import Any

import torch

from distrl.configs.load import wanted_of
from distrl.core.demonstrations import STORE_FILE, check_dataset, draw_number
from distrl.core.errors import PolicyError
from distrl.core.process import num_cpus
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.learner.batching import StepBatch
from distrl.learner.checkpoint import state_of
from distrl.learner.context import (
    CRITIC_WARM_UP,
    POLL_S,
    Context,
    alone,
    announce,
    drain,
    enter_phase,
    expect_episodes,
    poll,
    publish,
    start_clock,
)
from distrl.learner.episodes import Episode, StepData
from distrl.learner.ranks import num_ranks
from distrl.learner.scheduler import DEMONSTRATIONS, TRAINING, WARM_UP
from distrl.learner.updates import BUILD_S, Skipped, Updates
from distrl.learner.world import learn_world

LOG_EVERY = 20
RECENT_LOSSES = 20  # cloning may end when their mean is low enough
WARM_UP_THREADS = 4  # workers are idle, or soon will be; small models gain nothing from more
_log = logging.getLogger(__name__)


def demonstrate(context: Context, cloning: Cloning, stop: Event) -> None:
    """Waits until the expert's episodes have arrived, and clones meanwhile as far as they go."""
    wanted = context.config.learner.demonstrations.episodes
    take_dataset(context, stop)
    if context.scheduler.accounted(Purpose.DEMO) >= wanted:
        return
    enter_phase(context, DEMONSTRATIONS)
    num_played = context.scheduler.num_played_by_policy
    while not stop.is_set() and (count := context.scheduler.accounted(Purpose.DEMO)) < wanted:
        context.report.show(count, wanted)
        poll(context)
        if count >= wanted - num_played and not context.scheduler.policy_plays:
            _let_policy_play(context, cloning, stop)
            continue
        expect_episodes(context, f"{count} of {wanted} demonstrations arrived")
        if cloning.has_fresh_steps():
            drain(context, 0.0)
            cloning.update()
        else:
            drain(context, POLL_S)


def _let_policy_play(context: Context, cloning: Cloning, stop: Event) -> None:
    """Clones what the expert has played, and publishes: the policy plays the rest of the demonstrations.

    It makes the same share of all cloning updates as these are of all demonstrations.
    """
    config = context.config.learner.demonstrations
    with _more_threads():
        while cloning.num_updates < (1.0 - config.dagger) * config.updates and not cloning.is_over():
            if stop.is_set():
                return
            poll(context)
            cloning.update()
    cloning.expect_others()
    publish(context)
    context.scheduler.policy_plays = True


@contextlib.contextmanager
def _more_threads() -> Iterator[None]:
    """As many threads as there are CPUs, at most `WARM_UP_THREADS`, then `learner.threads` again."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, min(WARM_UP_THREADS, num_cpus())))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def warm_up(context: Context, cloning: Cloning, stop: Event) -> None:
    """Makes the cloning updates that are left, and writes the checkpoint `step_0`."""
    if stop.is_set():
        return
    config = context.config.learner.demonstrations
    usable = context.ingest.demonstrations
    if config.updates and config.episodes and not usable:
        raise PolicyError(
            f"None of the {config.episodes} demonstrations can be used.",
            "`distrl inspect RUN` lists the reasons; the policy must read what the agent writes.",
        )
    if config.updates and config.episodes and not any(episode.success > 0.5 for episode in usable):
        raise PolicyError(
            f"None of the {config.episodes} demonstrations succeeded.",
            "Lower learner.demonstrations.noise, or set learner.demonstrations.updates=0.",
        )
    enter_phase(context, WARM_UP)
    start_clock(context)  # demonstrations of a dataset have not done so
    cloning.expect_others()
    with _more_threads():
        while not cloning.is_over():
            if stop.is_set():
                return
            context.report.show(cloning.num_updates, config.updates)
            poll(context)
            cloning.update()
    cloning.write()
    context.ingest.end_warm_start()
    context.progress.is_warm = True
    context.checkpointer.save(0, state_of(context))


class Cloning:
    """Behaviour cloning of the demonstrations that have arrived.

    Updates start while demonstrations still arrive, but draw no more steps than have arrived by then. So the
    first demonstrations do not weigh much more than the last.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._config = context, context.config.learner.demonstrations
        self.num_updates = 0
        self._num_drawn = 0
        self._steps: list[tuple[str, StepData]] = []  # with the ids of their episodes
        self._num_taken = 0  # of the episodes
        self._has_success = False
        self._losses: list[float] = []  # since they were written last
        self._recent: deque[float] = deque(maxlen=RECENT_LOSSES)
        self._skipped, self._drawn = Skipped(), deque[tuple[list[str], Future[StepBatch]]]()
        self._prefetch = ThreadPoolExecutor(1, "prefetch")

    def state_dict(self) -> dict[str, Any]:
        """What is not in the networks and their optimisers, JSON-able."""
        rng, elapsed_s = self._context.rng.bit_generator.state, self._context.clock.elapsed_s()
        return {"updates": self.num_updates, "drawn": self._num_drawn, "rng": rng, "elapsed_s": elapsed_s}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_updates, self._num_drawn = int(state["updates"]), int(state["drawn"])
        self._context.rng.bit_generator.state = state["rng"]
        self._context.progress.elapsed_s = float(state["elapsed_s"])

    def has_fresh_steps(self) -> bool:
        """Whether an update is due before all demonstrations have arrived."""
        self._take()
        is_covered = self._num_drawn + 2 * self._config.batch_size <= len(self._steps)  # `update` draws ahead
        return self._has_success and is_covered and not self.is_over()

    def expect_others(self) -> None:
        """More demonstrations have come, or will: losses so far do not end cloning (`until_loss`)."""
        self._recent.clear()

    def is_over(self) -> bool:
        """Whether all updates are made, or the loss is low enough."""
        self._take()
        limit = self._config.until_loss
        is_enough = limit is not None and len(self._recent) == RECENT_LOSSES and mean(self._recent) <= limit
        return is_enough or self.num_updates >= self._config.updates or not self._steps

    def update(self) -> None:
        """One update; the next one's batch is made ready meanwhile."""
        while len(self._drawn) < 2:
            self._draw()
        (names, batch), quarantine = self._drawn.popleft(), self._context.ingest.quarantine
        with quarantine.working("cloning", names):
            try:
                loss = self._context.train_step.clone(batch.result(BUILD_S))
            except Exception as error:
                if num_ranks() > 1:  # the others may not have failed, and wait
                    raise
                drawn = [one for one in self._context.ingest.demonstrations if one.id in names]
                self._drop(quarantine.blame(drawn, self._score, error))
                return
        learn_world(self._context, 0, self.num_updates)
        self._skipped.record(names, is_skipped=not math.isfinite(loss))
        self.num_updates += 1
        if math.isfinite(loss):
            self._losses.append(loss)
            self._recent.append(loss)
        if self.num_updates % LOG_EVERY == 0:
            self.write()

    def _score(self, episode: Episode) -> None:
        self._context.train_step.logprobs(self._context.batcher.steps(episode.steps))

    def _drop(self, names: Sequence[str]) -> None:
        """Drops quarantined demonstrations, and the batches that are under way."""
        self._context.ingest.drop(names)
        self._num_taken -= len(names)
        self._steps = [(name, step) for name, step in self._steps if name not in names]
        self._drawn.clear()

    def write(self) -> None:
        if self._losses:
            number = float(self.num_updates)
            self._context.report.write({"loss/cloning": mean(self._losses), "cloning_updates": number})
            self._losses.clear()

    def close(self) -> None:
        self._prefetch.shutdown(wait=False, cancel_futures=True)

    def _take(self) -> None:
        for episode in self._context.ingest.demonstrations[self._num_taken :]:
            self._steps += [(episode.id, step) for step in episode.steps]
            self._has_success |= episode.success > 0.5
            self._num_taken += 1

    def _draw(self) -> None:
        size = min(self._config.batch_size, len(self._steps))
        self._num_drawn += size
        chosen = [self._steps[i] for i in self._context.rng.choice(len(self._steps), size=size)]
        steps = [step for _, step in chosen]
        batch = self._prefetch.submit(self._context.batcher.steps, steps)
        self._drawn.append(([name for name, _ in chosen], batch))


def critic_warm_up(context: Context, updates: Updates, stop: Event) -> bool:
    """Fits the critic to the first `min_replay` online episodes before the policy learns from it.

    Online, not demonstrations: those nearly all succeed, so a critic fitted to them would call every state
    of the weak policy good. Episodes are drawn uniformly and stay "unseen" for replay.

    Without a critic, or with updates off, there is nothing to do yet: the run may be resumed with them.

    Its time does not count towards `learner.max_minutes`.

    Returns:
        Whether the critic is ready; False if stopped before the end, or if no trajectory can be used.
    """
    config = context.config.learner
    is_learning = config.updates_enabled and context.train_step.algorithm.has_critic
    if context.progress.critic_is_warm or not is_learning:
        return True
    losses: list[float] = []
    wanted = config.demonstrations.critic_updates
    context.clock.stop_online()
    announce(context, CRITIC_WARM_UP)
    with alone(context), _more_threads():
        for update in range(wanted):
            if stop.is_set():
                return False
            context.report.show(update, wanted)
            poll(context)
            drain(context, 0.0)
            loss = updates.fit_critic()
            if loss is None:
                return False
            losses += [loss] if math.isfinite(loss) else []
    context.progress.critic_is_warm = True
    announce(context, TRAINING)
    if losses:
        tail = losses[-LOG_EVERY:]
        context.report.write({"loss/critic_warm_up": sum(tail) / len(tail)})
    return True


def take_dataset(context: Context, stop: Event) -> None:
    """Takes the run's demonstrations from its dataset, if it has one, as if they had just arrived.

    The first `episodes` of the dataset are copied to the run's own store: what a run has learnt from stays
    with it. Those that are there already, from before an interruption, are not taken twice.
    """
    config = context.config.learner.demonstrations
    if config.dataset is None or context.scheduler.accounted(Purpose.DEMO) >= config.episodes:
        return
    path = Path(config.dataset).expanduser()
    check_dataset(path, wanted_of(context.config), config.episodes)
    source = TrajectoryStore(path / STORE_FILE)
    try:
        _log.info("taking %d demonstrations from %s", config.episodes, path)
        # In the order in which tasks were drawn; the store has them in that in which episodes ended.
        drawn = {one.id: draw_number(one.lease_id) for one in source.iterate(Purpose.DEMO)}
        for name in sorted(drawn, key=lambda name: drawn[name])[: config.episodes]:
            if stop.is_set():
                return
            trajectory = source.get(name)
            if context.store.add(trajectory, source.images(trajectory.image_digests)):
                context.ingest.take(trajectory)
            poll(context)
    finally:
        source.close()
