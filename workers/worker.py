"""The worker: slots, threads that run episodes in their own environments or on devices of a pool.

    main thread ── watches ──► slot 0 … slot N−1: environment ─► lease ─► episode ─► submit ─► …
                                  │        └──► policy client ──► inference servers
                                  ├──► environments: one per slot, or a pool of devices with a keeper thread
                                  └──► link: leases in, trajectories out

The link is the learner's (`distrl.workers.client.LearnerLink`) or a list of episodes in this process
(`distrl.evaluator.runner.EpisodeQueue`). Slots never wait for each other, unless `worker.barrier` is set. A
slot takes an environment before a lease, so that no lease waits for a device.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from distrl.configs.schema import Config
from distrl.core.errors import EnvError
from distrl.core.messages import Lease
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.workers.agents import build_agent
from distrl.workers.board import SlotBoard
from distrl.workers.env_pool import Entry, EnvPool, EpisodeEnd
from distrl.workers.episode import EpisodeRunner, PolicyClient

ENV_WAIT_S = 1.0
LEASE_WAIT_S = 1.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses of a slot after its first, second, … failure in a row."""

IDLE_S = 0.05  # pause between two requests for a lease
NO_POLICY_S = 60.0  # a lease that needs a policy is released when no inference server appears for this long
WATCH_S = 0.25
REPORT_S = 10.0
STOP_S = 3.0  # how long slots have to leave their present step when the worker stops
_log = logging.getLogger(__name__)


class Link(Protocol):
    """Where leases come from and trajectories go."""

    shutdown: threading.Event

    @property
    def has_policy(self) -> bool:
        """Whether an inference server is available."""

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        """A lease, of a slot if it is given; None if none came in time."""

    def release(self, lease_id: str) -> None:
        """Returns a lease without a trajectory; it may be granted again."""

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Takes over a finished trajectory."""

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Sets the numbers that heartbeats carry."""

    def check(self) -> None:
        """Raises the error that ended the link, if any. The main thread calls it every `WATCH_S` seconds."""


class Worker:
    """Runs episodes in up to `config.worker.slots` environments until it is stopped or the run is over.

    `policy` makes the policy client of a slot, in the slot's thread. Without `envs`, which the caller closes,
    each slot makes an environment. `board` shows people what the slots do.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        policy: Callable[[int], PolicyClient],
        name: str,
        stop: threading.Event | None = None,
        envs: EnvPool | None = None,
        pauses: BackOff | None = None,
        distances: bool = False,
        randomly: bool = False,
        board: SlotBoard | None = None,
    ) -> None:
        self._board = board or SlotBoard(name)
        self._config, self._link, self._policy, self._name = config, link, policy, name
        self._stop = stop or threading.Event()
        self._agent = build_agent(config.agent)
        self._tally = Tally()
        self._errors: list[BaseException] = []
        slots = config.worker.slots
        self._envs = envs or EnvPool(config.env, slots)
        is_timeless = config.env == config.env.timeless
        self._imagined = self._envs if is_timeless else EnvPool(config.env.timeless, slots)
        self._board.devices = self._envs.devices
        self._pauses = pauses or BackOff()
        self._distances, self._randomly = distances, randomly
        self._barrier = threading.Barrier(slots) if config.worker.barrier else None
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Works until `stop` is set or the learner ends the run; then leaves within `STOP_S`.

        Episodes that are not over by then are abandoned. A slot that is still inside a step of an environment
        is left behind as a daemon thread, see `is_clear`. Raises what retrying does not fix.
        """
        self._grow()
        _log.info("%s starts with %d slots", self._name, len(self._threads))
        try:
            self._watch()
        finally:
            self._stop.set()
            if self._barrier is not None:
                self._barrier.abort()
            self._join()
        if self._errors:
            raise self._errors[0]

    @property
    def is_clear(self) -> bool:
        """Whether all slots have left, so that their resources can be closed."""
        return not any(thread.is_alive() for thread in self._threads)

    def stats(self) -> dict[str, float]:
        return {**self._tally.counts, **self._envs.stats()}

    def _line(self) -> str:
        devices = self._envs.line()
        return f"{self._tally}; devices: {devices}" if devices else f"{self._tally}"

    def _grow(self) -> None:
        """Starts slots up to the number of environments that can be used now."""
        while len(self._threads) < min(self._config.worker.slots, self._envs.capacity):
            index = len(self._threads)
            thread = threading.Thread(target=self._guard, args=(index,), name=f"slot-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _watch(self) -> None:
        """Returns when the work is over: stopped, run ended, or a slot failed for good."""
        next_report = time.monotonic() + REPORT_S
        while not self._stop.wait(WATCH_S):
            self._link.check()
            self._envs.check()
            self._link.set_stats(self.stats())
            self._grow()
            if self._errors or self._link.shutdown.is_set():
                return
            if time.monotonic() >= next_report:
                next_report += REPORT_S
                _log.info("%s", self._line())

    def _join(self) -> None:
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        busy = [thread.name for thread in self._threads if thread.is_alive()]
        if busy:
            _log.warning("abandoned while in a step: %s", ", ".join(busy))
        _log.info("%s stopped; %s", self._name, self._line())

    # ---- slot threads ----

    def _guard(self, index: int) -> None:
        """A slot that fails for good stops the worker, so that the failure is seen."""
        try:
            self._work(index)
        except threading.BrokenBarrierError:
            return  # the worker stops
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._errors.append(error)

    def _work(self, index: int) -> None:
        policy = self._policy(index)
        try:
            while not self._is_over():
                self._board.sign(index).waits()
                entry = self._enter(index)
                if entry is None:
                    continue
                lease = self._link.lease(LEASE_WAIT_S, index)
                if lease is None or not self._has_policy(index, lease):
                    self._envs.release(entry)
                    if lease is not None:
                        self._link.release(lease.id)
                    self._stop.wait(IDLE_S)
                    continue
                self._run_episode(entry, policy, lease)
                # Demonstrations pass the barrier: synchronous collection is compared in training only.
                if self._barrier is not None and lease.purpose not in (Purpose.DEMO, Purpose.IMAGINED):
                    self._barrier.wait()  # broken when the worker stops
        finally:
            policy.close()
            self._envs.close_slot(index)
            self._imagined.close_slot(index)

    def _enter(self, index: int, envs: EnvPool | None = None) -> Entry | None:
        try:
            return (envs or self._envs).acquire(index, ENV_WAIT_S)
        except EnvError as error:
            self._stop.wait(self._pauses.no_start(index, error))
            return None

    def _has_policy(self, index: int, lease: Lease) -> bool:
        """Waits, if needed, until an inference server is there for a lease that needs one."""
        deadline = time.monotonic() + NO_POLICY_S
        is_logged = False
        while not self._is_over() and time.monotonic() < deadline:
            needs_policy = lease.policy_plays or lease.purpose is not Purpose.DEMO
            if self._link.has_policy or not needs_policy:
                return True
            if not is_logged:
                _log.warning("slot %d waits for an inference server", index)
                is_logged = True
            self._stop.wait(WATCH_S)
        return False

    def _run_episode(self, entry: Entry, policy: PolicyClient, lease: Lease) -> None:
        envs = self._envs
        is_oracle = lease.branch is not None and not lease.branch.start
        if is_oracle and envs is not self._imagined:  # so that the device is free meanwhile
            envs.release(entry)
            envs = self._imagined
            inside = self._enter(entry.index, envs)
            if inside is None:
                self._link.release(lease.id)
                return
            entry = inside
        sign, device = self._board.sign(entry.index), entry.device.id if entry.device else ""
        sign.begins(lease, device)
        runner = EpisodeRunner(
            entry.env,
            self._agent,
            policy,
            self._config.worker,
            self._name,
            entry.index,
            self._stop,
            self._distances,
            self._randomly,
            sign=sign,
        )
        episode = runner.run(lease)
        if episode is None:
            envs.release(entry)
            self._link.release(lease.id)
            return
        end = EpisodeEnd(*episode, runner.error)
        envs.release(entry, end)
        self._link.submit(end.trajectory, end.images)
        self._tally.add(end.trajectory)
        pause_s = self._pauses.ended(entry.index, end, device)
        sign.waits(is_pause=pause_s > 0.0)
        self._stop.wait(pause_s)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._link.shutdown.is_set()


class BackOff:
    """Pauses that grow with each failure of a slot in a row, see `BACKOFF_S`."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}

    def no_start(self, slot: int, error: EnvError) -> float:
        return self._pause_s(slot, f"its environment does not start: {error}")

    def ended(self, slot: int, end: EpisodeEnd, device: str) -> float:
        """How long the slot pauses after an episode; `device` is the pool's, else "".

        The pool backs off from its failed devices itself: the slot takes another device.
        """
        trajectory = end.trajectory
        if trajectory.fault is Fault.NONE:
            self._failures[slot] = 0
            return 0.0
        what = (
            f"{trajectory.task.id} ended with a fault ({trajectory.fault.value}): {trajectory.fault_detail}"
        )
        if trajectory.fault is Fault.DEVICE and device:
            _log.warning("slot %d, device %s: %s", slot, device, what)
            return 0.0
        return self._pause_s(slot, what)

    def _pause_s(self, slot: int, what: str) -> float:
        failures = self._failures.get(slot, 0)
        pause_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
        self._failures[slot] = failures + 1
        _log.warning("slot %d: %s Retrying in %g s.", slot, what, pause_s)
        return pause_s


class Tally:
    """Counts episodes, for heartbeats and logs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.counts = dict.fromkeys(("episodes", "steps", "successes", "faults", "imagined"), 0.0)

    def add(self, trajectory: Trajectory) -> None:
        with self._lock:
            if trajectory.purpose is Purpose.IMAGINED:
                self.counts["imagined"] += 1
                return
            self.counts["episodes"] += 1
            self.counts["steps"] += len(trajectory.steps)
            self.counts["successes"] += trajectory.outcome is Outcome.SUCCESS
            self.counts["faults"] += trajectory.fault is not Fault.NONE

    def __str__(self) -> str:
        per_minute = 60.0 * self.counts["episodes"] / max(1e-9, time.monotonic() - self._started)
        counts = ", ".join(f"{count:.0f} {name}" for name, count in self.counts.items())
        return f"{counts}; {per_minute:.1f} episodes a minute"
