"""What touches and shows the screen: input, screencap, uiautomator, wm."""

from __future__ import annotations

import math
import re
import struct

from distrl.simulator.adb.call import Call, Command, Failure, thrown
from distrl.simulator.adb.input import keycode

DISPLAY_ID = "4619827259835644672"
"""The physical display's id, as SurfaceFlinger names it."""
_RGBA_8888, _SRGB = 1, 1
_HIERARCHY_FILE = "/sdcard/window_dump.xml"
_FLOAT = re.compile(r"[-+]?(\d{1,9}(\.\d*)?|\.\d+)([eE][-+]?\d{1,2})?")


class _Args:
    """The arguments of one `input`, taken one after the other."""

    def __init__(self, args: list[str]) -> None:
        self.rest = list(args)
        self.verb = ""

    def next(self) -> str:
        if not self.rest:
            raise thrown("IllegalArgumentException", f'Argument expected after "{self.verb}"', self.verb)
        return self.rest.pop(0)

    def number(self) -> float:
        text = self.next()
        if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)) or abs(float(text)) > 1e9:
            raise self.invalid()
        return float(text)

    def invalid(self) -> Failure:
        message = f"Error: Invalid arguments for command: {self.verb}"
        return thrown("IllegalArgumentException", message, self.verb)


async def input_(call: Call) -> int:
    """input [-d DISPLAY] COMMAND [ARG…]"""
    args = _Args(call.args)
    if args.rest[:1] == ["-d"]:
        args.rest = args.rest[2:]
    args.verb = args.rest.pop(0) if args.rest else ""
    work = _INPUTS.get(args.verb)
    if work is None:
        raise Failure(f"Unknown command: {args.verb} (supported: {', '.join(_INPUTS)})", 255, prefixed=False)
    work(call, args)
    return 0


def _text(call: Call, args: _Args) -> None:
    if not call.system.input.text(_unescaped(args.next())):
        raise thrown("NullPointerException", "Attempt to get length of null array", "text")


def _unescaped(text: str) -> str:
    """`%s` becomes a space, exactly as the real command does it: a "%" before "%s" stays."""
    out: list[str] = []
    escape = False
    for char in text:
        if escape and char == "s":
            out[-1] = " "
            escape = False
            continue
        out.append(char)
        escape = char == "%"
    return "".join(out)


def _keyevent(call: Call, args: _Args) -> None:
    """keyevent [--longpress] KEY… [--longpress]: a long press acts like a short one."""
    for name in [args.next(), *args.rest]:
        if name != "--longpress":
            call.system.input.key(keycode(name))


def _tap(call: Call, args: _Args) -> None:
    call.system.input.tap(args.number(), args.number())


def _swipe(call: Call, args: _Args) -> None:
    x1, y1, x2, y2 = (args.number() for _ in range(4))
    duration = args.number() if args.rest and args.rest[0] else 300
    call.system.input.swipe(x1, y1, x2, y2, 300 if duration < 0 else duration)


def _trackball(call: Call, args: _Args) -> None:
    """press and roll: the phone has no trackball that anything reacts to."""


_INPUTS = {
    "draganddrop": _swipe,
    "keyevent": _keyevent,
    "press": _trackball,
    "roll": _trackball,
    "swipe": _swipe,
    "tap": _tap,
    "text": _text,
}


async def screencap(call: Call) -> int:
    """screencap [-p] [-d DISPLAY] [FILE]: PNG, or raw RGBA behind a header of 16 bytes."""
    options, paths = call.options("p", "d")
    if options.get("d", DISPLAY_ID) != DISPLAY_ID:
        await call.error(f"Display Id '{options['d']}' is not valid.")
        return 1
    path = paths[0] if paths else ""
    if "p" in options or path.endswith(".png"):
        data = call.system.screenshot_png()
    else:
        picture = call.system.screenshot().convert("RGBA")
        data = struct.pack("<4I", picture.width, picture.height, _RGBA_8888, _SRGB) + picture.tobytes()
    if not path:
        await call.write(data)
        return 0
    try:
        call.files.write(call.path(path), data)
    except OSError as error:
        await call.error(f"Error opening file: {path} ({error.strerror})")
        return 1
    return 0


async def uiautomator(call: Call) -> int:
    """uiautomator dump [FILE]"""
    if call.args[:1] != ["dump"] or len(call.args) > 2 or call.args[-1].startswith("-"):
        raise Failure(f"`uiautomator {' '.join(call.args)}` is not on the simulated phone", prefixed=False)
    path = call.args[1] if len(call.args) > 1 else _HIERARCHY_FILE
    if not call.system.screen_on:
        await call.error("ERROR: null root node returned by UiTestAutomationBridge.")
        return 0
    xml = call.system.device.hierarchy().replace("\n", "")
    # The real declaration stands on the same line as the tree.
    if path == "/dev/tty":
        await call.write(f"{xml}UI hierchary dumped to: {path}\n")
        return 0
    try:
        call.files.write(call.path(path), xml.encode(), mode=0o660)
    except OSError as error:
        await call.error(f"java.io.FileNotFoundException: {path}: open failed: {error.strerror}")
        return 1
    await call.line(f"UI hierchary dumped to: {path}")
    return 0


async def wm(call: Call) -> int:
    """wm size | density [-d DISPLAY] | dismiss-keyguard"""
    verb, args = (call.args[0], call.args[1:]) if call.args else ("", [])
    if "-d" in args:
        place = args.index("-d")
        del args[place : place + 2]
    width, height = call.system.device.size
    value = f"{width}x{height}" if verb == "size" else str(call.system.density)
    if verb in ("size", "density"):
        if not args:
            await call.line(f"Physical {verb}: {value}")
        elif args[0] not in ("reset", value):
            message = f"Error: the simulated phone's {verb} is fixed at {value}; start it with another one."
            raise Failure(message, 255, prefixed=False)
    elif verb != "dismiss-keyguard":
        raise Failure(f"Unknown command: {verb} (supported: size, density, dismiss-keyguard)", 255, False)
    return 0


COMMANDS: dict[str, Command] = {
    "input": input_,
    "screencap": screencap,
    "uiautomator": uiautomator,
    "wm": wm,
}
