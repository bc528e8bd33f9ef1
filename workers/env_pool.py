"""Where episodes run: each slot in its own environment, or on any free device of the pool.

    slot thread:  acquire ─► (lease a task) ─► swap ─► episode ─► release        the same for both

A slot waits for a device in `acquire` and in `swap`; each wait has a deadline. An environment on a device of
the pool is used only by the slot that holds the device, so it needs no lock.
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

SWAP_S = 2.0
"""How long a slot waits for a device other than those that failed at its task."""

MAX_REMEMBERED, REMEMBER_S = 256, 600.0
"""Tasks whose devices' faults are remembered, and for how long."""

SCREENS = 3
"""Last screenshots of an episode that go into a post-mortem."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """An environment that one slot thread holds.

    Attributes:
        env: Where the episode runs.
        index: The slot's number.
        device: The pool's device it is on, if any.
    """

    env: Env
    index: int
    device: PoolSlot | None = None


@dataclass(frozen=True)
class EpisodeEnd:
    """How an episode ended.

    Attributes:
        trajectory, images: The episode, and its screenshots by digest.
        error: The error of the environment that ended it, if any.
    """

    trajectory: Trajectory
    images: Mapping[str, bytes]
    error: EnvError | None = None

    @property
    def is_broken(self) -> bool:
        """Whether the environment must not be used again."""
        return self.trajectory.fault not in (Fault.NONE, Fault.INFERENCE)


class EnvPool(Protocol):
    """Environments for slots."""

    @property
    def capacity(self) -> int:
        """How many slots can work at a time; it may grow."""
        ...

    def acquire(self, index: int, timeout_s: float) -> Entry | None:
        """An environment for the slot `index`; None if none was free in time.

        Raises:
            EnvError: The environment does not start.
        """
        ...

    def swap(self, entry: Entry, task: Task) -> Entry:
        """Another environment for `task` if this one failed at it, else `entry`."""
        ...

    def release(self, entry: Entry, end: EpisodeEnd | None = None) -> None:
        """Returns an environment, with the episode that ran in it, if any."""
        ...

    def close_slot(self, index: int) -> None:
        """Closes what belongs to a slot that leaves."""
        ...

    def check(self) -> None:
        """Raises the error that ended the environments for good, if any."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Numbers for heartbeats."""
        ...

    def line(self) -> str:
        """The devices' states, for people; "" without devices."""
        ...

    def close(self) -> None:
        """Closes everything."""
        ...


class SlotEnvs:
    """An environment for each slot, replaced after it fails.

    Args:
        config: How to make one.
        slots: How many.
    """

    def __init__(self, config: EnvConfig, slots: int) -> None:
        self._config, self.capacity = config, slots
        self._envs: dict[int, Env] = {}

    def acquire(self, index: int, timeout_s: float) -> Entry:
        """The slot's environment, without waiting."""
        if index not in self._envs:
            self._envs[index] = build_env(self._config)
        return Entry(self._envs[index], index)

    def swap(self, entry: Entry, task: Task) -> Entry:
        """The entry itself: there is no other environment."""
        return entry

    def release(self, entry: Entry, end: EpisodeEnd | None = None) -> None:
        """Closes an environment that failed."""
        if end is not None and end.is_broken:
            self.close_slot(entry.index)

    def close_slot(self, index: int) -> None:
        """Closes the slot's environment."""
        close_env(self._envs.pop(index, None))

    def check(self) -> None:
        """Nothing to check."""

    def stats(self) -> Mapping[str, float]:
        """Nothing."""
        return {}

    def line(self) -> str:
        """Nothing."""
        return ""

    def close(self) -> None:
        """Nothing is left once the slots have closed theirs; a slot that hangs keeps its own."""


class DeviceEnvs:
    """Environments on devices of a pool, kept until the device is reopened.

    Args:
        config: How to make one.
        pool: The devices; closed with this.
    """

    def __init__(self, config: EnvConfig, pool: DevicePool) -> None:
        self._config, self._pool = config, pool
        self._envs: dict[str, tuple[int, Env]] = {}  # by device; used by the slot that holds it
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, dict[str, float]] = OrderedDict()  # task -> device -> when

    @property
    def capacity(self) -> int:
        """The number of devices."""
        return self._pool.capacity

    def acquire(self, index: int, timeout_s: float) -> Entry | None:
        """A free device, with an environment on it."""
        try:
            device = self._pool.acquire(timeout_s)
        except PoolExhausted:
            return None
        return self._on(device, index)

    def _on(self, held: PoolSlot, index: int) -> Entry:
        generation, env = self._envs.get(held.id, (-1, None))
        if env is None or generation != held.generation:
            self._drop(held.id)
            try:
                env = build_env(self._config, held.device, held.options)
            except BaseException as error:
                self._pool.release(held, error if isinstance(error, EnvError) else None, used=False)
                raise
            self._envs[held.id] = held.generation, env
        return Entry(env, index, held)

    def swap(self, entry: Entry, task: Task) -> Entry:
        """Another device, if the task failed on this one recently and another is free soon."""
        assert entry.device is not None
        failed = self._failed_at(task)
        if entry.device.id not in failed:
            return entry
        if not any(state in ALIVE and name not in failed for name, state in self._pool.states().items()):
            return entry
        try:
            other = self._pool.acquire(SWAP_S, avoid=failed)
        except PoolExhausted:
            return entry
        if other.id in failed:
            self._pool.release(other, used=False)
            return entry
        try:
            changed = self._on(other, entry.index)
        except EnvError as error:
            _log.warning("slot %d: no environment on %s: %s", entry.index, other.id, error)
            return entry
        self.release(entry)
        return changed

    def release(self, entry: Entry, end: EpisodeEnd | None = None) -> None:
        """Returns the device without waiting, with the fault, if any."""
        assert entry.device is not None
        if end is None:
            self._pool.release(entry.device, used=False)
            return
        if not end.is_broken:
            self._pool.release(entry.device)
            return
        self._drop(entry.device.id)
        fault = end.trajectory.fault
        error = end.error or EnvError(end.trajectory.fault_detail, fault=fault.value)
        if fault is Fault.DEVICE:
            self._remember(end.trajectory.task, entry.device.id)
        self._pool.release(entry.device, error, last_moments(end))

    def close_slot(self, index: int) -> None:
        """Nothing to close: environments stay with their devices."""

    def check(self) -> None:
        """Raises the error that ended the pool, such as a missing program."""
        self._pool.check()

    def stats(self) -> Mapping[str, float]:
        """The devices by state."""
        return self._pool.stats()

    def line(self) -> str:
        """The devices' states."""
        return self._pool.line()

    def close(self) -> None:
        """Closes the pool and all its devices."""
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


def last_moments(end: EpisodeEnd) -> dict[str, bytes]:
    """The episode's files in a post-mortem: its identity and its last screenshots."""
    steps = end.trajectory.steps
    facts = {
        "trajectory": end.trajectory.id,
        "task": end.trajectory.task.id,
        "goal": end.trajectory.task.goal,
        "steps": len(steps),
        "last_actions": [step.action.model_dump(mode="json") for step in steps[-SCREENS:]],
    }
    files = {"episode.json": json.dumps(facts, indent=1).encode()}
    for number, digest in enumerate(list(end.images)[-SCREENS:]):
        data = end.images[digest]
        ending = "png" if data.startswith(b"\x89PNG") else "jpg"
        files[f"screen-{number}.{ending}"] = data
    return files


def close_env(env: Env | None) -> None:
    """Closes an environment; errors are suppressed because it may have failed already."""
    with contextlib.suppress(EnvError):
        if env is not None:
            env.close()


def open_env_pool(config: Config, slots: int) -> EnvPool:
    """The environments of the configuration; a pool starts to open its devices.

    Args:
        config: The sections env and devices are used, and where the run is.
        slots: The largest number needed at a time.

    Raises:
        DistrlError: The pool cannot be made.
    """
    if not config.devices.pool:
        return SlotEnvs(config.env, slots)
    from distrl.workers.devices.sources import make_pool

    return DeviceEnvs(config.env, make_pool(config, slots).start())
