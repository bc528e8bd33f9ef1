"""The parts and the state of a learner, and the steps that all phases of its loop share.

`Context` is data. Its parts have one owner each, the training thread, but for `server`, whose methods any
thread may call. `poll`, `drain` and `publish` are the loop's verbs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from distrl.core.errors import NothingCameIn
from distrl.core.messages import WeightInfo
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL, MetricsWriter

if TYPE_CHECKING:
    from distrl.configs.schema import Config
    from distrl.core.store import TrajectoryStore
    from distrl.core.weights import Buffer
    from distrl.learner.batching import Batcher
    from distrl.learner.checkpoint import Checkpointer
    from distrl.learner.ingest import Ingest
    from distrl.learner.publish import Publisher
    from distrl.learner.replay import Replay
    from distrl.learner.scheduler import TaskScheduler
    from distrl.learner.train_step import TrainStep

CRITIC_WARM_UP, LAST_ROUND = "critic warm-up", "validation"
"""Parts of the training phase that broadcasts name; leases are granted as in all of it."""

POLL_S = 0.25  # how long a loop waits for episodes
PEERS_S = 10.0  # how often the metrics of workers and inference servers are written
SLEEP_S = 120.0  # until a server on the same GPU sleeps
SILENCE_S = 3600.0
"""How long the learner waits for an episode without which it cannot go on; its own work does not count."""
_log = logging.getLogger(__name__)


class Network(Protocol):
    """The workers and inference servers, as the training thread sees them; see `LearnerServer`."""

    def check(self) -> None: ...

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None: ...

    def set_phase(self, phase: str) -> None: ...

    def set_metrics(self, metrics: Mapping[str, float]) -> None: ...

    def peer_metrics(self) -> dict[str, float]: ...

    def takes_checkpoint(self) -> bool: ...

    def pass_turn(self, wait_s: float) -> bool: ...

    def shutdown(self, reason: str) -> None: ...


@dataclass
class Progress:
    """Counters that a checkpoint keeps."""

    updates: int = 0  # of the policy
    is_warm: bool = False  # whether the warm start (cloning) is done
    critic_is_warm: bool = False
    elapsed_s: float = 0.0  # spent on this run by earlier processes
    online_s: float = 0.0  # what of that counts towards `learner.max_minutes`
    share_before: float | None = None  # of the run, at its first update; None before that


class RunClock:
    """The time of a run, restarts included. It starts with the first trajectory of each process."""

    def __init__(
        self, progress: Progress, max_minutes: float | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = now
        self._progress, self._max_minutes = progress, max_minutes
        self._since: float | None = None
        self._online_since: float | None = None

    @property
    def is_running(self) -> bool:
        return self._since is not None

    def start(self) -> None:
        self._since = self.now() if self._since is None else self._since

    def start_online(self) -> None:
        """From now on time counts towards `max_minutes`, unless the run's time has not started yet.

        A resumed run has to wait for its workers; that does not count.
        """
        if self._online_since is None and self.is_running:
            self._online_since = self.now()

    def stop_online(self) -> None:
        """Time does not count until `start_online`."""
        self._progress.online_s, self._online_since = self.online_s(), None

    def elapsed_s(self) -> float:
        """Seconds spent on the run, without the wait for the first trajectory of each process."""
        return self._progress.elapsed_s + (self.now() - self._since if self._since is not None else 0.0)

    def online_s(self) -> float:
        """Seconds that count towards `max_minutes`."""
        running_s = self.now() - self._online_since if self._online_since is not None else 0.0
        return self._progress.online_s + running_s

    def share(self) -> float:
        """The share of `max_minutes` that is over; 0 without such a limit."""
        return 0.0 if self._max_minutes is None else self.online_s() / (60.0 * self._max_minutes)


class Reporter:
    """Writes metrics, and lets the server broadcast the newest value of each."""

    def __init__(self, writer: MetricsWriter, server: Network, progress: Progress, clock: RunClock) -> None:
        self.writer = writer
        self._server, self._progress, self._clock = server, progress, clock
        self._newest: dict[str, float] = {}

    def write(self, metrics: Mapping[str, float]) -> None:
        self.writer.write(self._progress.updates, dict(metrics))
        self.broadcast(metrics)

    def broadcast(self, metrics: Mapping[str, float]) -> None:
        """Lets the next broadcasts carry these values besides the newest of all others."""
        self._newest |= metrics
        self._newest["updates"] = float(self._progress.updates)
        self._server.set_metrics(self._newest)

    def show(self, done: float, total: float) -> None:
        """Lets the next broadcasts carry how much of the present phase is done."""
        numbers = {PHASE_DONE: float(done), PHASE_TOTAL: float(total)}
        self.broadcast({**numbers, "time/online_s": self._clock.online_s()})


@dataclass
class Context:
    config: Config
    server: Network
    store: TrajectoryStore
    scheduler: TaskScheduler
    replay: Replay
    ingest: Ingest
    batcher: Batcher
    train_step: TrainStep
    publisher: Publisher
    checkpointer: Checkpointer
    report: Reporter
    rng: np.random.Generator
    progress: Progress
    clock: RunClock
    published_at: int = field(init=False, default=-1)  # the policy's updates when it was last published
    has_arrivals: bool = field(init=False, default=False)  # in this process
    waited_s: float = field(init=False, default=0.0)  # for trajectories, since the last one
    peers_due: float = field(init=False)  # when peers' metrics are written next

    def __post_init__(self) -> None:
        self.peers_due = self.clock.now() + PEERS_S

    @property
    def is_published(self) -> bool:
        """Whether the newest version has the policy's present weights."""
        return self.published_at == self.train_step.num_updates


def start_clock(context: Context) -> None:
    """Starts the run's time, unless it runs; rates of peers count from here."""
    if not context.clock.is_running:
        context.clock.start()
        context.peers_due = context.clock.now() + PEERS_S
        context.server.peer_metrics()


def drain(context: Context, timeout_s: float) -> int:
    """Takes all trajectories that have arrived, as `Ingest.drain`; the first one starts the clock."""
    start = context.clock.now()
    count = context.ingest.drain(timeout_s)
    if count:
        context.waited_s, context.has_arrivals = 0.0, True
        start_clock(context)
    else:
        context.waited_s += context.clock.now() - start
    return count


def expect_episodes(context: Context, so_far: str) -> None:
    """Raises `NothingCameIn` if the learner has waited for an episode for `SILENCE_S`."""
    if context.waited_s >= SILENCE_S:
        raise NothingCameIn(
            f"No episode arrived for {SILENCE_S / 60:.0f} minutes ({so_far}).",
            "If workers run, see their logs; otherwise start some.",
        )


def poll(context: Context) -> None:
    """For every loop: raises what ended the server or a rank, and writes peers' metrics when they are due.

    Before the run's time starts they are only broadcast, to show what the run waits for.
    """
    context.server.check()
    context.train_step.poll()
    if (transfer := context.publisher.transfer) is not None and transfer.is_missed:
        publish(context)
    context.scheduler.set_elapsed(context.clock.share())
    if context.clock.now() >= context.peers_due:
        context.peers_due = context.clock.now() + PEERS_S
        metrics = context.server.peer_metrics()
        if context.clock.is_running:
            context.report.write(metrics)
        else:
            context.report.broadcast(metrics)


def publish(context: Context, catch_up: bool = False) -> WeightInfo:
    """Publishes the policy's weights, as `Publisher.publish`."""
    train_step = context.train_step
    context.published_at = train_step.num_updates
    with train_step.gathered():
        return context.publisher.publish(catch_up)


@contextmanager
def alone(context: Context) -> Iterator[None]:
    """A block in which the learner computes: on a shared GPU it is its turn, and the server sleeps."""
    if context.config.local.gpus != "colocated":
        yield
        return
    if not context.server.pass_turn(SLEEP_S):
        _log.warning("the inference server did not free the GPU within %g s", SLEEP_S)
    try:
        yield
    finally:
        torch.cuda.empty_cache()  # of what only an update needs
        context.server.pass_turn(0.0)


def enter_phase(context: Context, phase: str) -> None:
    """Enters a phase: the scheduler grants its leases, and the broadcasts name it."""
    context.scheduler.set_phase(phase)
    announce(context, phase)


def announce(context: Context, name: str) -> None:
    """Lets the broadcasts name a part of a phase; the scheduler grants the phase's leases as before."""
    context.report.show(0, 0)
    context.server.set_phase(name)
    _log.info("phase: %s", name)
