"""Keys: Android's codes and what they do, and Linux's codes of the same keys.

Linux's codes are those of the emulator's virtual keyboard (qwerty2.kl): on it the key Home (102) is HOME,
unlike on other keyboards.
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
_SIGNS = r"""
STAR * POUND # COMMA , PERIOD . GRAVE ` MINUS - EQUALS = LEFT_BRACKET [ RIGHT_BRACKET ] BACKSLASH \
SEMICOLON ; APOSTROPHE ' SLASH / AT @ PLUS + NUMPAD_DIVIDE / NUMPAD_MULTIPLY * NUMPAD_SUBTRACT - NUMPAD_ADD +
NUMPAD_DOT . NUMPAD_COMMA , NUMPAD_EQUALS = NUMPAD_LEFT_PAREN ( NUMPAD_RIGHT_PAREN )
"""
CHARACTERS: dict[int, str] = {
    KEYCODES["SPACE"]: " ",
    **{KEYCODES[name]: sign for name, sign in zip(_SIGNS.split()[::2], _SIGNS.split()[1::2], strict=True)},
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
"""An X key code is Linux's evdev code plus this."""
_EVDEV = """
A 30, B 48, C 46, D 32, E 18, F 33, G 34, H 35, I 23, J 36, K 37, L 38, M 50, N 49, O 24, P 25, Q 16,
R 19, S 31, T 20, U 22, V 47, W 17, X 45, Y 21, Z 44, 1 2, 2 3, 3 4, 4 5, 5 6, 6 7, 7 8, 8 9, 9 10, 0 11,
ENTER 28, ESCAPE 1, DEL 14, TAB 15, SPACE 57, MINUS 12, EQUALS 13, LEFT_BRACKET 26, RIGHT_BRACKET 27,
BACKSLASH 43, SEMICOLON 39, APOSTROPHE 40, GRAVE 41, COMMA 51, PERIOD 52, SLASH 53, CAPS_LOCK 58, F1 59,
F2 60, F3 61, F4 62, F5 63, F6 64, F7 65, F8 66, F9 67, F10 68, F11 87, F12 88, INSERT 110, HOME 102,
PAGE_UP 104, FORWARD_DEL 111, MOVE_END 107, PAGE_DOWN 109, DPAD_RIGHT 106, DPAD_LEFT 105, DPAD_DOWN 108,
DPAD_UP 103, NUMPAD_DIVIDE 98, NUMPAD_MULTIPLY 55, NUMPAD_SUBTRACT 74, NUMPAD_ADD 78, NUMPAD_ENTER 96,
NUMPAD_1 79, NUMPAD_2 80, NUMPAD_3 81, NUMPAD_4 75, NUMPAD_5 76, NUMPAD_6 77, NUMPAD_7 71, NUMPAD_8 72,
NUMPAD_9 73, NUMPAD_0 82, NUMPAD_DOT 83, POWER 116, NUMPAD_EQUALS 117, VOLUME_MUTE 113, VOLUME_UP 115,
VOLUME_DOWN 114, CTRL_LEFT 29, SHIFT_LEFT 42, ALT_LEFT 56, META_LEFT 125, CTRL_RIGHT 97, SHIFT_RIGHT 54,
ALT_RIGHT 100, META_RIGHT 126, BACK 158, MENU 139, SEARCH 217, DPAD_CENTER 232, APP_SWITCH 580,
CAMERA 212, BRIGHTNESS_UP 225, BRIGHTNESS_DOWN 224, SLEEP 142, WAKEUP 143
"""
BY_EVDEV: dict[int, int] = {int(code): KEYCODES[name] for name, code in _rows(_EVDEV)}
"""Android's code by Linux's."""
MODIFIERS: frozenset[int] = frozenset(
    KEYCODES[f"{name}_{side}"] for name in ("SHIFT", "CTRL", "ALT", "META") for side in ("LEFT", "RIGHT")
)
"""The keys that only change what others do while they are held."""
