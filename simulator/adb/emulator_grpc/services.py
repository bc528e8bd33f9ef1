"""The emulator's gRPC services on one phone, as far as android_env calls them; all else is UNIMPLEMENTED.

The phone follows one finger: the first that touches, until it lifts. A touch that begins outside of the
screen is ignored, and a finger lifts where it was last: what a lifting event says of its place is not read.

As with the emulator, a failed snapshot operation is reported in the answer (`success`, `err`), and a name
that exists is not saved over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distrl.core.errors import DistrlError
from distrl.simulator.adb import keys
from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.faults import Kind
from distrl.simulator.adb.machine import Machine
from distrl.workers.devices.errors import SnapshotMissing

CONTROLLER = f"{messages.CONTROL}.EmulatorController"
SNAPSHOTS = f"{messages.CONTROL}.SnapshotService"
_Key = messages.KeyboardEvent


class Rejected(Exception):
    """The call is refused: the name of a gRPC status, e.g. "INVALID_ARGUMENT", and why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Then:
    """An answer, and what happens after the client has received it."""

    message: Any
    action: Callable[[], None]


Method = Callable[[Any], Any]
"""From a request to a message or a `Then`; raises `Rejected`."""


class Controller:
    """EmulatorController: status, screen, touch, keys, and the end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._system = machine.system
        self._down: set[int] = set()
        self._followed: int | None = None
        self._at = (0, 0)
        self._held: dict[int, None] = {}

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """The methods by name: what carries it out, and the class of its request."""
        return {
            "getStatus": (self.status, messages.Empty),
            "getScreenshot": (self.screenshot, messages.ImageFormat),
            "sendTouch": (self.touch, messages.TouchEvent),
            "sendKey": (self.key, messages.KeyboardEvent),
            "setVmState": (self.set_run_state, messages.VmRunState),
        }

    def status(self, request: Any) -> Any:
        """The emulator's version and uptime, and whether Android has booted."""
        return messages.EmulatorStatus(
            version=self._machine.version,
            uptime=int((time.monotonic() - self._machine.booted_at) * 1000),
            booted=self._system.properties.get("sys.boot_completed") == "1",
        )

    def screenshot(self, request: Any) -> Any:
        """The screen's pixels as RGBA, row by row from the top."""
        if request.format != messages.ImageFormat.RGBA8888 or request.width or request.height:
            raise Rejected("UNIMPLEMENTED", "The simulated phone gives RGBA8888 in the screen's size only.")
        width, height = self._system.device.size
        return messages.Image(
            image=self._system.screenshot().convert("RGBA").tobytes(),
            format=messages.ImageFormat(format=request.format, width=width, height=height),
            timestampUs=time.time_ns() // 1000,
        )

    @property
    def _takes_input(self) -> bool:
        """Whether inputs arrive: a phone that hangs gets none."""
        return self._machine.faults.kind is not Kind.HANG

    def touch(self, request: Any) -> Any:
        """Fingers that touch, move or lift; a pressure of 0 is one that lifts."""
        for finger in request.touches if self._takes_input else ():
            place = finger.x, finger.y
            if finger.pressure and finger.identifier not in self._down:
                self._begin(finger.identifier, *place)
            elif finger.pressure and finger.identifier == self._followed:
                self._at = place
                self._system.input.motion("MOVE", *place)
            elif not finger.pressure and finger.identifier in self._down:
                self._down.discard(finger.identifier)
                if finger.identifier == self._followed:
                    self._followed = None
                    self._system.input.motion("UP", *self._at)
        return messages.Empty()

    def _begin(self, identifier: int, x: int, y: int) -> None:
        is_first = not self._down
        self._down.add(identifier)
        width, height = self._system.device.size
        if is_first and 0 <= x < width and 0 <= y < height:
            self._followed, self._at = identifier, (x, y)
            self._system.input.motion("DOWN", x, y)

    def key(self, request: Any) -> Any:
        """A key by its X code; keys that the phone lacks have no effect. A key acts when it goes down."""
        if request.codeType != _Key.XKB or not request.keyCode:
            raise Rejected("UNIMPLEMENTED", "The simulated phone takes key codes of X (XKB) only.")
        code = keys.BY_EVDEV.get(request.keyCode - keys.XKB_OFFSET)
        if code is None or not self._takes_input:
            return messages.Empty()
        if request.eventType in (_Key.keydown, _Key.keypress):
            if code in keys.MODIFIERS:
                self._held[code] = None
            elif self._held:
                self._system.input.combination([*self._held, code])
            else:
                self._system.input.key(code)
        if request.eventType in (_Key.keyup, _Key.keypress):
            self._held.pop(code, None)
        return messages.Empty()

    def set_run_state(self, request: Any) -> Any:
        """Ends the phone, after the answer."""
        if request.state != messages.VmRunState.SHUTDOWN:
            raise Rejected("UNIMPLEMENTED", "The simulated phone takes the state SHUTDOWN only.")
        return Then(messages.Empty(), self._machine.kill)


class SnapshotService:
    """SnapshotService: the console's snapshots."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """The methods by name: what carries it out, and the class of its request."""
        return {
            "ListSnapshots": (self.list, messages.Empty),
            "SaveSnapshot": (self.save, messages.SnapshotPackage),
            "LoadSnapshot": (self.load, messages.SnapshotPackage),
        }

    def list(self, request: Any) -> Any:
        """All snapshots."""
        found = [messages.SnapshotDetails(snapshot_id=one.name) for one in self._machine.snapshots.list()]
        return messages.SnapshotList(snapshots=found)

    def save(self, request: Any) -> Any:
        """Keeps the present state under a new name."""
        name = request.snapshot_id
        if any(found.name == name for found in self._machine.snapshots.list()):
            return _failed(name, f"SnapshotPackage with {name} already exists!")
        return _tried(name, self._machine.save)

    def load(self, request: Any) -> Any:
        """Brings a state back."""
        return _tried(request.snapshot_id, self._machine.load)


def _failed(name: str, why: str) -> Any:
    return messages.SnapshotPackage(snapshot_id=name, success=False, err=why.encode())


def _tried(name: str, action: Callable[[str], None]) -> Any:
    try:
        action(name)
    except SnapshotMissing:
        return _failed(name, f"Could not find {name}")
    except DistrlError as error:
        return _failed(name, error.message)
    return messages.SnapshotPackage(snapshot_id=name, success=True)
