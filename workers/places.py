"""Where episodes run: each slot in an environment of its own, or on whatever device of the pool is free.

    slot thread:  enter ─► (lease a task) ─► change ─► episode ─► leave        all the same for both

A slot waits in `enter`, for a device, and in `change`; each wait has a deadline. An environment on a device
of the pool is used by whoever leases the device, so it needs no lock of its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from distrl.configs.schema import Config, EnvConfig
from distrl.core.errors import EnvError
from distrl.core.types import Fault, Task, Trajectory
from distrl.workers.devices.errors import PoolExhausted
from distrl.workers.devices.health import ALIVE
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.table import PoolSlot
from distrl.workers.envs import build_env
from distrl.workers.envs.base import Env

CHANGE_S = 2.0
"""How long a task waits for another device than the one that failed at it."""

MAX_REMEMBERED, REMEMBER_S = 256, 600.0
"""Tasks whose devices' faults are remembered, and for how long."""

SCREENS = 3
"""Last screenshots of an episode that go into a post-mortem."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """An environment that one slot thread has to itself.

    Attributes:
        env: Where the episode runs.
        index: The slot's number.
        lease: The device it is on, if that is the pool's.
    """

    env: Env
    index: int
    lease: PoolSlot | None = None


@dataclass(frozen=True)
class Visit:
    """What became of a place.

    Attributes:
        trajectory, images: The episode, and its screenshots by digest.
        error: What the environment raised, if that ended it.
    """

    trajectory: Trajectory
    images: Mapping[str, bytes]
    error: EnvError | None = None

    @property
    def is_broken(self) -> bool:
        """Whether the environment is not to be used again."""
        return self.trajectory.fault not in (Fault.NONE, Fault.INFERENCE)


class Places(Protocol):
    """Environments for slots."""

    heals: bool
    """Whether what failed rests by itself, so that the slot need not."""

    @property
    def capacity(self) -> int:
        """How many slots can be at work at a time; it may grow."""
        ...

    def enter(self, index: int, timeout_s: float) -> Place | None:
        """An environment for the slot `index`; None if none was free in time.

        Raises:
            EnvError: It does not start.
        """
        ...

    def change(self, place: Place, task: Task) -> Place:
        """A better place for `task` if `place` failed at it, else `place`."""
        ...

    def leave(self, place: Place, visit: Visit | None = None) -> None:
        """Gives a place back, with what happened there, if anything did."""
        ...

    def quit(self, index: int) -> None:
        """The slot comes no more."""
        ...

    def check(self) -> None:
        """Raises what ended them for good, if anything did."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Numbers for heartbeats."""
        ...

    def line(self) -> str:
        """Where the devices stand, for people; "" when there are none."""
        ...

    def close(self) -> None:
        """Ends all."""
        ...


class OwnPlaces:
    """An environment for each slot, made anew after it failed.

    Args:
        config: How to make one.
        slots: How many.
    """

    heals = False

    def __init__(self, config: EnvConfig, slots: int) -> None:
        self._config, self.capacity = config, slots
        self._envs: dict[int, Env] = {}

    def enter(self, index: int, timeout_s: float) -> Place:
        """The slot's environment, at once."""
        if index not in self._envs:
            self._envs[index] = build_env(self._config)
        return Place(self._envs[index], index)

    def change(self, place: Place, task: Task) -> Place:
        """The place itself: there is no other."""
        return place

    def leave(self, place: Place, visit: Visit | None = None) -> None:
        """Gives up an environment that failed."""
        if visit is not None and visit.is_broken:
            self.quit(place.index)

    def quit(self, index: int) -> None:
        """Closes the slot's environment."""
        close_env(self._envs.pop(index, None))

    def check(self) -> None:
        """Nothing: each slot finds out for itself."""

    def stats(self) -> Mapping[str, float]:
        """Nothing."""
        return {}

    def line(self) -> str:
        """Nothing."""
        return ""

    def close(self) -> None:
        """Nothing is left when the slots have quit; those that hang keep theirs."""


class PooledPlaces:
    """Environments on devices of a pool, kept for as long as the device is not opened anew.

    Args:
        config: How to make one.
        pool: The devices; closed with this.
    """

    heals = True

    def __init__(self, config: EnvConfig, pool: DevicePool) -> None:
        self._config, self._pool = config, pool
        self._envs: dict[str, tuple[int, Env]] = {}  # by device; touched by whoever leases it
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, dict[str, float]] = OrderedDict()  # task -> device -> when

    @property
    def capacity(self) -> int:
        """As many as there are devices."""
        return self._pool.capacity

    def enter(self, index: int, timeout_s: float) -> Place | None:
        """A free device, with an environment on it."""
        try:
            lease = self._pool.acquire(timeout_s)
        except PoolExhausted:
            return None
        return self._on(lease, index)

    def _on(self, lease: PoolSlot, index: int) -> Place:
        generation, env = self._envs.get(lease.id, (-1, None))
        if env is None or generation != lease.generation:
            self._drop(lease.id)
            try:
                env = build_env(self._config, lease.device, lease.options)
            except BaseException as error:
                self._pool.release(lease, error if isinstance(error, EnvError) else None, used=False)
                raise
            self._envs[lease.id] = lease.generation, env
        return Place(env, index, lease)

    def change(self, place: Place, task: Task) -> Place:
        """Another device, if the task failed on this one a while ago and another comes soon."""
        assert place.lease is not None
        failed = self._failed_at(task)
        if place.lease.id not in failed:
            return place
        if not any(state in ALIVE and name not in failed for name, state in self._pool.states().items()):
            return place
        try:
            other = self._pool.acquire(CHANGE_S, avoid=failed)
        except PoolExhausted:
            return place
        if other.id in failed:
            self._pool.release(other, used=False)
            return place
        try:
            changed = self._on(other, place.index)
        except EnvError as error:
            _log.warning("slot %d: no environment on %s: %s", place.index, other.id, error)
            return place
        self.leave(place)
        return changed

    def leave(self, place: Place, visit: Visit | None = None) -> None:
        """Gives the device back, at once; a fault goes with it."""
        assert place.lease is not None
        if visit is None:
            self._pool.release(place.lease, used=False)
            return
        if not visit.is_broken:
            self._pool.release(place.lease)
            return
        self._drop(place.lease.id)
        fault = visit.trajectory.fault
        error = visit.error or EnvError(visit.trajectory.fault_detail, fault=fault.value)
        if fault is Fault.DEVICE:
            self._remember(visit.trajectory.task, place.lease.id)
        self._pool.release(place.lease, error, last_moments(visit))

    def quit(self, index: int) -> None:
        """Nothing: environments stay with their devices."""

    def check(self) -> None:
        """Raises what ended the pool, such as a missing program."""
        self._pool.check()

    def stats(self) -> Mapping[str, float]:
        """The devices by state."""
        return self._pool.stats()

    def line(self) -> str:
        """Where the devices stand."""
        return self._pool.line()

    def close(self) -> None:
        """Closes the pool, and with it all devices."""
        self._pool.close()

    def _drop(self, device: str) -> None:
        close_env(self._envs.pop(device, (-1, None))[1])

    def _remember(self, task: Task, device: str) -> None:
        with self._lock:
            devices = self._failed.pop(task.id, {})
            devices[device] = time.monotonic()
            self._failed[task.id] = devices
            if len(self._failed) > MAX_REMEMBERED:
                self._failed.popitem(last=False)

    def _failed_at(self, task: Task) -> set[str]:
        since = time.monotonic() - REMEMBER_S
        with self._lock:
            return {device for device, at in self._failed.get(task.id, {}).items() if at > since}


def last_moments(visit: Visit) -> dict[str, bytes]:
    """What a post-mortem tells of the episode: its last screenshots, and which it was."""
    steps = visit.trajectory.steps
    told = {
        "trajectory": visit.trajectory.id,
        "task": visit.trajectory.task.id,
        "goal": visit.trajectory.task.goal,
        "steps": len(steps),
        "last_actions": [step.action.model_dump(mode="json") for step in steps[-SCREENS:]],
    }
    files = {"episode.json": json.dumps(told, indent=1).encode()}
    for number, digest in enumerate(list(visit.images)[-SCREENS:]):
        data = visit.images[digest]
        ending = "png" if data.startswith(b"\x89PNG") else "jpg"
        files[f"screen-{number}.{ending}"] = data
    return files


def close_env(env: Env | None) -> None:
    """Closes an environment, which may have failed and may fail again."""
    with contextlib.suppress(EnvError):
        if env is not None:
            env.close()


def open_places(config: Config, slots: int) -> Places:
    """The places that the configuration asks for; a pool starts to open its devices.

    Args:
        config: The sections env and devices are used, and where the run is.
        slots: The most that are wanted at a time.

    Raises:
        DistrlError: The pool cannot be made.
    """
    if not config.devices.pool:
        return OwnPlaces(config.env, slots)
    from distrl.workers.devices.sources import make_pool

    return PooledPlaces(config.env, make_pool(config, slots).start())
