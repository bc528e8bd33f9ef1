"""Where episodes run: each slot in its own environment, or on any free device of the pool.

An environment on a device of the pool is used only by the slot that holds the device, so it needs no lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.configs.schema import Config, EnvConfig
from distrl.core.errors import EnvError
from distrl.core.slot_view import DeviceView
from distrl.core.types import Fault, Trajectory
from distrl.workers.devices.errors import PoolExhausted
from distrl.workers.devices.pool import DevicePool
from distrl.workers.devices.table import PoolSlot
from distrl.workers.envs import build_env
from distrl.workers.envs.base import Env

SCREENS = 3  # last screenshots of an episode that go into a post-mortem
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """An environment that the slot thread `index` holds, and the pool's device it is on, if any."""

    env: Env
    index: int
    device: PoolSlot | None = None


@dataclass(frozen=True)
class EpisodeEnd:
    """An episode, its screenshots by digest, and the environment's error that ended it, if any."""

    trajectory: Trajectory
    images: Mapping[str, bytes]
    error: EnvError | None = None

    @property
    def is_broken(self) -> bool:
        return self.trajectory.fault not in (Fault.NONE, Fault.INFERENCE)


class EnvPool:
    """Environments for slots: here one for each slot, replaced after it fails."""

    def __init__(self, config: EnvConfig, capacity: int) -> None:
        self._config, self._capacity = config, capacity
        self._envs: dict[int, Env] = {}

    @property
    def capacity(self) -> int:
        """How many slots can work at a time; it may grow."""
        return self._capacity

    def acquire(self, index: int, timeout_s: float) -> Entry | None:
        """An environment for the slot `index`; None if none was free. Raises EnvError if it cannot start."""
        if index not in self._envs:
            self._envs[index] = build_env(self._config)
        return Entry(self._envs[index], index)

    def release(self, entry: Entry, end: EpisodeEnd | None = None) -> None:
        """Returns an environment, with the episode that ran in it, if any."""
        if end is not None and end.is_broken:
            self.close_slot(entry.index)

    def close_slot(self, index: int) -> None:
        """Closes what belongs to a slot that leaves."""
        close_env(self._envs.pop(index, None))

    def check(self) -> None:
        """Raises the error that ended the environments for good, if any."""

    def stats(self) -> Mapping[str, float]:
        """Numbers for heartbeats."""
        return {}

    def line(self) -> str:
        """The devices' states, for people; "" without devices."""
        return ""

    def devices(self) -> Sequence[DeviceView]:
        """The pool's devices, for people who watch."""
        return ()

    def close(self) -> None:
        """Closes what slots that have left do not close themselves: here nothing."""


class DeviceEnvs(EnvPool):
    """Environments on devices of a pool, kept until the device is reopened; closes the pool."""

    def __init__(self, config: EnvConfig, pool: DevicePool) -> None:
        super().__init__(config, 0)
        self._pool = pool
        self._on_devices: dict[str, tuple[int, Env]] = {}  # used by the slot that holds the device

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    def acquire(self, index: int, timeout_s: float) -> Entry | None:
        try:
            device = self._pool.acquire(timeout_s)
        except PoolExhausted:
            return None
        return self._on(device, index)

    def _on(self, held: PoolSlot, index: int) -> Entry:
        generation, env = self._on_devices.get(held.id, (-1, None))
        if env is None or generation != held.generation:
            self._drop(held.id)
            try:
                env = build_env(self._config, held.device, held.options)
            except BaseException as error:
                self._pool.release(held, error if isinstance(error, EnvError) else None, used=False)
                raise
            self._on_devices[held.id] = held.generation, env
        return Entry(env, index, held)

    def release(self, entry: Entry, end: EpisodeEnd | None = None) -> None:
        assert entry.device is not None
        if end is None:
            self._pool.release(entry.device, used=False)
            return
        if not end.is_broken:
            self._pool.release(entry.device)
            return
        self._drop(entry.device.id)
        error = end.error or EnvError(end.trajectory.fault_detail, fault=end.trajectory.fault.value)
        self._pool.release(entry.device, error, last_moments(end))

    def close_slot(self, index: int) -> None:
        """Nothing to close: environments stay with their devices."""

    def check(self) -> None:
        self._pool.check()

    def stats(self) -> Mapping[str, float]:
        return self._pool.stats()

    def line(self) -> str:
        return self._pool.line()

    def devices(self) -> Sequence[DeviceView]:
        return self._pool.views()

    def close(self) -> None:
        self._pool.close()

    def _drop(self, device: str) -> None:
        close_env(self._on_devices.pop(device, (-1, None))[1])


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
    """The environments of the configuration for so many slots; a pool of devices starts to open them."""
    if not config.devices.pool:
        return EnvPool(config.env, slots)
    from distrl.workers.devices.pool import make_pool

    return DeviceEnvs(config.env, make_pool(config, slots).start())
