"""What shows and describes the screen: screencap, screenrecord, uiautomator, wm."""

from __future__ import annotations

import re
import struct

from distrl.simulator.adb.shell.call import Call, Command, Failure

DISPLAY_ID = "4619827259835644672"
"""The physical display's id, as SurfaceFlinger names it."""
_RGBA_8888, _SRGB = 1, 1
_HIERARCHY_FILE = "/sdcard/window_dump.xml"


async def screencap(call: Call) -> int:
    """screencap [-p] [-d DISPLAY] [FILE]: PNG, or raw RGBA behind a header of 16 bytes."""
    png, path, args = False, "", list(call.args)
    while args:
        arg = args.pop(0)
        if arg == "-d" and args:
            display = args.pop(0)
            if display != DISPLAY_ID:
                await call.error(f"Display Id '{display}' is not valid.")
                return 1
        elif arg in ("-h", "--help"):
            await call.error("usage: screencap [-ahp] [-d display-id] [FILENAME]")
            return 1
        elif arg.startswith("-") and set(arg[1:]) <= set("pa") and len(arg) > 1:
            png = png or "p" in arg
        elif arg.startswith("-"):
            await call.error("usage: screencap [-ahp] [-d display-id] [FILENAME]")
            return 1
        else:
            path = arg
    if png or path.endswith(".png"):
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


async def screenrecord(call: Call) -> int:
    """screenrecord: the simulated phone has no video encoder."""
    raise Failure("ERROR: unable to create video/avc codec instance", prefixed=False)


async def uiautomator(call: Call) -> int:
    """uiautomator dump [--compressed] [--windows] [FILE]"""
    if call.args[:1] != ["dump"]:
        what = call.args[0] if call.args else ""
        if what in ("events", "runtest"):
            raise Failure(f"`uiautomator {what}` is not on the simulated phone", prefixed=False)
        await call.error(
            "Usage: uiautomator <subcommand> [options]\n\nAvailable subcommands:\n\nhelp: displays help"
        )
        await call.error("dump: creates an XML dump of current UI hierarchy")
        return 1
    paths = [arg for arg in call.args[1:] if not arg.startswith("--")]
    path = paths[0] if paths else _HIERARCHY_FILE
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
    """wm size | density | dismiss-keyguard | user-rotation | set-fix-to-user-rotation …"""
    verb, args = (call.args[0], call.args[1:]) if call.args else ("", [])
    width, height = call.system.device.size
    if verb == "size":
        return await _unchanging(call, args, f"Physical size: {width}x{height}", f"{width}x{height}")
    if verb == "density":
        density = str(call.system.density)
        return await _unchanging(call, args, f"Physical density: {density}", density)
    if verb in ("user-rotation", "set-user-rotation"):
        if not args:
            await call.line(
                "free" if call.system.settings.get("system", "accelerometer_rotation") == "1" else "lock 0"
            )
        elif args[-1] not in ("free", "lock", "0", "-d"):
            raise Failure("Error: the simulated phone's screen cannot be turned.", prefixed=False)
        return 0
    if verb in ("dismiss-keyguard", "set-fix-to-user-rotation", "fixed-to-user-rotation", "reset"):
        return 0
    if verb in ("overscan", "scaling", "set-ignore-orientation-request", "get-ignore-orientation-request"):
        return 0
    await call.error(
        f"Unknown command: {verb}" if verb else "Window manager (window) commands: size, density, …"
    )
    return 255


async def _unchanging(call: Call, args: list[str], line: str, value: str) -> int:
    """What `wm size` and `wm density` print; the screen cannot be given another size."""
    wanted = [
        arg for place, arg in enumerate(args) if arg != "-d" and (place == 0 or args[place - 1] != "-d")
    ]
    if not wanted:
        await call.line(line)
        return 0
    if wanted[0] in ("reset", value):
        return 0
    if not re.fullmatch(r"\d+(x\d+)?(dp)?|\d+dpx\d+dp", wanted[0]):
        raise Failure(f"Error: bad {call.args[0]} {wanted[0]}", 255, prefixed=False)
    message = f"Error: the simulated phone's {call.args[0]} is fixed at {value}; start it with another one."
    raise Failure(message, 255, prefixed=False)


COMMANDS: dict[str, Command] = {
    "screencap": screencap,
    "screenrecord": screenrecord,
    "uiautomator": uiautomator,
    "wm": wm,
}
