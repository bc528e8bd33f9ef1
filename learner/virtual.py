"""A learner in virtual time: its own loop, in one thread with simulated workers and inference servers.

    Learner.run ── waits for an episode, makes an update ──► World.advance ──► slots, devices, servers
         ▲                                                        │
         └── Arrivals ◄── commit ◄── VirtualPeers.submit ◄────────┘

Loop, scheduler, replay and training step are those of every run. Time passes where the learner waits for an
episode (`Arrivals.get`) and while it makes an update (`TimedUpdates`); meanwhile the world, which is
`distrl.workers.virtual.World`, plays what happens until then. Cloning, scoring and checkpoints take no time.
A simulation that was stopped is not resumed: it takes minutes, and is repeated.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from distrl.configs.schema import Config
from distrl.core.messages import Lease, WeightInfo
from distrl.core.metrics import MetricsWriter
from distrl.core.policies import weights_io
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Trajectory
from distrl.core.weights import Buffer
from distrl.learner.algorithms.base import Loss
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.build import TaskSets, make_context, make_scheduler
from distrl.learner.context import Context
from distrl.learner.distributed import open_train_step
from distrl.learner.learner import Learner
from distrl.learner.scheduler import TaskScheduler
from distrl.learner.trackers import open_trackers
from distrl.learner.updates import Updates

SECRET = b"virtual"  # signs leases; constant, so that their ids are the same each time
T = TypeVar("T")


class World(Protocol):
    """Simulated workers and servers; see `distrl.workers.virtual.World`."""

    @property
    def now(self) -> float: ...

    def advance(self, seconds: float, until: Callable[[], bool] = ...) -> None: ...

    def load(self, version: int, state: Mapping[str, Any]) -> None: ...

    def metrics(self) -> dict[str, float]: ...


class Arrivals(queue.Queue[Trajectory]):
    """Trajectories in the order of their arrival. A wait for one lets virtual time pass.

    They are committed when the learner takes one, all that have arrived by then in one transaction.

    Attributes:
        waited_s: Virtual seconds that the learner waited.
        stored_bytes: What was added to the store, also what was deleted since.
    """

    world: World  # set once it is made, which needs the scheduler and so these

    def __init__(self, store: TrajectoryStore) -> None:
        super().__init__()
        self.waited_s, self.stored_bytes = 0.0, 0
        self._store, self._uncommitted = store, list[tuple[Trajectory, dict[str, bytes]]]()

    def arrive(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        self._uncommitted.append((trajectory, dict(images)))
        self.put(trajectory)

    def get(self, block: bool = True, timeout: float | None = None) -> Trajectory:
        if block and timeout and self.empty():
            start = self.world.now
            self.world.advance(timeout, lambda: not self.empty())
            self.waited_s += self.world.now - start
        if self._uncommitted:
            before = self._store.size_bytes
            self._store.add_many(self._uncommitted)
            self.stored_bytes += self._store.size_bytes - before
            self._uncommitted.clear()
        return super().get(block=False)


class TimedUpdates(Updates):
    """Updates that take `simulate.update_s`; `staleness` has that of every trajectory drawn, in versions."""

    def __init__(self, context: Context, world: World) -> None:
        super().__init__(context)
        self._world, self._update_s = world, context.config.simulate.update_s
        self.staleness: list[int] = []

    def _train(self, batch: TrajectoryBatch) -> Loss | None:
        self.staleness += (self._context.publisher.version - batch.oldest_version).tolist()
        return self._timed(super()._train(batch))

    def fit_critic(self) -> float | None:
        return self._timed(super().fit_critic())

    def _timed(self, result: T) -> T:
        self._world.advance(self._update_s)
        return result


class VirtualPeers:
    """The learner's workers and servers (`distrl.learner.context.Network`), and the source of their leases.

    Attributes:
        published_bytes: The sum of the sizes of all versions of the weights.
        on_phase: Called with the name of each phase that begins.
        show: Called with the newest metrics.
    """

    def __init__(self, scheduler: TaskScheduler, arrivals: Arrivals) -> None:
        self._scheduler, self._arrivals, self.published_bytes = scheduler, arrivals, 0
        self.on_phase: Callable[[str], None] = lambda phase: None
        self.show: Callable[[Mapping[str, float]], None] = lambda metrics: None

    def lease(self, worker: str) -> Lease | None:
        return next(iter(self._scheduler.grant(worker, 1)), None)

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        self._scheduler.finish(trajectory)
        self._arrivals.arrive(trajectory, images)

    def check(self) -> None:
        """Errors of slots end `World.advance`."""

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        self.published_bytes += len(data)
        self._arrivals.world.load(info.version, weights_io.from_bytes(bytes(data)))

    def set_phase(self, phase: str) -> None:
        self.on_phase(phase)

    def set_metrics(self, metrics: Mapping[str, float]) -> None:
        self.show(metrics)

    def peer_metrics(self) -> dict[str, float]:
        return self._arrivals.world.metrics()

    def takes_checkpoint(self) -> bool:
        return False

    def pass_turn(self, wait_s: float) -> bool:
        return True

    def shutdown(self, reason: str) -> None:
        """Nothing: the world ends with its block."""


class Counts(NamedTuple):
    """What a learner had waited for, stored and published by a moment, since its start."""

    waited_s: float
    stored_bytes: int
    published_bytes: int


class VirtualLearner(NamedTuple):
    """A learner, and the objects that record how it spends its time."""

    learner: Learner
    peers: VirtualPeers
    arrivals: Arrivals
    updates: TimedUpdates

    def counts(self) -> Counts:
        return Counts(self.arrivals.waited_s, self.arrivals.stored_bytes, self.peers.published_bytes)


@contextlib.contextmanager
def open_virtual_learner(
    config: Config,
    run: RunDir,
    tasks: TaskSets,
    stop: Event,
    make_world: Callable[[VirtualPeers], World],
) -> Iterator[VirtualLearner]:
    """As `open_learner`, in a new run directory; `make_world` makes the world that gets its leases."""
    torch.set_num_threads(config.learner.threads)
    torch.manual_seed(config.seed)
    with contextlib.ExitStack() as stack:
        train_step = stack.enter_context(open_train_step(config, tasks.words))
        store = TrajectoryStore(run.store)
        stack.callback(store.close)
        arrivals = Arrivals(store)

        def now() -> float:
            return arrivals.world.now

        scheduler = make_scheduler(config, tasks, "virtual", SECRET, now)
        peers = VirtualPeers(scheduler, arrivals)
        world = arrivals.world = make_world(peers)
        metrics = MetricsWriter(run.metrics, open_trackers(config, run), now)
        stack.callback(metrics.close)
        context = make_context(config, run, train_step, store, scheduler, peers, arrivals, metrics, now)
        updates = TimedUpdates(context, world)
        yield VirtualLearner(Learner(context, stop, updates), peers, arrivals, updates)
