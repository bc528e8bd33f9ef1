"""Episodes in virtual time: slots, devices and inference servers as events of one queue; nothing waits.

    caller ── World.advance ──► event ──► slot thread: EpisodeRunner ── act ──► a server's queue ──► event …
                  ▲                            │
                  └───────── the baton ────────┘

An episode is the worker's own code, which blocks, so each slot is a thread. But only one thread runs at a
time: `World` hands the baton to a slot, and gets it back where a real slot would wait. So times and seeds
decide the order of all events, and the same run gives the same episodes.

What a device takes for an action is added to its slot's clock, and only the next request to the policy waits
for it. That request is therefore known before it arrives. When a server runs a request, the policy answers
all those in one pass that arrive before other weights can be there. An answer is always that of the weights
that the server has when it starts a request: an answer of older weights is computed again.

Left out: the network, the servers' preference for some workers (all share one queue), leases that expire.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distrl.configs.schema import Config, HfConfig
from distrl.configs.simulate import LatencyConfig
from distrl.core.messages import Lease
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Fault, Prefix, Purpose, Sampling, Trajectory
from distrl.core.user_errors import read_fields
from distrl.workers.agents import build_agent
from distrl.workers.env_pool import close_env
from distrl.workers.envs import build_env
from distrl.workers.envs.phone import Latency
from distrl.workers.episode import Clock, EpisodeRunner

if TYPE_CHECKING:
    from distrl.workers.inference.engine import HFEngine, Prepared

LEASE_S = 0.25  # from one request for a lease to the next
FAULT_S = 1.0  # pause of a slot after a fault
PASS = 64  # requests in a pass of the policy


class Source(Protocol):
    """Where leases come from and trajectories go."""

    def lease(self, worker: str) -> Lease | None: ...

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None: ...


class _Closed(BaseException):
    """Ends the thread of a slot."""


@dataclass(eq=False)
class _Request:
    slot: _Slot
    prepared: Prepared
    arrives_at: float
    version: int | None = None  # the weights of `answer`
    answer: Completion | Exception | None = None


class Moment(NamedTuple):
    """The counts of a world at a time."""

    at: float
    totals: Mapping[str, float]
    num_waits: int


class World:
    """The slots, devices and servers of a configuration, see `as_simulated`; `now` is the time in seconds.

    Args:
        distances: Whether observations record the expert's distance from the goal.
    """

    def __init__(self, config: Config, engine: HFEngine, source: Source, distances: bool = False) -> None:
        self.config, self.settings, self.engine, self.source = config, config.simulate, engine, source
        self.now, self.is_closed, self.distances = 0.0, False, distances
        self.agent = build_agent(config.agent)
        self.latency = Latency(kind="lognormal", **latency_of(config).model_dump())
        self.num_servers = max(1, config.num_servers)
        self._batch, self._window_s = config.inference.num_rows, 0.0
        if isinstance(config.inference.engine, HfConfig):
            self._window_s = config.inference.engine.max_wait_ms / 1000.0
        self._baton = threading.Lock()
        self._baton.acquire()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._horizon = self._swap_at = math.inf  # no other weights before these
        self._coming: dict[_Slot, _Request] = {}  # not yet started
        self._queue: deque[_Request] = deque()
        self._free = list(range(self.num_servers))
        self._idle: deque[_Slot] = deque()
        self._arrived: dict[str, list[_Slot]] = {}  # at the workers' barriers
        self.error: BaseException | None = None
        self.slots = [
            _Slot(self, f"worker-{worker}", slot)
            for worker in range(max(1, config.local.workers))
            for slot in range(config.worker.slots)
        ]
        for one in self.slots:
            self.at(0.0, one.resume)
        names = "episodes imagined actions batches requests passes computed idle_s served_s"
        self._totals = dict.fromkeys(names.split(), 0.0)
        self._waits_s: list[float] = []
        self._last = self.moment()

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        """Runs `event` when it is `time_s`, after what was planned for that time before."""
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def advance(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass, at most until a condition holds. Raises what ended a slot."""
        end = self.now + seconds
        self._horizon = end + self.settings.publish_s
        while not until():
            if not self._events or self._events[0][0] > end:
                self.now = end
                return
            self.now, _, event = heapq.heappop(self._events)
            event()
            if self.error is not None:
                raise self.error

    def load(self, version: int, state: Mapping[str, Any]) -> None:
        """New weights, which servers have after `publish_s`."""
        self._swap_at = min(self._swap_at, self.now + self.settings.publish_s)
        self.at(self.now + self.settings.publish_s, partial(self._swap, version, dict(state)))

    def moment(self) -> Moment:
        """The counts now."""
        idle_s = sum(self.now - slot.idle_since for slot in self.slots if slot.idle_since is not None)
        totals = {**self._totals, "idle_s": self._totals["idle_s"] + idle_s}
        return Moment(self.now, totals, len(self._waits_s))

    def since(self, start: Moment) -> dict[str, float]:
        """Means from `start` to now: rates, shares, and waits of requests in the queue."""
        end = self.moment()
        seconds = end.at - start.at
        if seconds <= 0.0:
            return {}
        rates = {name: (end.totals[name] - start.totals[name]) / seconds for name in end.totals}
        waits_s = sorted(self._waits_s[start.num_waits :]) or [0.0]
        return {
            "workers/episodes_per_s": rates["episodes"],
            "workers/actions_per_s": rates["actions"],
            "workers/imagined_per_s": rates["imagined"],
            "workers/idle_share": rates["idle_s"] / len(self.slots),
            "inference/requests_per_s": rates["requests"],
            "inference/batches_per_s": rates["batches"],
            "inference/busy_share": rates["served_s"] / self.num_servers,
            "inference/queue_wait_p50_ms": 1000.0 * waits_s[len(waits_s) // 2],
            "inference/queue_wait_p99_ms": 1000.0 * waits_s[len(waits_s) * 99 // 100],
        }

    def metrics(self) -> dict[str, float]:
        """Of the time since the last call, as the metrics of peers; see docs/operations.md."""
        found, self._last = self.since(self._last), self.moment()
        alive = {"workers/alive": self.config.local.workers, "inference/alive": self.num_servers}
        return {**{name: float(count) for name, count in alive.items()}, **found}

    def close(self) -> None:
        """Ends the slots' threads and closes their environments."""
        self.is_closed = True
        for slot in self.slots:
            slot.close()

    def _swap(self, version: int, state: dict[str, Any]) -> None:
        self._swap_at = math.inf
        self.engine.load(version, state)
        self._serve()

    def count(self, **more: float) -> None:
        for name, amount in more.items():
            self._totals[name] += amount

    # ---- servers ----

    def request(self, slot: _Slot, prepared: Prepared, arrives_at: float) -> None:
        """`slot` is resumed with the answer."""
        request = self._coming[slot] = _Request(slot, prepared, arrives_at)
        self.at(arrives_at, partial(self._arrive, request))

    def _arrive(self, request: _Request) -> None:
        self._queue.append(request)
        self._serve()

    def _serve(self) -> None:
        """Starts the batches that are due (AcceRL eq. 1) where a server is free; none before weights came."""
        while self._free and self._queue and self.engine.version >= 0:
            due_at = self._queue[0].arrives_at + self._window_s
            if len(self._queue) < self._batch and self.now < due_at:
                self.at(due_at, self._serve)
                return
            batch = [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]
            self._answer(batch)
            took = self.settings.batch_s + self.settings.request_s * len(batch)
            server = self._free.pop()
            self.count(batches=1, requests=len(batch), served_s=took)
            self._waits_s += [self.now - request.arrives_at for request in batch]
            place = {"server": f"server-{server}", "batch": next(self._numbers)}
            for request in batch:
                del self._coming[request.slot]
                if isinstance(request.answer, Completion):
                    timed = {"queue_s": self.now - request.arrives_at, "run_s": took}
                    request.answer = request.answer.model_copy(update={**timed, **place})
            self.at(self.now + took, partial(self._done, batch, server))

    def _done(self, batch: Sequence[_Request], server: int) -> None:
        self._free.append(server)
        for request in batch:
            request.slot.resume(request.answer)
        self._serve()

    def _answer(self, batch: Sequence[_Request]) -> None:
        """Answers those of `batch` that have no answer of the present weights, and others with them."""
        version = self.engine.version
        missing = [request for request in batch if request.version != version]
        if not missing:
            return
        last = min(self._horizon, self._swap_at)
        ahead = [r for r in self._coming.values() if r.version != version and r.arrives_at <= last]
        ahead = [r for r in sorted(ahead, key=lambda r: r.arrives_at) if r not in batch]
        requests = [*missing, *ahead[: max(0, PASS - len(missing))]]

        def done(index: int, answer: Completion | Exception) -> None:
            requests[index].version, requests[index].answer = version, answer

        self.engine.submit([request.prepared for request in requests], done)
        self.engine.check()
        self.count(passes=1, computed=len(requests))

    # ---- leases ----

    def lease(self, slot: _Slot) -> Lease | None:
        """A lease at once, or None: `slot` is then resumed with one."""
        lease = self.source.lease(slot.worker)
        if lease is None:
            self._idle.append(slot)
            if len(self._idle) == 1:
                self.at(self.now + LEASE_S, self._grant)
        return lease

    def _grant(self) -> None:
        """Leases for idle slots, the longest idle first."""
        for _ in range(len(self._idle)):
            lease = self.source.lease(self._idle[0].worker)
            if lease is None:
                break
            self._idle.popleft().resume(lease)
        if self._idle:
            self.at(self.now + LEASE_S, self._grant)

    def is_last_at_barrier(self, slot: _Slot) -> bool:
        """Whether all other slots of its worker wait; they are then resumed, else it has to wait itself."""
        waiting = self._arrived.setdefault(slot.worker, [])
        if len(waiting) + 1 < self.config.worker.slots:
            waiting.append(slot)
            return False
        for other in self._arrived.pop(slot.worker):
            self.at(self.now, other.resume)
        return True


class _Slot(Clock):
    """A slot of a worker: its thread, its device, its clock, and its client of the policy."""

    def __init__(self, world: World, worker: str, index: int) -> None:
        self._world, self.worker, self._index = world, worker, index
        self._rng = random.Random(f"{world.config.seed}/{worker}/{index}")
        settings = world.settings
        self._factor = math.exp(settings.slot_sigma * self._rng.gauss(0.0, 1.0))
        if self._rng.random() < settings.stragglers:
            self._factor *= settings.straggler_factor
        self._ahead_s = 0.0  # what its device takes for what it has been told to do
        self._thread: threading.Thread | None = None
        self._go = threading.Lock()
        self._go.acquire()
        self._value: Any = None
        self.idle_since: float | None = None

    # ---- the world's side ----

    def resume(self, value: Any = None) -> None:
        """Lets it run until it waits again; `value` is what it waited for."""
        self._value = value
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"{self.worker}/{self._index}", daemon=True
            )
            self._thread.start()
        else:
            self._go.release()
        self._world._baton.acquire()

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self.resume()
            self._thread.join()

    # ---- its own side ----

    def _run(self) -> None:
        try:
            self._work()
        except _Closed:
            pass
        except BaseException as error:  # noqa: BLE001 - `World.advance` raises it
            self._world.error = error
        finally:
            self._world._baton.release()

    def _pause(self) -> Any:
        """Waits until it is resumed. Returns what it waited for."""
        self._world._baton.release()
        self._go.acquire()
        if self._world.is_closed:
            raise _Closed
        return self._value

    def _rest(self) -> Any:
        """As `_pause`, with nothing to do."""
        self.idle_since = self._world.now
        value = self._pause()
        self._world.count(idle_s=self._world.now - self.idle_since)
        self.idle_since = None
        return value

    def _sleep(self, seconds: float) -> None:
        self._world.at(self._world.now + seconds, self.resume)
        self._pause()

    def _work(self) -> None:
        world, config, env = self._world, self._world.config, None
        try:
            while True:
                lease = world.lease(self) or self._rest()
                env = env or build_env(config.env)
                runner = EpisodeRunner(
                    env, world.agent, self, config.worker, self.worker, self._index, clock=self,
                    distances=world.distances,
                )  # fmt: skip
                episode = runner.run(lease)
                assert episode is not None  # nothing stops it
                behind, self._ahead_s = self._ahead_s, 0.0
                self._sleep(behind)
                trajectory, images = episode
                name = hashlib.sha256(lease.id.encode()).hexdigest()[:32]
                world.count(**{"episodes" if lease.branch is None else "imagined": 1})
                world.source.submit(trajectory.model_copy(update={"id": name}), images)
                if trajectory.fault is not Fault.NONE:
                    close_env(env)
                    env = None
                    self._sleep(FAULT_S)
                is_training = lease.purpose not in (Purpose.DEMO, Purpose.IMAGINED)
                waits = config.worker.barrier and is_training
                if waits and not world.is_last_at_barrier(self):
                    self._rest()
        finally:
            close_env(env)

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """See `PolicyClient`; raises what the engine raises."""
        prepared = self._world.engine.prepare(messages, images, sampling, prefix)
        self._world.request(self, prepared, self.seconds())
        self._ahead_s = 0.0
        answer = self._pause()
        if isinstance(answer, Exception):
            raise answer
        completion: Completion = answer
        return completion

    def unix(self) -> float:
        return self.seconds()

    def seconds(self) -> float:
        return self._world.now + self._ahead_s

    def started(self) -> None:
        self._ahead_s += self._world.settings.reset_s * self._factor

    def acted(self, app: str) -> None:
        self._world.count(actions=1)
        factor = self._factor * self._world.settings.app_factors.get(app, 1.0)
        self._ahead_s += self._world.latency.draw(self._rng) * factor


def as_simulated(config: Config) -> Config:
    """The configuration as a simulation runs it: nothing waits for a device."""
    update = {
        "env": config.env.timeless,
        "simulate": config.simulate.model_copy(update={"latency": latency_of(config)}),
    }
    return config.model_copy(update=update)


def latency_of(config: Config) -> LatencyConfig:
    """How long actions take in virtual time."""
    if config.simulate.latency is not None:
        return config.simulate.latency
    if "latency" not in config.env.options:
        return LatencyConfig()
    given = read_fields(Latency, config.env.options["latency"], "env.options.latency")
    is_none = given.kind == "none"
    return LatencyConfig(median_s=0.0 if is_none else given.median_s, sigma=given.sigma, max_s=given.max_s)
