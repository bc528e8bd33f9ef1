"""Keys: Android's codes and what they do, and the codes and names that other systems have for them.

USB and X codes are translated to Linux's evdev codes, as the emulator does, and those to Android's by the
key layout of its virtual keyboard (qwerty2.kl): on it the key Home (102) is HOME, unlike on other keyboards.
"""

from __future__ import annotations

from string import ascii_lowercase


def _rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.replace("\n", " ").split(",")]


_CODES = """
HOME 3, BACK 4, CALL 5, ENDCALL 6, STAR 17, POUND 18, DPAD_UP 19, DPAD_DOWN 20, DPAD_LEFT 21,
DPAD_RIGHT 22, DPAD_CENTER 23, VOLUME_UP 24, VOLUME_DOWN 25, POWER 26, CAMERA 27, CLEAR 28, COMMA 55,
PERIOD 56, ALT_LEFT 57, ALT_RIGHT 58, SHIFT_LEFT 59, SHIFT_RIGHT 60, TAB 61, SPACE 62, SYM 63,
EXPLORER 64, ENVELOPE 65, ENTER 66, DEL 67, GRAVE 68, MINUS 69, EQUALS 70, LEFT_BRACKET 71,
RIGHT_BRACKET 72, BACKSLASH 73, SEMICOLON 74, APOSTROPHE 75, SLASH 76, AT 77, PLUS 81, MENU 82,
NOTIFICATION 83, SEARCH 84, MEDIA_PLAY_PAUSE 85, MEDIA_STOP 86, MEDIA_NEXT 87, MEDIA_PREVIOUS 88,
MUTE 91, PAGE_UP 92, PAGE_DOWN 93, ESCAPE 111, FORWARD_DEL 112, CTRL_LEFT 113, CTRL_RIGHT 114,
CAPS_LOCK 115, META_LEFT 117, META_RIGHT 118, MOVE_HOME 122, MOVE_END 123, INSERT 124, NUMPAD_DIVIDE 154,
NUMPAD_MULTIPLY 155, NUMPAD_SUBTRACT 156, NUMPAD_ADD 157, NUMPAD_DOT 158, NUMPAD_COMMA 159,
NUMPAD_ENTER 160, NUMPAD_EQUALS 161, NUMPAD_LEFT_PAREN 162, NUMPAD_RIGHT_PAREN 163, VOLUME_MUTE 164,
SETTINGS 176, APP_SWITCH 187, LANGUAGE_SWITCH 204, CONTACTS 207, CALENDAR 208, MUSIC 209, CALCULATOR 210,
ASSIST 219, BRIGHTNESS_DOWN 220, BRIGHTNESS_UP 221, SLEEP 223, WAKEUP 224, SOFT_SLEEP 276, CUT 277,
COPY 278, PASTE 279, ALL_APPS 284
"""
KEYCODES: dict[str, int] = {
    **{name: int(code) for name, code in _rows(_CODES)},
    **{str(digit): 7 + digit for digit in range(10)},
    **{letter.upper(): 29 + place for place, letter in enumerate(ascii_lowercase)},
    **{f"F{number}": 130 + number for number in range(1, 13)},
    **{f"NUMPAD_{digit}": 144 + digit for digit in range(10)},
}
"""Codes by name without "KEYCODE_"; those that nothing here reacts to are left out, but for common ones."""

CHARACTERS: dict[int, str] = {
    17: "*",
    18: "#",
    55: ",",
    56: ".",
    62: " ",
    68: "`",
    69: "-",
    70: "=",
    71: "[",
    72: "]",
    73: "\\",
    74: ";",
    75: "'",
    76: "/",
    77: "@",
    81: "+",
    154: "/",
    155: "*",
    156: "-",
    157: "+",
    158: ".",
    159: ",",
    161: "=",
    162: "(",
    163: ")",
    **{7 + digit: str(digit) for digit in range(10)},
    **{29 + place: letter for place, letter in enumerate(ascii_lowercase)},
    **{144 + digit: str(digit) for digit in range(10)},
}
"""What a key types."""

SHIFTED: dict[str, str] = dict(zip("`1234567890-=[]\\;',./", '~!@#$%^&*()_+{}|:"<>?', strict=True))
"""What a key types with shift, for those that type no letter."""

APPS: dict[str, str] = {
    "EXPLORER": "browser",
    "SETTINGS": "settings",
    "CONTACTS": "contacts",
    "CALCULATOR": "calculator",
}
"""Keys that open an app."""

XKB_OFFSET = 8
"""An X key code is the evdev code plus this."""
USB_KEYBOARD = 0x070000
"""The page of keyboard usages; usage codes are this plus the usage."""

_KEYS = """
A 30 04, B 48 05, C 46 06, D 32 07, E 18 08, F 33 09, G 34 0a, H 35 0b, I 23 0c, J 36 0d, K 37 0e, L 38 0f,
M 50 10, N 49 11, O 24 12, P 25 13, Q 16 14, R 19 15, S 31 16, T 20 17, U 22 18, V 47 19, W 17 1a, X 45 1b,
Y 21 1c, Z 44 1d, 1 2 1e, 2 3 1f, 3 4 20, 4 5 21, 5 6 22, 6 7 23, 7 8 24, 8 9 25, 9 10 26, 0 11 27,
ENTER 28 28, ESCAPE 1 29, DEL 14 2a, TAB 15 2b, SPACE 57 2c, MINUS 12 2d, EQUALS 13 2e, LEFT_BRACKET 26 2f,
RIGHT_BRACKET 27 30, BACKSLASH 43 31, SEMICOLON 39 33, APOSTROPHE 40 34, GRAVE 41 35, COMMA 51 36,
PERIOD 52 37, SLASH 53 38, CAPS_LOCK 58 39, F1 59 3a, F2 60 3b, F3 61 3c, F4 62 3d, F5 63 3e, F6 64 3f,
F7 65 40, F8 66 41, F9 67 42, F10 68 43, F11 87 44, F12 88 45, INSERT 110 49, HOME 102 4a, PAGE_UP 104 4b,
FORWARD_DEL 111 4c, MOVE_END 107 4d, PAGE_DOWN 109 4e, DPAD_RIGHT 106 4f, DPAD_LEFT 105 50, DPAD_DOWN 108 51,
DPAD_UP 103 52, NUMPAD_DIVIDE 98 54, NUMPAD_MULTIPLY 55 55, NUMPAD_SUBTRACT 74 56, NUMPAD_ADD 78 57,
NUMPAD_ENTER 96 58, NUMPAD_1 79 59, NUMPAD_2 80 5a, NUMPAD_3 81 5b, NUMPAD_4 75 5c, NUMPAD_5 76 5d,
NUMPAD_6 77 5e, NUMPAD_7 71 5f, NUMPAD_8 72 60, NUMPAD_9 73 61, NUMPAD_0 82 62, NUMPAD_DOT 83 63,
POWER 116 66, NUMPAD_EQUALS 117 67, VOLUME_MUTE 113 7f, VOLUME_UP 115 80, VOLUME_DOWN 114 81,
CTRL_LEFT 29 e0, SHIFT_LEFT 42 e1, ALT_LEFT 56 e2, META_LEFT 125 e3, CTRL_RIGHT 97 e4, SHIFT_RIGHT 54 e5,
ALT_RIGHT 100 e6, META_RIGHT 126 e7
"""
"""Android's name, evdev code, USB usage (hexadecimal) of the keys of a keyboard."""

_MORE = """
BACK 158 0c0224, MENU 139 0c0040, SEARCH 217 0c0221, DPAD_CENTER 232 0, APP_SWITCH 580 0c01a2, CAMERA 212 0,
BRIGHTNESS_UP 225 0c006f, BRIGHTNESS_DOWN 224 0c0070, SLEEP 142 010082, WAKEUP 143 010083
"""
"""The same for others; the last column is the whole USB code, 0 for none."""

_NAMED = """
Enter ENTER, Backspace DEL, Tab TAB, Escape ESCAPE, Delete FORWARD_DEL, Insert INSERT, CapsLock CAPS_LOCK,
ArrowUp DPAD_UP, ArrowDown DPAD_DOWN, ArrowLeft DPAD_LEFT, ArrowRight DPAD_RIGHT, Home HOME, End MOVE_END,
PageUp PAGE_UP, PageDown PAGE_DOWN, Shift SHIFT_LEFT, Control CTRL_LEFT, Alt ALT_LEFT, Meta META_LEFT,
GoBack BACK, GoHome HOME, AppSwitch APP_SWITCH, Power POWER, WakeUp WAKEUP, BrowserBack BACK,
BrowserSearch SEARCH, AudioVolumeUp VOLUME_UP, AudioVolumeDown VOLUME_DOWN, AudioVolumeMute VOLUME_MUTE,
BrightnessUp BRIGHTNESS_UP, BrightnessDown BRIGHTNESS_DOWN
"""
"""The names of the web's KeyboardEvent.key that do not stand for a character, and Android's."""

EVDEV: dict[int, int] = {int(row[1]): KEYCODES[row[0]] for row in _rows(_KEYS) + _rows(_MORE)}
"""Android's code by Linux's."""
USB: dict[int, int] = {
    **{USB_KEYBOARD + int(row[2], 16): int(row[1]) for row in _rows(_KEYS)},
    **{int(row[2], 16): int(row[1]) for row in _rows(_MORE) if row[2] != "0"},
}
"""Linux's code by USB's."""
NAMED: dict[str, int] = {
    **{row[0]: KEYCODES[row[1]] for row in _rows(_NAMED)},
    **{f"F{number}": KEYCODES[f"F{number}"] for number in range(1, 13)},
}
"""Android's code by the web's name."""
MODIFIERS: frozenset[int] = frozenset(
    KEYCODES[f"{name}_{side}"] for name in ("SHIFT", "CTRL", "ALT", "META") for side in ("LEFT", "RIGHT")
)
"""The keys that only change what others do while they are held."""


def of_usb(code: int) -> int | None:
    """Android's code of a USB usage code, None for a key that the phone does not know."""
    return EVDEV.get(USB.get(code, 0))


def of_evdev(code: int) -> int | None:
    """The same of a Linux code."""
    return EVDEV.get(code)


def of_xkb(code: int) -> int | None:
    """The same of an X key code."""
    return EVDEV.get(code - XKB_OFFSET)
