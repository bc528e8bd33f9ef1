"""Input of the simulated phone: touch, keys and text, and the input methods that adb talks to.

ADBKeyboard (github.com/senzhk/ADBKeyBoard) and the keyboard that uiautomator2 brings along type any character
that arrives in broadcasts, while they are the chosen input method.
"""

from __future__ import annotations

import base64
import binascii
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from distrl.simulator.adb.keys import APPS, CHARACTERS, KEYCODES, SHIFTED
from distrl.simulator.adb.packages import ADB_KEYBOARD
from distrl.simulator.phone import keyboard
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import WIDTH
from distrl.simulator.phone.state import State
from distrl.workers.devices.device import Key

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem
    from distrl.simulator.device import SimDevice

TOUCH_SLOP_DP = 24.0
"""A finger that moves less than this does not move; the phone's screen has the same rule."""
TYPABLE = frozenset(map(chr, range(32, 127))) | set("\n\tçÇß")
"""The characters that the virtual keyboard can type; `input text` fails on any other."""
_NAMES = {code: name for name, code in KEYCODES.items()}


class Input:
    """The input system of one phone. A display that is off takes nothing but the keys that wake it."""

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._down: tuple[float, float, float] | None = None
        self._selected = False

    def reset(self) -> None:
        """Lifts the finger."""
        self._down = None
        self._selected = False

    def _long_press_ms(self) -> int:
        text = self._system.settings.get("secure", "long_press_timeout") or ""
        return int(text) if text.isdecimal() and len(text) < 7 else 400

    def _touch(self, touch: Callable[[SimDevice], None]) -> None:
        self._selected = False
        if self._system.screen_on:
            touch(self._system.device)
            self._system.activities.observe()

    def tap(self, x: float, y: float) -> None:
        """A short touch, in pixels."""
        self._touch(lambda device: device.tap(math.floor(x), math.floor(y)))

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: float = 300) -> None:
        """A finger that moves; one that stays where it is long enough is a long press."""
        slop = TOUCH_SLOP_DP * self._system.device.size[0] / WIDTH
        start, end = (math.floor(x1), math.floor(y1)), (math.floor(x2), math.floor(y2))
        if max(abs(x2 - x1), abs(y2 - y1)) >= slop:
            self._touch(lambda device: device.swipe(*start, *end, round(duration_ms)))
        elif duration_ms >= self._long_press_ms():
            self._touch(lambda device: device.long_press(*start))
        else:
            self.tap(x1, y1)

    def motion(self, action: str, x: float, y: float) -> None:
        """One event of one finger: "DOWN", "MOVE", "UP" or "CANCEL"; what it was is decided when it lifts."""
        if action == "DOWN":
            self._down = (x, y, time.monotonic())
        elif action == "CANCEL":
            self._down = None
        elif action == "UP" and self._down is not None:
            x1, y1, since = self._down
            self._down = None
            self.swipe(x1, y1, x, y, (time.monotonic() - since) * 1000)

    def text(self, text: str) -> bool:
        """Types text as the virtual keyboard can; False, and nothing typed, when it lacks a character."""
        if not set(text) <= TYPABLE:
            return False
        self.commit(text)
        return True

    def commit(self, text: str) -> None:
        """Text that an input method puts into the focused field, whatever its characters."""
        if not self._system.screen_on:
            return
        if self._selected and text:
            self._edit(_clear)
            self._selected = False
        self._system.device.type_text(text)
        self._system.activities.observe()

    def clear_field(self) -> None:
        """Empties the focused field."""
        self._edit(_clear)

    def key(self, code: int, shift: bool = False) -> None:
        """Presses a key by its Android code; keys without a meaning here have no effect."""
        name = _NAMES.get(code, "")
        if name in ("POWER", "SLEEP", "SOFT_SLEEP", "WAKEUP"):
            self._system.power(not self._system.screen_on if name == "POWER" else name == "WAKEUP")
            return
        if not self._system.screen_on:
            if name in ("HOME", "MENU"):
                self._system.power(True)
            return
        if name in ("BACK", "ESCAPE"):
            self._system.device.key(Key.BACK)
        elif name == "HOME":
            self._system.device.key(Key.HOME)
        elif name in ("ENTER", "NUMPAD_ENTER"):
            self._system.device.key(Key.ENTER)
        elif code in CHARACTERS:
            plain = CHARACTERS[code]
            self.commit((SHIFTED.get(plain) or plain.upper()) if shift else plain)
        elif name == "DEL":
            self._edit(_clear if self._selected else _backspace)
            self._selected = False
        elif name == "NOTIFICATION":
            self._system.device.phone.pull_shade(True)
        elif name in APPS:
            self._system.activities.open(APPS[name])
        else:
            self._level(name)
        self._system.activities.observe()

    def combination(self, codes: list[int]) -> None:
        """Keys that are held together: control with A selects all text, shift types capitals."""
        names = {_NAMES.get(code, "") for code in codes[:-1]}
        last = codes[-1]
        if names & {"CTRL_LEFT", "CTRL_RIGHT"}:
            self._selected = _NAMES.get(last) == "A" and bool(self._system.state["focus"])
            return
        shift = bool(names & {"SHIFT_LEFT", "SHIFT_RIGHT"})
        is_held = shift or names & {"ALT_LEFT", "ALT_RIGHT", "META_LEFT", "META_RIGHT"}
        for code in [last] if is_held else codes:
            self.key(code, shift)

    def _edit(self, change: Callable[[State], None]) -> None:
        """A change by an input: it takes phone time and dismisses the toast, as any input does."""

        def edit(state: State) -> None:
            state["elapsed_s"] += st.STEP_S
            state["toast"] = ""
            change(state)

        if self._system.screen_on:
            self._system.change(edit)

    def _level(self, name: str) -> None:
        steps = {
            "VOLUME_UP": ("volume", 7),
            "VOLUME_DOWN": ("volume", -7),
            "VOLUME_MUTE": ("volume", -100),
            "BRIGHTNESS_UP": ("brightness", 10),
            "BRIGHTNESS_DOWN": ("brightness", -10),
        }
        if name not in steps:
            self._edit(lambda state: None)
            return
        key, step = steps[name]

        def change(state: State) -> None:
            values = state["apps"]["settings"]
            values[key] = min(100, max(0, values[key] + step))

        self._edit(change)


def _backspace(state: State) -> None:
    if state["focus"]:
        keyboard.press(state, "backspace")


def _clear(state: State) -> None:
    if state["focus"]:
        state["fields"][state["focus"]] = ""


def keycode(text: str) -> int:
    """The code of a key by number or name, with or without "KEYCODE_"; 0 for an unknown one."""
    if text.isascii() and text.isdecimal():
        return int(text[:6])
    name = text.upper()
    return KEYCODES.get(name.removeprefix("KEYCODE_"), 0)


SOFT = "org.simphone.keyboard/.SoftKeyboard"
_U2 = "com.github.uiautomator"
Reply = tuple[int, str | None]
"""A broadcast's result code and data."""
_UNHEARD: Reply = (0, None)
_DONE: Reply = (-1, "success")


class InputMethods:
    """The input methods of one phone."""

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
        """The chosen input method's result code and data for a broadcast; (0, None) if it does not listen."""
        package = self.current.partition("/")[0]
        if package == ADB_KEYBOARD and action.startswith("ADB_"):
            self._adb_keyboard(action, extras)
            return _UNHEARD
        if package == _U2 and action.startswith("ADB_KEYBOARD_"):
            return self._u2(action, extras)
        return _UNHEARD

    def _adb_keyboard(self, action: str, extras: Mapping[str, str]) -> None:
        keys, message = self._system.input, extras.get("msg", "")
        if action in ("ADB_INPUT_TEXT", "ADB_INPUT_B64"):
            if text := message if action == "ADB_INPUT_TEXT" else _decoded(message):
                keys.commit(text)
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
    try:
        return base64.b64decode(text).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
