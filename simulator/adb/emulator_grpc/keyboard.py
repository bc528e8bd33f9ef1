"""The phone's hardware keyboard, as gRPC presses it: keys go down and up, and some are held."""

from __future__ import annotations

from distrl.simulator.adb import keys
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.input import TYPABLE


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
