"""Properties and settings: getprop, setprop, settings, svc, and `cmd` of services that set something."""

from __future__ import annotations

from distrl.simulator.adb.properties import MAX_VALUE
from distrl.simulator.adb.settings import NAMESPACES
from distrl.simulator.adb.shell.call import Call, Command, Failure

MAX_PROPERTIES = 2000
_RADIOS = {"wifi": "wifi", "data": "data", "bluetooth": "bluetooth", "nfc": "nfc"}


async def getprop(call: Call) -> int:
    """getprop [NAME [DEFAULT]]"""
    args = [arg for arg in call.args if arg not in ("-T", "-Z", "-P")]
    values = call.system.properties
    if args:
        default = args[1] if len(args) > 1 else ""
        await call.line(values.get(args[0]) or default)
    else:
        await call.write("".join(f"[{name}]: [{value}]\n" for name, value in sorted(values.items())))
    return 0


async def setprop(call: Call) -> int:
    """setprop NAME VALUE"""
    if len(call.args) != 2:
        raise Failure("Needs 2 arguments")
    name, value = call.args
    values = call.system.properties
    if len(value.encode("utf-8", "surrogateescape")) > MAX_VALUE and not name.startswith("ro."):
        raise Failure(f"value '{value}' too long; try '{value[:MAX_VALUE]}'")
    if (name.startswith("ro.") and name in values) or (name not in values and len(values) >= MAX_PROPERTIES):
        raise Failure(f"failed to set property '{name}' to '{value}'")
    allowed = call.system.uid == 0 or name.startswith(
        ("debug.", "log.", "persist.log.", "sys.powerctl", "test.")
    )
    if not allowed:
        raise Failure(f"failed to set property '{name}' to '{value}'")
    values[name] = value
    return 0


async def settings(call: Call) -> int:
    """settings [--user N] get|put|delete|reset|list NAMESPACE [KEY [VALUE]]"""
    args = list(call.args)
    while "--user" in args:
        place = args.index("--user")
        del args[place : place + 2]
    verb = args[0] if args else ""
    count = {"get": 3, "put": 4, "delete": 3, "list": 2, "reset": 3}.get(verb, 0)
    if not count:
        await call.error(
            f"Invalid command: {verb}" if verb else "Settings provider (settings) commands: get, put, …"
        )
        return 255
    if len(args) < count:
        raise Failure("Bad arguments", 255, prefixed=False)
    space = args[1].lower()
    if space not in NAMESPACES:
        raise Failure(f"Invalid namespace '{args[1]}'", 255, prefixed=False)
    table = call.system.settings
    if verb == "get":
        value = table.get(space, args[2])
        await call.line("null" if value is None else value)
    elif verb == "put":
        _put(call, space, args[2], args[3])
    elif verb == "delete":
        await call.line(f"Deleted {int(table.delete(space, args[2]))} rows")
    elif verb == "list":
        await call.write("".join(f"{key}={value}\n" for key, value in table.list(space)))
    elif args[2] not in ("untrusted_defaults", "untrusted_clear", "trusted_defaults"):
        table.reset(space, args[2])
    return 0


def _put(call: Call, space: str, key: str, value: str) -> None:
    try:
        call.system.settings.put(space, key, value)
    except ValueError as error:
        raise Failure(str(error), 255, prefixed=False) from error


async def svc(call: Call) -> int:
    """svc wifi|data|bluetooth|nfc enable|disable; svc power stayon|reboot|shutdown; svc usb …"""
    what, verb = call.args[0] if call.args else "", call.args[1] if len(call.args) > 1 else ""
    if what in _RADIOS and verb in ("enable", "disable"):
        _radio(call, _RADIOS[what], verb == "enable")
        return 0
    if what == "power" and verb == "stayon":
        mode = call.args[2] if len(call.args) > 2 else "true"
        call.system.settings.put("global", "stay_on_while_plugged_in", "0" if mode == "false" else "7")
        return 0
    if what in ("usb", "power") and verb not in ("reboot", "shutdown"):
        return 0
    await call.error(
        "Available commands:\n    help     Show information about the subcommands\n"
        "    power, data, wifi, usb, nfc, bluetooth"
    )
    return 0 if what in ("", "help") else 1


def _radio(call: Call, key: str, on: bool) -> None:
    call.system.change(lambda state: state["apps"]["settings"].__setitem__(key, on))


async def uimode(call: Call) -> int:
    """cmd uimode night [yes|no|auto]"""
    if call.args[:1] != ["night"]:
        await call.error("UiModeManager service (uimode) commands: night [yes|no|auto]")
        return 255
    if len(call.args) > 1:
        if call.args[1] not in ("yes", "no"):
            await call.error("Error: the simulated phone's night mode is yes or no")
            return 255
        on = call.args[1] == "yes"
        call.system.change(lambda state: state["apps"]["settings"].__setitem__("dark", on))
    await call.line(f"Night mode: {'yes' if call.system.state['apps']['settings']['dark'] else 'no'}")
    return 0


async def connectivity(call: Call) -> int:
    """cmd connectivity airplane-mode [enable|disable]"""
    if call.args[:1] != ["airplane-mode"]:
        return 0
    if call.args[1:] in (["enable"], ["disable"]):
        call.system.settings.put("global", "airplane_mode_on", str(int(call.args[1] == "enable")))
        return 0
    await call.line(
        "enabled" if call.system.settings.get("global", "airplane_mode_on") == "1" else "disabled"
    )
    return 0


async def wifi(call: Call) -> int:
    """cmd wifi set-wifi-enabled enabled|disabled | status"""
    if call.args[:1] == ["set-wifi-enabled"] and call.args[1:] in (["enabled"], ["disabled"]):
        _radio(call, "wifi", call.args[1] == "enabled")
        return 0
    on = call.system.state["apps"]["settings"]["wifi"]
    await call.line(f"Wifi is {'enabled' if on else 'disabled'}")
    if on:
        await call.line('Wifi is connected to "Home network"')
    return 0


async def bluetooth(call: Call) -> int:
    """cmd bluetooth_manager enable|disable"""
    if call.args[:1] in (["enable"], ["disable"]):
        _radio(call, "bluetooth", call.args[0] == "enable")
    return 0


async def alarm(call: Call) -> int:
    """cmd alarm set-timezone ZONE | set-time MS"""
    if call.args[:1] == ["set-timezone"] and len(call.args) > 1:
        _zone(call, call.args[1])
        return 0
    raise Failure(
        "Error: the simulated phone's clock passes by inputs and cannot be set", 255, prefixed=False
    )


def _zone(call: Call, name: str) -> None:
    call.system.properties["persist.sys.timezone"] = name


async def service(call: Call) -> int:
    """service list | check NAME | call NAME CODE …"""
    verb, rest = (call.args[0], call.args[1:]) if call.args else ("", [])
    if verb == "check" and rest:
        await call.line(f"Service {rest[0]}: {'found' if rest[0] in SERVICES else 'not found'}")
        return 0
    if verb == "list":
        rows = "".join(f"{place}\t{name}: []\n" for place, name in enumerate(SERVICES))
        await call.write(f"Found {len(SERVICES)} services:\n{rows}")
        return 0
    if verb == "call" and rest[:3] == ["alarm", "3", "s16"] and len(rest) == 4:
        _zone(call, rest[3])
        await call.line("Result: Parcel(00000000    '....')")
        return 0
    if verb == "call" and rest:
        known = rest[0] in SERVICES
        await call.line(
            'Result: Parcel(Error: 0xffffffffffffffb6 "Not a data message")'
            if known
            else f"service: Service {rest[0]} does not exist"
        )
        return 0 if known else 10
    await call.error("Usage: service [-h|-?]\n       service list\n       service check SERVICE")
    return 10


async def content(call: Call) -> int:
    """content: the simulated phone's apps keep their data in no content provider, but for the settings."""
    args = call.args
    given = {
        args[place][2:]: args[place + 1] for place in range(len(args) - 1) if args[place].startswith("--")
    }
    uri = given.get("uri", "")
    if args[:1] == ["query"] and uri.startswith("content://settings/"):
        space, _, key = uri.removeprefix("content://settings/").partition("/")
        rows = [(name, value) for name, value in _settings(call, space) if not key or name == key]
        if not rows:
            await call.line("No result found.")
        for place, (name, value) in enumerate(rows):
            await call.line(f"Row: {place} _id={place}, name={name}, value={value}")
        return 0
    raise Failure(
        f"Error while accessing provider:{uri.removeprefix('content://').partition('/')[0]}\n"
        f"java.lang.IllegalStateException: Could not find provider: {uri}",
        prefixed=False,
    )


def _settings(call: Call, space: str) -> list[tuple[str, str]]:
    return call.system.settings.list(space) if space in NAMESPACES else []


SERVICES = (
    "SurfaceFlinger",
    "accessibility",
    "activity",
    "activity_task",
    "alarm",
    "appops",
    "audio",
    "battery",
    "bluetooth_manager",
    "clipboard",
    "connectivity",
    "cpuinfo",
    "device_policy",
    "display",
    "gfxinfo",
    "input",
    "input_method",
    "isphonesubinfo",
    "location",
    "media_session",
    "meminfo",
    "notification",
    "package",
    "phone",
    "power",
    "procstats",
    "settings",
    "simphone",
    "statusbar",
    "telephony.registry",
    "uimode",
    "usagestats",
    "user",
    "wifi",
    "window",
)
"""The system services that there are; most of them only have a name."""
COMMANDS: dict[str, Command] = {
    "content": content,
    "getprop": getprop,
    "service": service,
    "setprop": setprop,
    "settings": settings,
    "svc": svc,
}
