"""The worker: slots, threads that run episodes in environments of their own or on devices of a pool.

    main thread ── watches ──► slot 0 … slot N−1: place ─► lease ─► episode ─► submit ─► place …
                                  │        └──► policy client ──► inference servers
                                  ├──► places: environments, or a pool of devices with a keeper thread
                                  └──► learner link (one thread): leases, renewals, spool, delivery

A slot waits for a place, for a lease, for its environment and for the policy, never for another slot (unless
`worker.barrier` is set). Each wait has a deadline: `PLACE_WAIT_S`, `LEASE_WAIT_S`, the environment's own,
`act_timeout_s`. A place comes before a lease, so that no lease waits for a device.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from distrl.configs.schema import Config
from distrl.core.errors import EnvError
from distrl.core.messages import Lease, Status
from distrl.core.types import Fault, Purpose, Trajectory
from distrl.workers.agents import build_agent
from distrl.workers.conversation import PolicyClient
from distrl.workers.places import OwnPlaces, Place, Places, Visit
from distrl.workers.slot import EpisodeRunner
from distrl.workers.tally import Tally

PLACE_WAIT_S = 1.0
LEASE_WAIT_S = 1.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses of a slot after its first, second, … failure in a row."""

IDLE_S = 0.05
"""Pause between two requests for a lease."""

NO_POLICY_S = 60.0
"""A lease that needs a policy is given back when no inference server has come for this long."""

WATCH_S = 0.25
REPORT_S = 10.0
STOP_S = 3.0
"""How long slots have to leave their present step when the worker stops."""

_log = logging.getLogger(__name__)


class Link(Protocol):
    """What a worker needs of its `distrl.workers.client.LearnerLink`."""

    shutdown: threading.Event

    @property
    def status(self) -> Status | None:
        """The learner's last."""
        ...

    def lease(self, timeout_s: float) -> Lease | None:
        """A lease, or None when none came in time."""
        ...

    def release(self, lease_id: str) -> None:
        """Gives a lease back without a trajectory; the learner may grant it to another."""
        ...

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Spools a trajectory for delivery."""
        ...

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Sets the numbers that heartbeats carry."""
        ...

    def check(self) -> None:
        """Raises what ended the link."""
        ...


class SlotPolicy(PolicyClient, Protocol):
    """A slot's own policy client."""

    def close(self) -> None:
        """Closes its connections."""
        ...


class Worker:
    """Runs episodes in up to `config.worker.slots` environments until it is stopped or the run is over.

    Args:
        config: The sections env, agent and worker are used.
        link: Leases in, trajectories out.
        policy: Makes the policy client of a slot, given the slot's number; called in the slot's thread.
        name: Recorded in every trajectory.
        stop: Set by whoever wants the worker to stop.
        places: Where episodes run, closed by whoever made them; by default each slot makes an environment.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        policy: Callable[[int], SlotPolicy],
        name: str,
        stop: threading.Event | None = None,
        places: Places | None = None,
    ) -> None:
        self._config = config
        self._link = link
        self._policy = policy
        self._name = name
        self._stop = stop or threading.Event()
        self._agent = build_agent(config.agent)
        self._tally = Tally()
        self._errors: list[BaseException] = []
        slots = config.worker.slots
        self._places: Places = OwnPlaces(config.env, slots) if places is None else places
        self._barrier = threading.Barrier(slots) if config.worker.barrier else None
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Works until `stop` is set or the learner ends the run; then leaves within `STOP_S`.

        Episodes that are not over by then are abandoned. Whoever is still inside a step of an environment is
        left behind as a daemon thread, see `is_clear`.

        Raises:
            DistrlError: What cannot be worked around: wrong options, a missing program, a full disk.
            Exception: A bug in an environment, an agent or here.
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
        """Whether all slots have left, so that what they used can be closed."""
        return not any(thread.is_alive() for thread in self._threads)

    def stats(self) -> dict[str, float]:
        """What it has done so far; heartbeats carry it."""
        return {**self._tally.stats(), **self._places.stats()}

    def _line(self) -> str:
        devices = self._places.line()
        return f"{self._tally.line()}; devices: {devices}" if devices else self._tally.line()

    def _grow(self) -> None:
        """Starts the slots that there are places for; those that there are stay."""
        while len(self._threads) < min(self._config.worker.slots, self._places.capacity):
            index = len(self._threads)
            thread = threading.Thread(target=self._guard, args=(index,), name=f"slot-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _watch(self) -> None:
        """Returns when the work is over: stopped, run ended, or a slot failed for good."""
        next_report = time.monotonic() + REPORT_S
        while not self._stop.wait(WATCH_S):
            self._link.check()
            self._places.check()
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
        """A slot that fails for good takes the worker down, so that the failure is seen."""
        try:
            self._work(index)
        except threading.BrokenBarrierError:
            return  # the worker stops
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._errors.append(error)

    def _work(self, index: int) -> None:
        slot = _Slot(index, self._policy(index))
        try:
            while not self._is_over():
                place = self._enter(slot)
                if place is None:
                    continue
                lease = self._link.lease(LEASE_WAIT_S)
                if lease is None or not self._has_policy(slot, lease):
                    self._places.leave(place)
                    if lease is not None:
                        self._link.release(lease.id)
                    self._stop.wait(IDLE_S)
                    continue
                self._run_episode(slot, self._places.change(place, lease.task), lease)
                # The warm start is not what synchronous collection is compared in.
                if self._barrier is not None and lease.purpose is not Purpose.DEMO:
                    self._barrier.wait()  # broken when the worker stops
        finally:
            slot.policy.close()
            self._places.quit(index)

    def _enter(self, slot: _Slot) -> Place | None:
        """A place for the slot; pauses when its environment does not start."""
        try:
            return self._places.enter(slot.index, PLACE_WAIT_S)
        except EnvError as error:
            self._back_off(slot, f"its environment does not start: {error}")
            return None

    def _has_policy(self, slot: _Slot, lease: Lease) -> bool:
        """Waits, if need be, until an inference server is there for a lease that needs one."""
        deadline = time.monotonic() + NO_POLICY_S
        is_logged = False
        while not self._is_over() and time.monotonic() < deadline:
            status = self._link.status
            if lease.purpose is Purpose.DEMO or (status is not None and status.act_endpoints):
                return True
            if not is_logged:
                _log.warning("slot %d waits for an inference server", slot.index)
                is_logged = True
            self._stop.wait(WATCH_S)
        return False

    def _run_episode(self, slot: _Slot, place: Place, lease: Lease) -> None:
        runner = EpisodeRunner(
            place.env, self._agent, slot.policy, self._config.worker, self._name, slot.index, self._stop
        )
        episode = runner.run(lease)
        if episode is None:
            self._places.leave(place)
            self._link.release(lease.id)
            return
        trajectory, images = episode
        self._places.leave(place, Visit(trajectory, images, runner.error))
        self._link.submit(trajectory, images)
        self._tally.add(trajectory)
        if trajectory.fault is Fault.NONE:
            slot.failures = 0
            return
        what = f"{lease.task.id} ended by a fault ({trajectory.fault.value}): {trajectory.fault_detail}"
        if trajectory.fault is Fault.DEVICE and self._places.heals:
            _log.warning("slot %d, device %s: %s", slot.index, place.lease.id if place.lease else "", what)
        else:
            self._back_off(slot, what)

    def _back_off(self, slot: _Slot, what: str) -> None:
        pause_s = BACKOFF_S[min(slot.failures, len(BACKOFF_S) - 1)]
        slot.failures += 1
        _log.warning("slot %d: %s Next try in %g s.", slot.index, what, pause_s)
        self._stop.wait(pause_s)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._link.shutdown.is_set()


class _Slot:
    """What one slot has: its number and its policy client.

    Attributes:
        failures: How many times in a row it failed.
    """

    def __init__(self, index: int, policy: SlotPolicy) -> None:
        self.index = index
        self.policy = policy
        self.failures = 0
