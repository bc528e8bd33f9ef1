"""`input`: touch, keys and text."""

from __future__ import annotations

import asyncio
import math
import re

from distrl.simulator.adb.android_input import keycode
from distrl.simulator.adb.shell.call import Call, Command, Failure

_SOURCES = (
    "dpad",
    "gamepad",
    "joystick",
    "keyboard",
    "mouse",
    "rotaryencoder",
    "stylus",
    "touchnavigation",
    "touchpad",
    "touchscreen",
    "trackball",
)
_USAGE = """Usage: input [<source>] [-d DISPLAY_ID] <command> [<arg>...]

The sources are:
{sources}
-d: specify the display ID.
      (Default: -1 for key event, 0 for motion event if not specified.)
The commands and default sources are:
      text <string> (Default: keyboard)
      keyevent [--longpress|--doubletap|--async|--delay <duration between keycodes in ms>] <key code number or name> ... (Default: keyboard)
      tap <x> <y> (Default: touchscreen)
      swipe <x1> <y1> <x2> <y2> [duration(ms)] (Default: touchscreen)
      draganddrop <x1> <y1> <x2> <y2> [duration(ms)] (Default: touchscreen)
      press (Default: trackball)
      roll <dx> <dy> (Default: trackball)
      motionevent <DOWN|UP|MOVE|CANCEL> <x> <y> (Default: touchscreen)
      scroll (Default: rotaryencoder). Has the following syntax:
            scroll <x> <y> [axis_value] (for pointer-based sources)
            scroll [axis_value] (for non-pointer-based sources)
      keycombination [-t duration(ms)] <key code 1> <key code 2> ... (Default: keyboard, the key order is important here.)
"""  # noqa: E501
_FLOAT = re.compile(r"[-+]?(\d{1,9}(\.\d*)?|\.\d+)([eE][-+]?\d{1,2})?[fFdD]?")
_MAX_DELAY_MS = 10_000


def _exception(kind: str, message: str, verb: str) -> Failure:
    """A failure as Android's shell commands report an exception."""
    text = f"java.lang.{kind}: {message}"
    return Failure(
        f"\nException occurred while executing '{verb}':\n{text}\n"
        "\tat com.android.server.input.InputShellCommand.onCommand(InputShellCommand.java)\n"
        "\tat com.android.modules.utils.BasicShellCommandHandler.exec(BasicShellCommandHandler.java:97)\n"
        "\tat android.os.ShellCommand.exec(ShellCommand.java:38)",
        255,
        prefixed=False,
    )


class _Args:
    """The arguments of one `input`, taken one after the other."""

    def __init__(self, args: list[str]) -> None:
        self.rest = list(args)
        self.verb = self.rest[0] if self.rest else ""

    def next(self) -> str:
        if not self.rest:
            raise _exception(
                "IllegalArgumentException", 'Argument expected after "' + self.verb + '"', self.verb
            )
        return self.rest.pop(0)

    def number(self) -> float:
        text = self.next()
        if not _FLOAT.fullmatch(text):
            raise self.invalid()
        value = float(text.rstrip("fFdD"))
        if not math.isfinite(value) or abs(value) > 1e9:
            raise self.invalid()
        return value

    def whole(self) -> int:
        text = self.next()
        if not re.fullmatch(r"[-+]?\d{1,9}", text):
            raise self.invalid()
        return int(text)

    def invalid(self) -> Failure:
        message = f"Error: Invalid arguments for command: {self.verb}"
        return _exception("IllegalArgumentException", message, self.verb)


async def input_(call: Call) -> int:
    """input [SOURCE] [-d DISPLAY] COMMAND [ARG…]"""
    args = _Args(call.args)
    source = args.rest.pop(0) if args.rest and args.rest[0] in _SOURCES else ""
    if args.rest[:1] == ["-d"]:
        args.rest.pop(0)
        args.next()
    if not args.rest:
        await call.write(_USAGE.format(sources="\n".join(f"      {each}" for each in _SOURCES)))
        return 255
    args.verb = args.rest.pop(0)
    work = _VERBS.get(args.verb)
    if work is not None:
        await work(call, args)
        return 0
    if args.verb == "scroll":
        _scroll(call, args, source)
        return 0
    if args.verb in ("help", "-h"):
        await call.write(_USAGE.format(sources="\n".join(f"      {each}" for each in _SOURCES)))
        return 0
    await call.line(f"Unknown command: {args.verb}")
    return 255


async def _text(call: Call, args: _Args) -> None:
    text = args.next()
    if not call.system.input.text(_unescaped(text)):
        raise _exception("NullPointerException", "Attempt to get length of null array", "text")


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


async def _keyevent(call: Call, args: _Args) -> None:
    twice, delay_ms = False, 0
    arg = args.next()
    while arg.startswith("--"):
        twice = twice or arg == "--doubletap"
        if arg == "--delay":
            delay_ms = min(_MAX_DELAY_MS, max(0, args.whole()))
        if not args.rest:
            raise args.invalid()
        arg = args.next()
    for place, name in enumerate([arg, *args.rest]):
        if place and delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        for _ in range(1 + twice):
            call.system.input.key(keycode(name))


async def _tap(call: Call, args: _Args) -> None:
    call.system.input.tap(args.number(), args.number())


async def _swipe(call: Call, args: _Args) -> None:
    x1, y1, x2, y2 = (args.number() for _ in range(4))
    duration = args.whole() if args.rest else 300
    call.system.input.swipe(x1, y1, x2, y2, 300 if duration < 0 else duration)


async def _motion(call: Call, args: _Args) -> None:
    action = args.next().upper()
    if action not in ("DOWN", "UP", "MOVE", "CANCEL"):
        raise _exception("IllegalArgumentException", f"Unknown action: {action}", args.verb)
    place = (0.0, 0.0) if action == "CANCEL" and len(args.rest) < 2 else (args.number(), args.number())
    call.system.input.motion(action, *place)


async def _combination(call: Call, args: _Args) -> None:
    if args.rest[:1] == ["-t"]:
        args.next()
        args.whole()
    names = [args.next(), *args.rest]
    codes = [keycode(name) for name in names]
    for name, code in zip(names, codes, strict=True):
        if code == 0:
            raise _exception("IllegalArgumentException", f"Unknown keycode: {name}", args.verb)
    if len(codes) < 2:
        message = "keycombination requires at least 2 keycodes"
        raise _exception("IllegalArgumentException", message, args.verb)
    call.system.input.combination(codes)


async def _trackball(call: Call, args: _Args) -> None:
    """press and roll: the phone has no trackball that anything reacts to."""
    if args.verb == "roll":
        args.number()
        args.number()


def _scroll(call: Call, args: _Args, source: str) -> None:
    width, height = call.system.device.size
    pointed = source in ("mouse", "touchscreen", "stylus", "touchpad")
    x, y = (args.number(), args.number()) if pointed else (width / 2, height / 2)
    while args.rest:
        if args.next() != "--axis":
            raise args.invalid()
        name, _, value = args.next().partition(",")
        if name in ("VSCROLL", "SCROLL") and _FLOAT.fullmatch(value):
            call.system.input.wheel(x, y, max(-100.0, min(100.0, float(value.rstrip("fFdD")))))


_VERBS = {
    "draganddrop": _swipe,
    "keycombination": _combination,
    "keyevent": _keyevent,
    "motionevent": _motion,
    "press": _trackball,
    "roll": _trackball,
    "swipe": _swipe,
    "tap": _tap,
    "text": _text,
}
COMMANDS: dict[str, Command] = {"input": input_}
