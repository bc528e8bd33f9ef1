"""`cmd SERVICE …`, `ime`, and commands of services that this phone has not."""

from __future__ import annotations

from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands import settings
from distrl.simulator.adb.shell.commands.activity import am
from distrl.simulator.adb.shell.commands.display import wm
from distrl.simulator.adb.shell.commands.package import pm
from distrl.simulator.adb.shell.commands.simphone import simphone
from distrl.simulator.adb.shell.commands.touch_input import input_


async def ime(call: Call) -> int:
    """ime list [-a] [-s] | enable ID | disable ID | set ID | reset"""
    args = [
        arg
        for place, arg in enumerate(call.args)
        if arg != "--user" and call.args[place - 1 : place] != ["--user"]
    ]
    verb, rest = (args[0], args[1:]) if args else ("", [])
    methods = call.system.ime
    if verb == "list":
        names = methods.all() if "-a" in rest else methods.enabled()
        await call.write("".join(_described(call, name, "-s" in rest) for name in names))
        return 0
    if verb == "reset":
        methods.reset()
        await call.line("Reset current and enabled IMEs for user #0")
        await call.line(f"  Newly selected: {methods.current}")
        return 0
    if verb not in ("enable", "disable", "set") or not rest:
        await call.error(
            f"Unknown command: {verb}"
            if verb and rest
            else "ime <command>: list, enable, disable, set, reset"
        )
        return 255
    name = rest[0]
    if verb == "set":
        if name not in methods.enabled():
            await call.error(f"Unknown input method {name} cannot be selected for user #0")
            return 255
        methods.choose(name)
        await call.line(f"Input method {name} selected for user #0")
        return 0
    if name not in methods.all():
        await call.error(f"Unknown input method {name} cannot be {verb}d for user #0")
        return 255
    before = methods.enable(name, on=verb == "enable")
    await call.line(f"Input method {name}: {'already' if before else 'now'} {verb}d for user #0")
    return 0


def _described(call: Call, name: str, short: bool) -> str:
    if short:
        return f"{name}\n"
    package, _, service = name.partition("/")
    return (
        f"{name}:\n  mId={name} mSettingsActivityName=null mIsVrOnly=false "
        "mSupportsSwitchingToNextInputMethod=false\n"
        f"  mIsDefaultResId=0x0\n  Service:\n    name={package}{service} packageName={package}\n"
    )


async def _quiet(call: Call) -> int:
    """Services whose commands have no visible effect on this phone."""
    return 0


async def _statusbar(call: Call) -> int:
    """cmd statusbar expand-notifications | expand-settings | collapse"""
    verb = call.args[0] if call.args else ""
    if verb in ("expand-notifications", "expand-settings", "collapse"):
        call.system.device.phone.pull_shade(verb != "collapse")
    return 0


_SERVICES: dict[str, Command] = {
    "accessibility": _quiet,
    "activity": am,
    "alarm": settings.alarm,
    "appops": _quiet,
    "bluetooth_manager": settings.bluetooth,
    "connectivity": settings.connectivity,
    "deviceidle": _quiet,
    "input": input_,
    "input_method": ime,
    "location": _quiet,
    "media_session": _quiet,
    "notification": _quiet,
    "overlay": _quiet,
    "package": pm,
    "power": _quiet,
    "settings": settings.settings,
    "simphone": simphone,
    "statusbar": _statusbar,
    "uimode": settings.uimode,
    "wifi": settings.wifi,
    "window": wm,
}


async def cmd(call: Call) -> int:
    """cmd [-l] [-w] SERVICE [ARG…]"""
    args = [arg for place, arg in enumerate(call.args) if not (arg == "-w" and place == 0)]
    if args[:1] == ["-l"]:
        await call.write(
            "Currently running services:\n" + "".join(f"  {name}\n" for name in settings.SERVICES)
        )
        return 0
    if not args:
        raise Failure(
            "No service specified; use -l to list all running services. Use -w to start and wait for "
            "a service.",
            20,
        )
    work = _SERVICES.get(args[0])
    if work is None:
        known = args[0] in settings.SERVICES
        raise Failure("" if known else f"Can't find service: {args[0]}", 255 if known else 20)
    return await work(Call(call.shell, args[0], args[1:], call.stdin, call.stdout, call.stderr))


async def absent(call: Call) -> int:
    """Programs that every Android has, but that have no meaning on this phone."""
    raise Failure(f"{call.name} is not on the simulated phone", prefixed=False)


_ABSENT = (
    "atrace",
    "bugreport",
    "dumpstate",
    "getevent",
    "perfetto",
    "sendevent",
    "simpleperf",
    "strace",
    "tcpdump",
)
COMMANDS: dict[str, Command] = {
    "appops": _quiet,
    "cmd": cmd,
    "ime": ime,
    **dict.fromkeys(_ABSENT, absent),
}
