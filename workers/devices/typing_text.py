"""Typing any text into the focused field of a device, whatever a model came up with.

Android's `input text` turns every "%s" into a space and fails on characters that its virtual keyboard lacks:
spaces travel as "%s", a "%s" that is meant is cut in two, and a line break becomes the enter key. Text beyond
ASCII needs the ADBKeyboard app: it is made the input method, given the text as base64, and the former input
method is put back. Control characters, which no keyboard types, are left out. Every word is quoted for the
device's shell; none reaches a shell of this machine.
"""

from __future__ import annotations

import base64
import contextlib
import re
import shlex
from collections.abc import Iterator

from distrl.workers.devices.adb import AdbClient, Deadline
from distrl.workers.devices.errors import DeviceError, Untypable

KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""The input method that types text beyond ASCII."""
MAX_CHUNK = 250
"""Most characters handed over at once; old devices take no longer command than 4096 bytes."""
INPUT_S = 5.0
"""Time for one input, besides the time that it takes by itself."""
_CHARACTER_S = 0.05
_READ_S = 5.0
_BOUND_S, _LOOK_S = 3.0, 0.1
_UNSET = ("", "null")
_ENTER = "keyevent 66"
_METHODS = "ime list -a -s && echo = && settings get secure default_input_method"


def type_text(client: AdbClient, text: str) -> None:
    """Types `text`; nothing if it goes beyond ASCII and the device has no ADBKeyboard (Untypable)."""
    clean = _typable(text)
    if clean.isascii():
        for command in _commands(clean, client.display.input):
            client.act(command, INPUT_S + _CHARACTER_S * len(command))
        return
    former = _choose_keyboard(client)
    try:
        if former != KEYBOARD:
            _wait_bound(client)
        for command in _broadcasts(clean, client.display.input):
            client.act(command, INPUT_S)
    except DeviceError:
        with contextlib.suppress(DeviceError):  # it may be gone; one that is only slow would keep ADBKeyboard
            _restore_keyboard(client, former)
        raise
    _restore_keyboard(client, former)


def _typable(text: str) -> str:
    """`text` without control characters but line breaks, and without halves of surrogate pairs."""
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", "", text)


def _commands(text: str, to: str) -> Iterator[str]:
    """The commands that type an ASCII text. An empty one is an input, too: it has no effect but its time."""
    for place, line in enumerate(text.split("\n")):
        if place:
            yield f"{to} {_ENTER}"
        for part in re.split(r"(?<=%)(?=s)", line):  # a "%s" would become a space
            for at in range(0, len(part), MAX_CHUNK):
                yield f"{to} text {shlex.quote(part[at : at + MAX_CHUNK].replace(' ', '%s'))}"
    if not text:
        yield f"{to} text ''"


def _broadcasts(text: str, to: str) -> Iterator[str]:
    for place, line in enumerate(text.split("\n")):
        if place:
            yield f"{to} {_ENTER}"
        for at in range(0, len(line), MAX_CHUNK):
            message = base64.b64encode(line[at : at + MAX_CHUNK].encode("utf-8")).decode("ascii")
            yield f"am broadcast -a ADB_INPUT_B64 --es msg {message}"


def _choose_keyboard(client: AdbClient) -> str:
    """Makes ADBKeyboard the input method. Returns the one that was it before."""
    all_of_them, _, current = client.check(_METHODS, _READ_S, reads=True).text.partition("=\n")
    installed, former = all_of_them.split(), current.strip()
    if KEYBOARD not in installed:
        raise Untypable(
            "text beyond ASCII cannot be typed: `input text` has no such characters.",
            "Install ADBKeyboard, v2.5-dev or newer (package com.android.adbkeyboard), on the device.",
            serial=client.serial,
            evidence="input methods: " + " ".join(installed),
        )
    if former != KEYBOARD:
        client.check(f"ime enable {KEYBOARD} && ime set {KEYBOARD}", _READ_S, reads=True)
    return former


def _restore_keyboard(client: AdbClient, former: str) -> None:
    if former in _UNSET:
        client.check("ime reset", _READ_S, reads=True)
    elif former != KEYBOARD:
        client.check(f"ime set {shlex.quote(former)}", _READ_S, reads=True)


def _wait_bound(client: AdbClient) -> None:
    """Waits until the input method listens: earlier broadcasts are lost, and Android does not report that.

    After `_BOUND_S` it is assumed to: beside a hardware keyboard Android shows no other, and dumps differ.
    """
    deadline = Deadline(_BOUND_S, "ADBKeyboard", client.serial)
    while left := deadline.left:
        dump = client.shell("dumpsys input_method", _READ_S, reads=True).text
        is_bound = f"mCurId={KEYBOARD}" in dump and not re.search(r"mHa\w*Connection=false", dump)
        # It registers for broadcasts when its view is made (before v2.5-dev), so when it is first shown.
        # Where no field is focused that does not happen, and there is nothing to type into either.
        if is_bound and ("mInputShown=false" not in dump or "mServedView=null" in dump):
            return
        client.sleep(min(_LOOK_S, left))
