"""Devices for pool tests: they work until they are told not to, and write down what is done to them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import ClassVar

from counting_env import CountingEnv

from distrl.core.actions import Action
from distrl.core.errors import EnvError
from distrl.core.types import Task
from distrl.simulator.device import SimDevice
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.table import RecoveryStep
from distrl.workers.envs.base import Frame, StepResult

STEPS = ("wait", "reconnect", "cold boot")


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeDevice(SimDevice):
    """Knows whose it is, and whether it was closed."""

    def __init__(self, member: FakeMember) -> None:
        super().__init__()
        self.member, self.is_closed = member, False

    def close(self) -> None:
        self.is_closed = True


class DeviceEnv(CountingEnv):
    """A counting environment that fails as its device does.

    Attributes:
        ran: Which task started on which device, in order.
    """

    ran: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self.device = device

    def reset(self, task: Task) -> Frame:
        self.ran.append((task.id, self.device.member.id))
        assert not self.device.is_closed
        return super().reset(task)

    def step(self, action: Action) -> StepResult:
        member = self.device.member
        member.steps += 1
        if member.steps == member.fails_at:
            member.fail()
        if member.broken is not None:
            raise member.broken
        return super().step(action)

    def close(self) -> None:
        self.device.close()


class MeetingEnv(DeviceEnv):
    """Episodes begin two at a time: when `meeting` lets them."""

    meeting: ClassVar[threading.Barrier] = threading.Barrier(2)

    def reset(self, task: Task) -> Frame:
        frame = super().reset(task)
        self.meeting.wait(20.0)
        return frame


class FakeMember:
    """A pool member.

    Args:
        name: Its id.
        mended_by: The step after which a broken one works again; None: none.

    Attributes:
        steps: What environments did on it.
        fails_at: The number of the step at which it breaks.
        broken: What opening and probing it raise; None while it works.
        log: What was done to it.
        devices: What `open` returned.
        hang: When set to an event, its calls wait for that.
    """

    def __init__(self, name: str, mended_by: str | None = "wait", claim: str = "") -> None:
        self.id, self.claim, self.open_limit_s = name, claim, 30.0
        self.options: Mapping[str, object] = {}
        self.mended_by = mended_by
        self.steps, self.fails_at = 0, 0
        self.broken: EnvError | None = None
        self.hang: threading.Event | None = None
        self.log: list[str] = []
        self.devices: list[FakeDevice] = []

    def open(self) -> Device:
        self._do("open")
        self.devices.append(FakeDevice(self))
        return self.devices[-1]

    def probe(self) -> None:
        self._do("probe")

    def ladder(self) -> Sequence[RecoveryStep]:
        return [RecoveryStep(name, lambda name=name: self._mend(name), 1.0, name != "wait") for name in STEPS]  # type: ignore[misc]

    def evidence(self) -> Mapping[str, bytes]:
        self.log.append("evidence")
        return {"logcat.txt": b"it went wrong here"}

    def close(self) -> None:
        self.log.append("close")

    def fail(self) -> None:
        """From now on it does not answer."""
        self.broken = DeviceTimeout("it does not answer.", serial=self.id, evidence="silence")

    def _do(self, what: str) -> None:
        self.log.append(what)
        if self.hang is not None:
            assert self.hang.wait(30.0), "never let go"
        if self.broken is not None:
            raise self.broken

    def _mend(self, name: str) -> None:
        self.log.append(name)
        if name == self.mended_by:
            self.broken = None
