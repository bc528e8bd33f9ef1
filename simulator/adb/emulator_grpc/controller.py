"""The service android.emulation.control.EmulatorController: status, screen, touch, keys, run state."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from distrl.simulator.adb import keys
from distrl.simulator.adb.emulator_grpc import messages, pictures
from distrl.simulator.adb.emulator_grpc.answers import Method, Rejected, Then
from distrl.simulator.adb.emulator_grpc.fingers import Fingers
from distrl.simulator.adb.emulator_grpc.keyboard import Keyboard
from distrl.simulator.adb.faults import Kind
from distrl.simulator.adb.machine import Machine

NAME = f"{messages.CONTROL}.EmulatorController"
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
            raise Rejected("INVALID_ARGUMENT", f"There is no image format {request.format}.")
        if max(request.width, request.height) > pictures.MAX_SIDE:
            raise Rejected("INVALID_ARGUMENT", f"A picture has at most {pictures.MAX_SIDE} pixels a side.")
        if request.display:
            return messages.Image()
        kind = messages.ImageFormat.ImgFormat.Name(request.format)
        size = pictures.fitted(self._system.device.size, request.width, request.height)
        answer = messages.Image(
            image=pictures.screen(self._system, kind, size), timestampUs=time.time_ns() // 1000
        )
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
