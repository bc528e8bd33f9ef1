"""What the pool knows of one device, and the handle that whoever leases it holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from distrl.core.errors import EnvError
from distrl.workers.devices.base import Device
from distrl.workers.devices.pool.ladder import Circuit
from distrl.workers.devices.pool.member import ManagedDevice
from distrl.workers.devices.pool.postmortem import Bundle
from distrl.workers.devices.pool.state import SlotMachine, SlotState

ONLINE = "device"
"""What adb calls a device that works."""

MAX_STUCK = 2
"""A device with this many calls that never return is left alone until one does."""


@dataclass
class Fault:
    """Why a slot is not well.

    Attributes:
        error: What happened.
        files: What whoever used the device adds for the post-mortem, by file name.
        busy_s: How long it had been leased; None if it was not.
        bundle: The post-mortem, once it is begun.
        is_host: The trouble is the machine's or the adb server's, not the device's.
    """

    error: EnvError
    files: Mapping[str, bytes] = field(default_factory=dict)
    busy_s: float | None = None
    bundle: Bundle | None = None
    is_host: bool = False


@dataclass
class Slot:
    """One device of the pool. The pool's lock guards it, but for `member`, which one job or lease uses.

    Attributes:
        machine: Its state.
        circuit: Its faults of late.
        tracked: Somebody tells whether it is there, in `listed`; otherwise it always is.
        listed: Its state as the adb server lists it; None while it is not there.
        forget_s: A tracked device that is away for longer than this leaves the pool; None: never.
        device: What `member.open` returned, while it is to be used.
        generation: Counts openings; who keeps things about `device` must drop them when it changes.
        token: Changes with each state and each probe, so that answers that come too late are recognised.
        probing: A probe is under way.
        last_ok: Monotonic time of its last sign of life.
        last_used: Monotonic time of its last release.
        due: Monotonic time before which nothing is tried.
        fault: Set while it is suspect, recovering or quarantined, and while it rests although it is absent.
        is_claimed: Another process had it when it was last asked for.
        stuck: Jobs that did not end in time and still run.
    """

    member: ManagedDevice
    machine: SlotMachine
    circuit: Circuit
    tracked: bool = False
    listed: str | None = None
    forget_s: float | None = None
    device: Device | None = None
    generation: int = 0
    token: int = 0
    probing: bool = False
    last_ok: float = 0.0
    last_used: float = 0.0
    due: float = 0.0
    fault: Fault | None = None
    is_claimed: bool = False
    stuck: list[threading.Thread] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The device's name in the pool."""
        return self.member.id

    @property
    def is_there(self) -> bool:
        """Whether opening it may be tried."""
        return not self.tracked or self.listed is not None

    @property
    def rests(self) -> bool:
        """Whether it went and came back during a rest, which it has to finish before it is opened."""
        return self.machine.state is SlotState.ABSENT and self.is_there and self.fault is not None

    @property
    def lacks(self) -> str:
        """Why it cannot be used, for people; "" if it can, is being opened, or is a spare."""
        if self.machine.state is SlotState.ABSENT and not self.is_there:
            return "adb does not list it"
        if self.fault is not None:
            return str(self.fault.error).removeprefix(f"{self.id}: ")
        if self.machine.state is not SlotState.ABSENT:
            return ""
        if self.is_claimed:
            return "another process has it"
        if len(self.stuck) >= MAX_STUCK:
            return "earlier attempts to open it still hang"
        return "" if not self.tracked or self.listed == ONLINE else f"adb lists it as {self.listed!r}"

    def stamp(self) -> int:
        """A new token; answers that carry an older one are void."""
        self.token += 1
        return self.token


@dataclass(frozen=True)
class PoolSlot:
    """A leased device; also a context manager, which gives it back.

    Attributes:
        id: The device's name in the pool.
        kind: The kind of its source.
        device: To be used by the thread that leased it.
        options: What an environment on it is told besides the device.
        generation: Changes when the device was opened anew since an earlier lease.
        token: Which lease this is.
    """

    id: str
    kind: str
    device: Device
    options: Mapping[str, object]
    generation: int
    token: int
    give_back: Callable[[PoolSlot, EnvError | None], None] = field(repr=False, compare=False)

    def __enter__(self) -> PoolSlot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.give_back(self, error if isinstance(error, EnvError) else None)
