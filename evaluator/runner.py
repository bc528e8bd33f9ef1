"""Runs a list of episodes in this process: the worker's slots, with leases from a queue.

    main thread ── Worker.run ──► slot 0 … slot N−1 ── lease, submit ──► EpisodeQueue ──► keep(finished)

Finished episodes are kept in the slot's thread, one at a time. A faulted episode is queued again, up to
`retries` times. The main thread watches: if no episode ends for `patience_s`, the run fails rather than hang,
and while no device is available it says so.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Protocol, runtime_checkable

from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, EnvError
from distrl.core.messages import Lease
from distrl.core.types import (
    NO_PREFIX,
    ChatMessage,
    Completion,
    Fault,
    Prefix,
    Purpose,
    Sampling,
    Spent,
    Task,
    Trajectory,
)
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.statistics import EpisodeResult
from distrl.workers.env_pool import EnvPool, EpisodeEnd, open_env_pool
from distrl.workers.worker import BACKOFF_S, SlotPolicy, Worker

STEP_S = 60.0
"""The longest that an environment may take for one step, in addition to the policy's deadline."""

FIRST_REPORT_S = 15.0
"""How long there may be no device before a line says so; the next follows after twice as long, and so on."""

NOTHING = Spent()

_log = logging.getLogger(__name__)


class EvaluationStopped(DistrlError):
    """The evaluation or collection was interrupted. Finished episodes are kept."""

    exit_code = 130


@dataclass(frozen=True)
class Attempt:
    """A task, and how often it was tried before.

    Attributes:
        task: The task.
        number: Which try, from 0.
        name: The lease's id; by default one made of the other attributes.
        repetition: The seed of the repetition, where the task's own seed does not contain it.
    """

    task: Task
    number: int = 0
    name: str = ""
    repetition: int = 0

    @property
    def lease_id(self) -> str:
        """The id of its lease."""
        repetition = f"{self.repetition}-" if self.repetition else ""
        return self.name or f"evaluate-{repetition}{self.number}-{self.task.id}"[:200]


@dataclass(frozen=True)
class Finished:
    """An attempt that ended, faulted or not. `spent`: the cost of a model behind an endpoint, if one acts."""

    attempt: Attempt
    trajectory: Trajectory
    images: Mapping[str, bytes]
    spent: Spent = NOTHING


@runtime_checkable
class CountsSpending(Protocol):
    """A policy client that counts its calls."""

    def take_spent(self) -> Spent:
        """The spending since the last call of this method."""
        ...


@dataclass(frozen=True)
class Actor:
    """The actor of an episode.

    Attributes:
        policy: Makes the policy client of a slot; called in the slot's thread. None for actors without one.
        temperature, max_new_tokens: How the policy samples.
        expert_noise: With a number, the scripted expert acts, with this share of random actions.
        randomly: Whether actions are random, see `distrl.workers.actors.RandomActor`.
    """

    policy: Callable[[int], SlotPolicy] | None = None
    temperature: float = 0.0
    max_new_tokens: int = 32
    expert_noise: float | None = None
    randomly: bool = False

    def lease(self, attempt: Attempt) -> Lease:
        """The lease of an attempt."""
        if self.expert_noise is not None:
            noise = self.expert_noise
            return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.DEMO, noise=noise)
        sampling = Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)
        return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.EVAL, sampling=sampling)


def run_episodes(
    config: Config,
    attempts: Sequence[Attempt],
    actor: Actor,
    keep: Callable[[Finished], EpisodeResult],
    progress: EvaluationProgress,
    stop: threading.Event,
    output: Path,
    name: str = "evaluate",
    distances: bool = False,
) -> list[EpisodeResult]:
    """Runs an episode of each attempt, in up to `evaluate.slots` environments at a time.

    Args:
        config: The sections env, devices, agent, worker and evaluate are used.
        attempts: What to run, in this order.
        actor: Measured acts.
        keep: Stores an episode, also a faulted one, and returns its line. Called by one thread at a time.
        progress: Shows how many episodes ended.
        stop: Ends the run early when set.
        output: Where the results are kept, for errors.
        name: The worker's name in the records.
        distances: Whether the records contain the expert's distance from the goal on each screen.

    Returns:
        The last result of each attempt, in the order in which they ended.

    Raises:
        EvaluationStopped: `stop` was set.
        DistrlError: An error that retrying does not fix, or no episode ended in time.
        Exception: A bug in an environment, an agent or here.
    """
    if not attempts:
        return []
    num_slots = min(config.evaluate.slots, len(attempts))
    # Evaluations measure ground truth, also if a judge decides in training.
    rewards = config.worker.rewards.model_copy(update={"source": "environment"})
    worker = config.worker.model_copy(update={"slots": num_slots, "barrier": False, "rewards": rewards})
    longest = max(attempt.task.max_steps for attempt in attempts)
    step_s = STEP_S + (config.worker.act_timeout_s if actor.policy is not None else 0.0)
    with contextlib.closing(open_env_pool(config, num_slots)) as envs:
        queue = EpisodeQueue(
            attempts,
            actor,
            keep,
            progress,
            stop,
            output,
            envs,
            num_slots=num_slots,
            is_pool=bool(config.devices.pool),
            retries=config.evaluate.retries,
            patience_s=longest * step_s,
            name=name,
        )
        Worker(
            config.model_copy(update={"worker": worker}),
            queue,
            queue.policy,
            name,
            queue.shutdown,
            envs,
            queue,
            distances,
            actor.randomly,
        ).run()
        return queue.results


class EpisodeQueue:
    """The worker's link to a list of attempts (`distrl.workers.worker.Link` and `Pauses`). Thread-safe.

    Args:
        attempts, actor, keep, progress, stop, output, name: See `run_episodes`.
        envs: Where episodes run.
        num_slots: How many at a time.
        is_pool: Whether slots take turns on the devices of a pool.
        retries: How often a faulted episode is tried again.
        patience_s: How long to wait for an episode to end.
        clock: Monotonic seconds.

    Attributes:
        has_policy: Always true: the policy was found before.
        shutdown: Set when every attempt has ended.
        results: The last result of each attempt that ended.
    """

    has_policy = True

    def __init__(
        self,
        attempts: Sequence[Attempt],
        actor: Actor,
        keep: Callable[[Finished], EpisodeResult],
        progress: EvaluationProgress,
        stop: threading.Event,
        output: Path,
        envs: EnvPool,
        num_slots: int,
        is_pool: bool,
        retries: int,
        patience_s: float,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._actor, self._keep, self._progress, self._name = actor, keep, progress, name
        self._stop, self._output, self._envs = stop, output, envs
        self._is_pool, self._retries = is_pool, retries
        self._patience_s, self._clock = patience_s, clock
        self._lock = threading.RLock()
        self._waiting = deque(attempts)
        self._running: dict[str, Attempt] = {}
        self._num_left = len(attempts)
        self._health = SlotHealth(num_slots)
        self._policies: dict[int, SlotPolicy] = {}
        self._last_end = self._last_device = clock()
        self._report_s = FIRST_REPORT_S
        self.shutdown = threading.Event()
        self.results: list[EpisodeResult] = []

    def policy(self, slot: int) -> SlotPolicy:
        """Makes the policy client of a slot."""
        policy = self._actor.policy(slot) if self._actor.policy is not None else _NoPolicy()
        self._policies[slot] = policy
        return policy

    def lease(self, timeout_s: float) -> Lease | None:
        """The next attempt's; None at once if none waits, so that no idle slot holds a device."""
        with self._lock:
            if not self._waiting or self._stop.is_set():
                return None
            attempt = self._waiting.popleft()
            lease = self._actor.lease(attempt)
            self._running[lease.id] = attempt
            return lease

    def release(self, lease_id: str) -> None:
        """Puts an attempt back."""
        with self._lock:
            self._waiting.appendleft(self._running.pop(lease_id))

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Keeps an episode; one that faulted is tried again."""
        policy = self._policies[trajectory.slot]
        spent = policy.take_spent() if isinstance(policy, CountsSpending) else NOTHING
        with self._lock:
            self._end(Finished(self._running.pop(trajectory.lease_id), trajectory, images, spent))

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Nothing: there are no heartbeats."""

    def check(self) -> None:
        """Watches the run, in the main thread.

        Raises:
            EvaluationStopped: `stop` was set.
            DistrlError: No episode ended in time.
        """
        if self._stop.is_set():
            raise EvaluationStopped(
                f"Interrupted; {self._output} keeps the finished episodes.", "Continue with --resume."
            )
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

    def no_start(self, slot: int, error: EnvError) -> float:
        """A slot's environment did not start. Returns how long the slot pauses.

        This costs attempts a try only if no slot is left that could run them. On a pool, which backs off from
        its devices itself and whose devices the slots share, it costs one attempt a try.
        """
        with self._lock:
            if self._is_pool:
                self._charge(1, slot, error)
                return 0.0
            pause_s, is_hopeless = self._health.no_start(slot, bool(self._running))
            _log.warning(
                "slot %d: its environment does not start: %s Retrying in %g s.", slot, error, pause_s
            )
            self._charge(len(self._waiting) if is_hopeless else 0, slot, error)
            return pause_s

    def ended(self, slot: int, end: EpisodeEnd, device: str) -> float:
        """An episode ended. Returns how long the slot pauses."""
        with self._lock:
            if not end.is_broken:
                self._health.works(slot)
                return 0.0
            return 0.0 if device else self._health.broke(slot, bool(self._running))

    def _charge(self, count: int, slot: int, error: EnvError) -> None:
        """Ends waiting attempts by the fault of an environment that did not start."""
        for _ in range(min(count, len(self._waiting))):
            attempt = self._waiting.popleft()
            trajectory = Trajectory(
                id=uuid.uuid4().hex,
                task=attempt.task,
                purpose=Purpose.EVAL,
                worker=self._name,
                slot=slot,
                fault=Fault(error.fault),
                fault_detail=str(error)[:500],
                started_at=time.time(),
            )
            self._end(Finished(attempt, trajectory, {}))

    def _end(self, finished: Finished) -> None:
        """Keeps an episode, unless the run is over: its files may be closed then."""
        attempt, trajectory = finished.attempt, finished.trajectory
        has_faulted = trajectory.fault is not Fault.NONE
        if self.shutdown.is_set() or (has_faulted and self._stop.is_set()):
            return  # while stopping, environments and servers disappear: that is not a fault
        self._last_end = self._clock()
        result = self._keep(finished)
        is_final = not has_faulted or attempt.number >= self._retries
        self._progress.add(result, is_final)
        if not is_final:
            self._progress.say(f"{attempt.task.id} faulted ({trajectory.fault_detail}); trying again")
            self._waiting.append(replace(attempt, number=attempt.number + 1))
            return
        self.results.append(result)
        self._num_left -= 1
        if not self._num_left:
            self.shutdown.set()


class _State(Enum):
    """The last event of a slot's environment."""

    WORKS = "works"
    BROKE = "broke in an episode"
    NO_START = "did not start"


class SlotHealth:
    """The state of each slot's environment. Its owner locks.

    A slot whose environment breaks at once would take one attempt after another from the slots that work. So
    it pauses after each failure, longer each time.

    Args:
        num_slots: How many there are. Each counts as working until it fails.
    """

    def __init__(self, num_slots: int) -> None:
        self._states = [_State.WORKS] * num_slots
        self._failures = [0] * num_slots

    def works(self, slot: int) -> None:
        """An episode ended without breaking the environment."""
        self._states[slot], self._failures[slot] = _State.WORKS, 0

    def broke(self, slot: int, is_running: bool = False) -> float:
        """The environment broke in an episode; `is_running`: another episode runs now.

        Returns:
            How many seconds the slot should pause.
        """
        return self._fail(slot, _State.BROKE, is_running)

    def no_start(self, slot: int, is_running: bool = False) -> tuple[float, bool]:
        """The environment did not start; `is_running`: an episode runs now.

        Returns:
            How many seconds the slot should pause, and whether the environments of all slots have failed to
            start since this was last the case: then no slot is left that could do the work.
        """
        pause_s = self._fail(slot, _State.NO_START, is_running)
        is_hopeless = not is_running and all(state is _State.NO_START for state in self._states)
        if is_hopeless:
            self._states = [_State.BROKE] * len(self._states)
        return pause_s, is_hopeless

    def _fail(self, slot: int, state: _State, is_running: bool) -> float:
        """The pause leaves work to a slot that works; it is short if there is none."""
        self._states[slot] = state
        self._failures[slot] += 1
        if _State.WORKS not in self._states and not is_running:
            return BACKOFF_S[0]
        return BACKOFF_S[min(self._failures[slot], len(BACKOFF_S)) - 1]


class _NoPolicy:
    """The policy client of actors that need none."""

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """Never called."""
        raise AssertionError("the expert or a random actor used a policy")

    def close(self) -> None:
        """Nothing to close."""
