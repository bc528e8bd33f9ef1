"""Input methods of the simulated phone: which are installed, enabled and chosen, and those that adb talks to.

ADBKeyboard (github.com/senzhk/ADBKeyBoard) and the keyboard that uiautomator2 brings along type what arrives
in broadcasts, any character of it. They only listen while they are the chosen input method.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distrl.simulator.adb.packages import ADB_KEYBOARD

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

SOFT = "org.simphone.keyboard/.SoftKeyboard"
_U2 = "com.github.uiautomator"
Reply = tuple[int, str | None]
"""A broadcast's result code and data."""
_UNHEARD: Reply = (0, None)
_DONE: Reply = (-1, "success")


class InputMethods:
    """The input methods of one phone.

    Args:
        system: The phone.
    """

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system

    def all(self) -> list[str]:
        """The installed ones, by id."""
        return [f"{each.name}/{each.ime}" for each in self._system.packages.all() if each.ime]

    @property
    def current(self) -> str:
        """The chosen one, "" for none."""
        chosen = self._system.settings.get("secure", "default_input_method") or ""
        return chosen if chosen in self.all() else ""

    def enabled(self) -> list[str]:
        """Those that may be chosen."""
        text = self._system.settings.get("secure", "enabled_input_methods") or ""
        names = {part.split(";")[0] for part in text.split(":")}
        return [name for name in self.all() if name in names]

    def enable(self, name: str, on: bool = True) -> bool:
        """Enables or disables one; whether it was so before."""
        names = self.enabled()
        before = name in names
        if before != on:
            names = [*names, name] if on else [each for each in names if each != name]
            self._system.settings.put("secure", "enabled_input_methods", ":".join(names))
        if not on and self.current == name:
            self.choose(SOFT)
        return before == on

    def choose(self, name: str) -> None:
        """Makes one the input method."""
        self._system.settings.put("secure", "default_input_method", name)

    def reset(self) -> None:
        """Brings back the phone's own."""
        self._system.settings.reset("secure", "enabled_input_methods")
        self._system.settings.reset("secure", "default_input_method")

    @property
    def shown(self) -> bool:
        """Whether a keyboard is on the screen."""
        return bool(self._system.state["focus"])

    def broadcast(self, action: str, extras: Mapping[str, str]) -> Reply:
        """Hands a broadcast to the chosen input method.

        Args:
            action: The intent's action.
            extras: Its extras as text.

        Returns:
            The result code and data; `(0, None)` when nobody listens.
        """
        package = self.current.partition("/")[0]
        if package == ADB_KEYBOARD and action.startswith("ADB_"):
            self._adb_keyboard(action, extras)
            return _UNHEARD
        if package == _U2 and action.startswith("ADB_KEYBOARD_"):
            return self._u2(action, extras)
        return _UNHEARD

    def _adb_keyboard(self, action: str, extras: Mapping[str, str]) -> None:
        keys, message = self._system.input, extras.get("msg", "")
        if action == "ADB_INPUT_TEXT" and message:
            keys.commit(message)
        elif action == "ADB_INPUT_B64" and message:
            text = _decoded(message)
            if text is not None:
                keys.commit(text)
        elif action == "ADB_INPUT_CHARS":
            codes = [part.strip() for part in extras.get("chars", "").split(",")]
            points = [int(code) for code in codes if code.isdecimal() and len(code) < 8]
            keys.commit("".join(chr(code) for code in points if code <= 0x10FFFF))
        elif action == "ADB_INPUT_CODE" and extras.get("code", "").isdecimal():
            keys.key(int(extras["code"][:6]))
        elif action == "ADB_EDITOR_CODE":
            keys.key(66)
        elif action == "ADB_CLEAR_TEXT":
            keys.clear_field()

    def _u2(self, action: str, extras: Mapping[str, str]) -> Reply:
        keys = self._system.input
        if action in ("ADB_KEYBOARD_INPUT_TEXT", "ADB_KEYBOARD_SET_TEXT"):
            text = _decoded(extras.get("text", ""))
            if text is None:
                return 0, "bad base64"
            if action == "ADB_KEYBOARD_SET_TEXT":
                keys.clear_field()
            keys.commit(text)
        elif action == "ADB_KEYBOARD_CLEAR_TEXT":
            keys.clear_field()
        elif action in ("ADB_KEYBOARD_EDITOR_CODE", "ADB_KEYBOARD_SMART_ENTER"):
            keys.key(66)
        elif action == "ADB_KEYBOARD_HIDE":
            if self.shown:
                keys.key(4)
        else:
            return _UNHEARD
        return _DONE


def _decoded(text: str) -> str | None:
    """Base64 as text, None when it is none."""
    try:
        return base64.b64decode(text).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
