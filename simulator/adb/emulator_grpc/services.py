"""The emulator's gRPC services on one phone: EmulatorController and SnapshotService.

The phone follows one finger: the first that touches, until it lifts. A touch that begins outside of the
screen is ignored, and a finger lifts where it was last: what a lifting event says of its place is not read.

As with the emulator, a failed snapshot operation is reported in the answer (`success`, `err`), a name that
exists is not saved over, and deleting what does not exist succeeds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image

from distrl.core.errors import DistrlError
from distrl.simulator.adb import keys
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.faults import Kind
from distrl.simulator.adb.input import TYPABLE
from distrl.simulator.adb.machine import Machine, Refused, Snapshot
from distrl.workers.devices.errors import SnapshotMissing


class Rejected(Exception):
    """The call is refused.

    Args:
        code: The name of a gRPC status, e.g. "INVALID_ARGUMENT".
        text: Why.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Then:
    """An answer, and what happens after the client has got it: the end of the phone, for instance.

    Attributes:
        message: The answer.
        action: What follows.
    """

    message: Any
    action: Callable[[], None]


Method = Callable[[Any], Any]
"""From a request to a message or a `Then`; raises `Rejected`."""


MAX_FINGERS = 10
"""Most fingers that may be down; further ones are not seen."""
_MOUSE = -1


class Fingers:
    """What touches one phone.

    Args:
        system: The phone.
    """

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._down: set[int] = set()
        self._followed: int | None = None
        self._at = (0, 0)

    def touch(self, identifier: int, x: int, y: int, is_down: bool) -> None:
        """One finger's new place, in pixels, or its end."""
        if is_down and identifier not in self._down:
            self._begin(identifier, x, y)
        elif is_down and identifier == self._followed:
            self._at = (x, y)
            self._system.input.motion("MOVE", x, y)
        elif not is_down and identifier in self._down:
            self._down.discard(identifier)
            if identifier == self._followed:
                self._followed = None
                self._system.input.motion("UP", *self._at)

    def mouse(self, x: int, y: int, buttons: int) -> None:
        """The mouse: a finger while its first button is held."""
        if buttons & 1:
            self.touch(_MOUSE, x, y, True)
        else:
            self.touch(_MOUSE, x, y, False)

    def _begin(self, identifier: int, x: int, y: int) -> None:
        if len(self._down) >= MAX_FINGERS:
            return
        is_first = not self._down
        self._down.add(identifier)
        width, height = self._system.device.size
        if is_first and 0 <= x < width and 0 <= y < height:
            self._followed, self._at = identifier, (x, y)
            self._system.input.motion("DOWN", x, y)


class Keyboard:
    """The keyboard of one phone. A key acts when it goes down.

    Args:
        system: The phone.
    """

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._held: list[int] = []

    def down(self, code: int) -> None:
        """A key goes down, by its Android code; a modifier stays down until `up`."""
        if code in keys.MODIFIERS:
            if code not in self._held:
                self._held.append(code)
        elif self._held:
            self._system.input.combination([*self._held, code])
        else:
            self._system.input.key(code)

    def up(self, code: int) -> None:
        """A key comes up."""
        if code in self._held:
            self._held.remove(code)

    def write(self, text: str) -> None:
        """Presses the keys of the characters of `text`; characters that the keyboard lacks are left out."""
        typable = "".join(character for character in text if character in TYPABLE)
        if typable:
            self._system.input.text(typable)


MAX_SIDE = 8192
"""Longest side of a picture, in pixels."""


def fitted(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """The size of the picture, as the emulator computes it.

    Args:
        size: The screen's width and height.
        width, height: What is asked for; the screen's own size if one of them is 0.

    Returns:
        The largest size of the screen's shape within `width` and `height`.
    """
    if not width or not height:
        return size
    shape = size[0] / size[1]
    if width / height > shape:
        return max(1, int(height * shape)), height
    return width, max(1, int(width / shape))


def screen(system: AndroidSystem, kind: str, size: tuple[int, int]) -> bytes:
    """The screen's pixels, row by row from the top, or a PNG file of them.

    Args:
        system: The phone.
        kind: "PNG", "RGB888" or "RGBA8888".
        size: Width and height of the picture.
    """
    is_scaled = size != system.device.size
    if kind == "PNG" and not is_scaled:
        return system.screenshot_png()
    picture = system.screenshot()
    if is_scaled:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    if kind == "PNG":
        return system.encode_png(picture)
    return picture.convert("RGBA" if kind == "RGBA8888" else "RGB").tobytes()


CONTROLLER = f"{messages.CONTROL}.EmulatorController"
FRAME_S = 0.05
"""How often a stream of pictures looks for a new one."""
_RAM_BYTES = 2 << 30
_State = messages.VmRunState
_Key = messages.KeyboardEvent


class Controller:
    """The service on one phone.

    Args:
        machine: The phone.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._system = machine.system
        self._fingers = Fingers(machine.system)
        self._keyboard = Keyboard(machine.system)

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """The methods with one answer, by name: what carries it out, and the class of its request."""
        return {
            "getStatus": (self.status, messages.Empty),
            "getScreenshot": (self.screenshot, messages.ImageFormat),
            "sendTouch": (self.touch, messages.TouchEvent),
            "sendMouse": (self.mouse, messages.MouseEvent),
            "sendKey": (self.key, messages.KeyboardEvent),
            "getVmState": (self.run_state, messages.Empty),
            "setVmState": (self.set_run_state, messages.VmRunState),
        }

    def status(self, request: Any) -> Any:
        """What the emulator is, and whether Android has booted."""
        machine, (width, height) = self._machine, self._system.device.size
        facts = {
            "avd.id": machine.avd_name,
            "avd.name": machine.avd_name,
            "hw.cpu.ncore": str(os.cpu_count() or 1),
            "hw.ramSize": str(_RAM_BYTES >> 20),
            "hw.lcd.width": str(width),
            "hw.lcd.height": str(height),
            "hw.lcd.density": str(self._system.density),
            **machine.hardware,
        }
        answer = messages.EmulatorStatus(
            version=machine.version,
            uptime=int((time.monotonic() - machine.booted_at) * 1000),
            booted=self._system.properties.get("sys.boot_completed") == "1",
            vmConfig=messages.VmConfiguration(
                hypervisorType=messages.VmConfiguration.NONE,
                numberOfCpuCores=os.cpu_count() or 1,
                ramSizeBytes=_RAM_BYTES,
            ),
        )
        for key, value in sorted(facts.items()):
            answer.hardwareConfig.entry.add(key=key, value=value)
        return answer

    def screenshot(self, request: Any) -> Any:
        """The screen; an empty picture for a display that the phone does not have."""
        if request.transport.channel != messages.ImageTransport.TRANSPORT_CHANNEL_UNSPECIFIED:
            raise Rejected("UNIMPLEMENTED", "Pictures come in the answer only, not through shared memory.")
        if request.format not in messages.ImageFormat.ImgFormat.values():
            raise Rejected("INVALID_ARGUMENT", f"{request.format} is not an image format.")
        if max(request.width, request.height) > MAX_SIDE:
            raise Rejected("INVALID_ARGUMENT", f"A picture has at most {MAX_SIDE} pixels a side.")
        if request.display:
            return messages.Image()
        kind = messages.ImageFormat.ImgFormat.Name(request.format)
        size = fitted(self._system.device.size, request.width, request.height)
        answer = messages.Image(image=screen(self._system, kind, size), timestampUs=time.time_ns() // 1000)
        answer.format.format, (answer.format.width, answer.format.height) = request.format, size
        answer.format.rotation.rotation = messages.Rotation.PORTRAIT
        return answer

    async def screenshots(self, request: Any) -> AsyncIterator[Any]:
        """The screen now, and again whenever it has changed, until the client has enough."""
        seq = 0
        while True:
            seen = self._system.screen_key()
            answer = self.screenshot(request)
            answer.seq = seq
            yield answer
            while self._system.screen_key() == seen:
                await asyncio.sleep(FRAME_S)
            seq += 1

    @property
    def _feels(self) -> bool:
        """Whether inputs arrive: a phone that hangs, or is paused, gets none."""
        return self._machine.faults.kind is not Kind.HANG

    def touch(self, request: Any) -> Any:
        """Fingers that touch, move or lift; a pressure of 0 is one that lifts."""
        if self._feels and not request.display:
            for touch in request.touches:
                self._fingers.touch(touch.identifier, touch.x, touch.y, touch.pressure != 0)
        return messages.Empty()

    def mouse(self, request: Any) -> Any:
        """The mouse's place and buttons."""
        if self._feels and not request.display:
            self._fingers.mouse(request.x, request.y, request.buttons)
        return messages.Empty()

    def key(self, request: Any) -> Any:
        """A key by code, a key by the web's name of it, or text; keys that the phone lacks have no effect."""
        if request.keyCode and request.codeType not in _CODES:
            raise Rejected("UNIMPLEMENTED", "Key codes are those of USB, Linux (Evdev) or X (XKB) only.")
        if not self._feels:
            return messages.Empty()
        if request.text:
            self._keyboard.write(request.text)
        elif request.key:
            self._named_key(request.key, request.eventType)
        elif request.keyCode:
            self._press(_CODES[request.codeType](request.keyCode), request.eventType)
        return messages.Empty()

    def _named_key(self, name: str, event: int) -> None:
        if name in keys.NAMED:
            self._press(keys.NAMED[name], event)
        elif len(name) == 1 and event != _Key.keyup:
            self._keyboard.write(name)

    def _press(self, code: int | None, event: int) -> None:
        if code is None:
            return
        if event in (_Key.keydown, _Key.keypress):
            self._keyboard.down(code)
        if event in (_Key.keyup, _Key.keypress):
            self._keyboard.up(code)

    def run_state(self, request: Any) -> Any:
        """Whether the phone runs."""
        return _State(state=_State.PAUSED if self._machine.is_stopped else _State.RUNNING)

    def set_run_state(self, request: Any) -> Any:
        """Pauses, resumes, restarts or ends the phone; states that can only be observed change nothing."""
        machine, answer = self._machine, messages.Empty()
        if request.state in (_State.SHUTDOWN, _State.TERMINATE):
            return Then(answer, machine.kill)
        if request.state == _State.RESET:
            return Then(answer, machine.reset)
        if request.state == _State.PAUSED:
            machine.pause()
        elif request.state == _State.RUNNING:
            machine.resume()
        return answer


_CODES = {_Key.Usb: keys.of_usb, _Key.Evdev: keys.of_evdev, _Key.XKB: keys.of_xkb}
"""Android's key code, by kind of code."""


SNAPSHOTS = f"{messages.CONTROL}.SnapshotService"
_VERSION = 1
"""The version of the snapshots' description."""
_Details = messages.SnapshotDetails


class SnapshotService:
    """The service on one phone.

    Args:
        machine: The phone.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def methods(self) -> dict[str, tuple[Method, Any]]:
        """The methods by name: what carries it out, and the class of its request."""
        return {
            "ListSnapshots": (self.list, messages.SnapshotFilter),
            "SaveSnapshot": (self.save, messages.SnapshotPackage),
            "LoadSnapshot": (self.load, messages.SnapshotPackage),
            "DeleteSnapshot": (self.delete, messages.SnapshotPackage),
        }

    def list(self, request: Any) -> Any:
        """The snapshots; only those that would load, unless all are asked for."""
        answer = messages.SnapshotList()
        for found in self._machine.snapshots.list():
            status = self._status(found)
            if request.statusFilter == messages.SnapshotFilter.All or status != _Details.Incompatible:
                details = answer.snapshots.add(snapshot_id=found.name, status=status, size=found.size)
                details.details.version = _VERSION
                details.details.creation_time = int(found.saved_at)
                details.details.logical_name = found.name
        return answer

    def _status(self, found: Snapshot) -> int:
        if found.name == self._machine.loaded:
            return int(_Details.Loaded)
        fits = self._machine.snapshots.fits(found.name)
        return int(_Details.Compatible if fits else _Details.Incompatible)

    def save(self, request: Any) -> Any:
        """Keeps the present state under a new name."""
        name = request.snapshot_id
        if any(found.name == name for found in self._machine.snapshots.list()):
            return _failed(name, f"SnapshotPackage with {name} already exists!")
        return _tried(name, self._machine.save)

    def load(self, request: Any) -> Any:
        """Brings a state back."""
        return _tried(request.snapshot_id, self._machine.load)

    def delete(self, request: Any) -> Any:
        """Forgets a state."""
        return _tried(request.snapshot_id, self._forget)

    def _forget(self, name: str) -> None:
        try:
            self._machine.delete(name)
        except SnapshotMissing:
            return  # as the emulator: it is not there, which is what was asked for


def _failed(name: str, why: str) -> Any:
    return messages.SnapshotPackage(snapshot_id=name, success=False, err=why.encode())


def _tried(name: str, action: Callable[[str], None]) -> Any:
    """The answer of one that may fail."""
    try:
        action(name)
    except SnapshotMissing:
        return _failed(name, f"Could not find {name}")
    except Refused as refused:
        return _failed(name, str(refused))
    except DistrlError as error:
        return _failed(name, error.message)
    return messages.SnapshotPackage(snapshot_id=name, success=True)
