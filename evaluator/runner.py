"""Runs a list of episodes in this process: the worker's slots, with leases from a queue.

    main thread ── Worker.run ──► slot 0 … slot N−1 ── lease, submit ──► EpisodeQueue ──► keep(episode)

Finished episodes are kept in the slot's thread, one at a time. A faulted episode is queued again, up to
`retries` times. The main thread watches: if no environment starts, or no episode ends for `patience_s`, the
run fails rather than hang, and while no device is available it says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from distrl.configs.policy import PretrainedConfig
from distrl.configs.schema import Config, WorkerConfig
from distrl.configs.simulate import LatencyConfig, SimulateConfig
from distrl.core.errors import DistrlError, EnvError, NothingCameIn
from distrl.core.messages import Lease
from distrl.core.types import Fault, Purpose, Sampling, Spent, Task, Trajectory
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.statistics import EpisodeResult
from distrl.workers.env_pool import EnvPool, EpisodeEnd, open_env_pool
from distrl.workers.episode import PolicyClient
from distrl.workers.virtual import FAULT_S, World, as_simulated
from distrl.workers.worker import BackOff, Worker

if TYPE_CHECKING:
    from distrl.workers.inference.engine import HFEngine

SLOTS = 64  # of `run_instantly`
INSTANT = SimulateConfig(
    latency=LatencyConfig(median_s=0.0), batch_s=0.0, request_s=0.0, update_s=0.0, publish_s=0.0
)
STEP_S = 60.0
"""The longest that an environment may take for one step, in addition to the policy's deadline."""

MAX_STARTS = 3
"""How often each slot's environment may fail to start in a row before the run fails."""

FIRST_REPORT_S = 15.0
"""How long there may be no device before a line says so; the next follows after twice as long, and so on."""

RESUME = "Continue with --resume."


class EvaluationStopped(DistrlError):
    """The evaluation or collection was interrupted. Finished episodes are kept."""

    exit_code = 130


@dataclass(frozen=True)
class Attempt:
    """A task, and how often it was tried before; `name` is the lease's id, by default made of the others.

    `first` is the number of the session's first attempt. `repetition` is the seed of the repetition, where
    the task's own seed does not contain it.
    """

    task: Task
    number: int = 0
    name: str = ""
    repetition: int = 0
    first: int = 0

    @property
    def lease_id(self) -> str:
        repetition = f"{self.repetition}-" if self.repetition else ""
        return self.name or f"evaluate-{repetition}{self.number}-{self.task.id}"


Keep = Callable[[Attempt, Trajectory, Mapping[str, bytes], Spent], EpisodeResult]
"""Stores an episode, faulted or not, with its screenshots and the cost of a model behind an endpoint."""


@dataclass(frozen=True)
class Actor:
    """The actor of an episode.

    Attributes:
        policy: Makes the policy client of a slot; called in the slot's thread. None for actors without one.
        expert_noise: With a number, the scripted expert acts, with this share of random actions.
        randomly: Whether actions are random, see `distrl.workers.actors.RandomActor`.
    """

    policy: Callable[[int], PolicyClient] | None = None
    temperature: float = 0.0
    max_new_tokens: int = 32
    expert_noise: float | None = None
    randomly: bool = False

    def lease(self, attempt: Attempt) -> Lease:
        if self.expert_noise is not None:
            noise = self.expert_noise
            return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.DEMO, noise=noise)
        sampling = Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)
        return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.EVAL, sampling=sampling)


def run_episodes(
    config: Config,
    attempts: Sequence[Attempt],
    actor: Actor,
    keep: Keep,
    progress: EvaluationProgress,
    stop: threading.Event,
    output: Path,
    name: str = "evaluate",
    distances: bool = False,
) -> list[EpisodeResult]:
    """Runs an episode of each attempt, in up to `evaluate.slots` environments at a time.

    Args:
        keep: Called by one thread at a time.
        output: Where the results are kept, for errors.
        name: The worker's name in the records.
        distances: Whether the records contain the expert's distance from the goal on each screen.

    Returns:
        The last result of each attempt, in the order in which they ended.

    Raises:
        EvaluationStopped: `stop` was set.
        Exception: A bug in an environment, an agent or here.
    """
    if not attempts:
        return []
    slots = min(config.evaluate.slots, len(attempts))
    config = config.model_copy(update={"worker": _measuring(config, slots)})
    with contextlib.closing(open_env_pool(config, slots)) as envs:
        queue = EpisodeQueue(config, attempts, actor, keep, progress, stop, output, envs)
        stopped = queue.shutdown
        Worker(
            config, queue, queue.policy, name, stopped, envs, queue.starts, distances, actor.randomly
        ).run()
        return queue.results


def _measuring(config: Config, slots: int) -> WorkerConfig:
    """The worker of an evaluation: it measures ground truth, also if a judge decides in training, and draws
    screens for people and agents to look at, unless they can be drawn later and the agent needs none."""
    worker, agent = config.worker, config.agent
    reads_elements = agent.kind == "elements" and agent.import_path is None
    update: dict[str, Any] = {"slots": slots, "barrier": False}
    update["rewards"] = worker.rewards.model_copy(update={"source": "environment"})
    if worker.screenshot_format == "none" and not (_is_simulated_phone(config) and reads_elements):
        update["screenshot_format"] = "jpeg"
    return worker.model_copy(update=update)


def can_run_instantly(config: Config) -> bool:
    """Whether nothing but a simulation takes time: simulated phones, and an embedded policy."""
    return _is_simulated_phone(config) and not isinstance(config.policy, PretrainedConfig)


def _is_simulated_phone(config: Config) -> bool:
    return config.env.kind == "phone" and config.env.import_path is None and not config.devices.pool


def run_instantly(
    engine: HFEngine,
    config: Config,
    attempts: Sequence[Attempt],
    actor: Actor,
    keep: Keep,
    progress: EvaluationProgress,
    stop: threading.Event,
    output: Path,
    name: str = "evaluate",
    distances: bool = False,
) -> list[EpisodeResult]:
    """As `run_episodes`, in virtual time in which nothing takes time: the same results each time.

    Episodes run `SLOTS` at a time, and `engine` acts.
    """
    update = {
        "worker": _measuring(config, min(SLOTS, len(attempts))),
        "local": config.local.model_copy(update={"workers": 1}),
        "simulate": INSTANT,
    }
    queue = _Attempts(attempts, actor, keep, progress, config.evaluate.retries)
    config = as_simulated(config).model_copy(update=update)
    with contextlib.closing(World(config, engine, queue, distances)) as world:
        while not queue.is_done:
            if stop.is_set():
                raise EvaluationStopped(f"Interrupted; {output} keeps the finished episodes.", RESUME)
            world.advance(FAULT_S, until=lambda: stop.is_set() or queue.is_done)
    return queue.results


class _Attempts:
    """The source of a world's leases: a list of attempts. One that faults is queued again."""

    def __init__(
        self,
        attempts: Sequence[Attempt],
        actor: Actor,
        keep: Keep,
        progress: EvaluationProgress,
        retries: int,
    ) -> None:
        self._waiting, self._actor, self._keep = deque(attempts), actor, keep
        self._progress, self._retries = progress, retries
        self._running: dict[str, Attempt] = {}
        self._num = len(attempts)
        self.results: list[EpisodeResult] = []

    @property
    def is_done(self) -> bool:
        return len(self.results) == self._num

    def lease(self, worker: str) -> Lease | None:
        if not self._waiting:
            return None
        attempt = self._waiting.popleft()
        lease = self._actor.lease(attempt)
        self._running[lease.id] = attempt
        return lease

    def release(self, lease_id: str) -> None:
        self._waiting.appendleft(self._running.pop(lease_id))

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes], spent: Spent | None = None) -> None:
        attempt = self._running.pop(trajectory.lease_id)
        result = self._keep(attempt, trajectory, images, spent or Spent())
        is_final = trajectory.fault is Fault.NONE or attempt.number - attempt.first >= self._retries
        self._progress.add(result, is_final)
        if is_final:
            self.results.append(result)
        else:
            self._progress.say(f"{attempt.task.id} faulted ({trajectory.fault_detail}); trying again")
            self._waiting.append(replace(attempt, number=attempt.number + 1))


class Starts(BackOff):
    """The pauses of slots. It counts how often each slot's environment did not start in a row.

    A pool of devices is not counted: it repairs its devices, and backs off from them itself.
    """

    def __init__(self, num_slots: int, is_pool: bool) -> None:
        super().__init__()
        self._counts, self._is_pool, self._error = [0] * num_slots, is_pool, ""

    def no_start(self, slot: int, error: EnvError) -> float:
        """See `BackOff`."""
        if self._is_pool:
            return 0.0
        self._counts[slot], self._error = self._counts[slot] + 1, str(error)
        return super().no_start(slot, error)

    def ended(self, slot: int, end: EpisodeEnd, device: str) -> float:
        """See `BackOff`."""
        self._counts[slot] = 0
        return super().ended(slot, end, device)

    def check(self) -> None:
        """Raises NothingCameIn if no slot's environment starts."""
        if min(self._counts) >= MAX_STARTS:
            raise NothingCameIn(
                f"No environment starts: {self._error}", "Fix the cause and continue with --resume."
            )


class EpisodeQueue:
    """The worker's link to a list of attempts (`distrl.workers.worker.Link`). Thread-safe.

    `shutdown` is set when every attempt has ended.
    """

    has_policy = True

    def __init__(
        self,
        config: Config,
        attempts: Sequence[Attempt],
        actor: Actor,
        keep: Keep,
        progress: EvaluationProgress,
        stop: threading.Event,
        output: Path,
        envs: EnvPool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempts = _Attempts(attempts, actor, keep, progress, config.evaluate.retries)
        self.results = self._attempts.results
        self._actor, self._progress = actor, progress
        self._stop, self._output, self._envs = stop, output, envs
        self.starts = Starts(config.worker.slots, bool(config.devices.pool))
        step_s = STEP_S + (config.worker.act_timeout_s if actor.policy is not None else 0.0)
        self._patience_s = max(attempt.task.max_steps for attempt in attempts) * step_s
        self._clock = clock
        self._lock = threading.RLock()
        self._policies: dict[int, PolicyClient] = {}
        self._last_end = self._last_device = clock()
        self._report_s = FIRST_REPORT_S
        self.shutdown = threading.Event()

    def policy(self, slot: int) -> PolicyClient:
        made: Any = SimpleNamespace(close=lambda: None)  # experts and random actors need none
        if self._actor.policy is not None:
            made = self._actor.policy(slot)
        self._policies[slot] = made
        return self._policies[slot]

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        """The next attempt's; None at once if none waits, so that no idle slot holds a device."""
        with self._lock:
            return None if self._stop.is_set() else self._attempts.lease("")

    def release(self, lease_id: str) -> None:
        """Puts an attempt back."""
        with self._lock:
            self._attempts.release(lease_id)

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Keeps an episode, unless the run is over: its files may be closed then."""
        # Only clients of a model behind an endpoint count what they spend.
        take_spent = getattr(self._policies[trajectory.slot], "take_spent", None)
        spent = take_spent() if take_spent is not None else Spent()
        with self._lock:
            has_faulted = trajectory.fault is not Fault.NONE
            if self.shutdown.is_set() or (has_faulted and self._stop.is_set()):
                return  # while stopping, environments and servers disappear: that is not a fault
            self._last_end = self._clock()
            self._attempts.submit(trajectory, images, spent)
            if self._attempts.is_done:
                self.shutdown.set()

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Nothing: there are no heartbeats."""

    def check(self) -> None:
        """Watches the run, in the main thread.

        Raises:
            EvaluationStopped: `stop` was set.
        """
        self.starts.check()
        if self._stop.is_set():
            raise EvaluationStopped(f"Interrupted; {self._output} keeps the finished episodes.", RESUME)
        now, line, stats = self._clock(), self._envs.line(), self._envs.stats()
        if now - self._last_end >= self._patience_s:
            raise DistrlError(
                f"No episode ended for {self._patience_s:g} s{f'; devices: {line}' if line else ''}.",
                f"Check the {'devices' if line else 'environments'}; continue with --resume.",
            )
        if not stats or stats["devices_busy"] or stats["devices_ready"]:
            self._last_device, self._report_s = now, FIRST_REPORT_S
        elif now - self._last_device >= self._report_s:
            self._report_s *= 2.0
            self._progress.say(f"no device available for {now - self._last_device:.0f} s: {line}")
