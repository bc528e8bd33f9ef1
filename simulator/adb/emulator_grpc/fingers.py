"""Fingers and a mouse on the phone's screen, as gRPC reports them: one event for each change of a finger.

The phone follows one finger: the first that touches, until it lifts. A touch that begins outside of the
screen is none, and where a finger lifts is where it was last: what a lifting event says of it is not read.
"""

from __future__ import annotations

from distrl.simulator.adb.android import AndroidSystem

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
