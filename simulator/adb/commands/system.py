"""The system around the apps: properties, settings, services, input methods, log, processes, network."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timezone

from distrl.simulator.adb.android import RESTART_S
from distrl.simulator.adb.call import Call, Command, Failure, Verb, run_verb
from distrl.simulator.adb.commands.apps import am
from distrl.simulator.adb.commands.packages import pm
from distrl.simulator.adb.commands.simphone import simphone
from distrl.simulator.adb.image import MAX_VALUE, SERVICES
from distrl.simulator.adb.runtime import PRIORITIES, Entry, Process, user
from distrl.simulator.adb.settings import NAMESPACES

ADDRESS = "10.0.2.16"
"""The phone's address in the emulator's own network."""
DATA_KIB = 6_291_456
"""Size of the phone's data partition."""
MAX_SLEEP_S = 86_400.0


# Properties and settings.


async def getprop(call: Call) -> int:
    """getprop [NAME]"""
    values = call.system.properties
    if len(call.args) > 1 or "".join(call.args).startswith("-"):
        raise Failure("the simulated phone takes one NAME")
    if call.args:
        await call.line(values.get(call.args[0], ""))
    else:
        await call.write("".join(f"[{name}]: [{value}]\n" for name, value in sorted(values.items())))
    return 0


async def setprop(call: Call) -> int:
    """setprop NAME VALUE"""
    if len(call.args) != 2:
        raise Failure("Needs 2 arguments")
    (name, value), values = call.args, call.system.properties
    allowed = call.files.uid == 0 or name.startswith(("debug.", "log.", "persist.log.", "test."))
    is_fixed = name.startswith("ro.") and name in values
    if is_fixed or len(value) > MAX_VALUE or not allowed:
        raise Failure(f"failed to set property '{name}' to '{value}'")
    values[name] = value
    return 0


async def settings(call: Call) -> int:
    """settings get|put|delete|reset|list NAMESPACE [KEY [VALUE]]"""
    verb, *args = call.args or [""]
    count = {"get": 2, "put": 3, "delete": 2, "list": 1, "reset": 2}.get(verb)
    if count is None:
        raise Failure(f"Invalid command: {verb}", 255, prefixed=False)
    if len(args) < count:
        raise Failure("Bad arguments", 255, prefixed=False)
    space = args[0].lower()
    if space not in NAMESPACES:
        raise Failure(f"Invalid namespace '{args[0]}'", 255, prefixed=False)
    table = call.system.settings
    if verb == "get":
        value = table.get(space, args[1])
        await call.line("null" if value is None else value)
    elif verb == "put":
        table.put(space, args[1], args[2])
    elif verb == "delete":
        await call.line(f"Deleted {int(table.delete(space, args[1]))} rows")
    elif verb == "list":
        await call.write("".join(f"{key}={value}\n" for key, value in table.list(space)))
    elif args[1] not in ("untrusted_defaults", "untrusted_clear", "trusted_defaults"):
        table.reset(space, args[1])
    return 0


async def svc(call: Call) -> int:
    """svc wifi|data|bluetooth|nfc enable|disable"""
    if len(call.args) != 2 or call.args[0] not in _RADIOS or call.args[1] not in ("enable", "disable"):
        raise Failure(f"the simulated phone takes {'|'.join(_RADIOS)} enable|disable")
    key, on = call.args[0], call.args[1] == "enable"
    call.system.change(lambda state: state["apps"]["settings"].__setitem__(key, on))
    return 0


_RADIOS = ("wifi", "data", "bluetooth", "nfc")


async def content(call: Call) -> int:
    """content: the simulated phone's apps keep no data in content providers."""
    uri = (call.args[call.args.index("--uri") + 1 :] or [""])[0] if "--uri" in call.args else ""
    raise Failure(
        f"Error while accessing provider:{uri.removeprefix('content://').partition('/')[0]}\n"
        f"java.lang.IllegalStateException: Could not find provider: {uri}",
        prefixed=False,
    )


# Services.


async def service(call: Call) -> int:
    """service check NAME | call alarm 3 s16 ZONE"""
    verb, *rest = call.args or [""]
    if verb == "check" and rest:
        await call.line(f"Service {rest[0]}: {'found' if rest[0] in SERVICES else 'not found'}")
    elif verb == "call" and rest[:3] == ["alarm", "3", "s16"] and len(rest) == 4:
        call.system.properties["persist.sys.timezone"] = rest[3]
        await call.line("Result: Parcel(00000000    '....')")
    else:
        raise Failure("the simulated phone takes check NAME and call alarm 3 s16 ZONE", 10)
    return 0


async def _alarm(call: Call) -> int:
    """cmd alarm set-timezone ZONE"""
    if call.args[:1] != ["set-timezone"] or len(call.args) != 2:
        raise Failure("Error: the simulated phone's clock passes by inputs and cannot be set", 255, False)
    call.system.properties["persist.sys.timezone"] = call.args[1]
    return 0


async def _statusbar(call: Call) -> int:
    """cmd statusbar expand-notifications | collapse"""
    if call.args not in (["expand-notifications"], ["collapse"]):
        raise Failure("Error: the simulated phone takes expand-notifications and collapse", 255, False)
    call.system.device.phone.pull_shade(call.args != ["collapse"])
    return 0


_CMD: dict[str, Command] = {
    "activity": am,
    "alarm": _alarm,
    "package": pm,
    "simphone": simphone,
    "statusbar": _statusbar,
}


async def cmd(call: Call) -> int:
    """cmd SERVICE [ARG…]"""
    work = _CMD.get(call.args[0]) if call.args else None
    if work is None:
        raise Failure(f"Can't find service: {' '.join(call.args[:1])} (supported: {', '.join(_CMD)})", 20)
    return await work(Call(call.system, call.args[0], call.args[1:], call.stdin, call.stdout, call.stderr))


# Input methods.


async def _ime_list(call: Call, args: list[str]) -> int:
    methods = call.system.ime
    for name in methods.all() if "-a" in args else methods.enabled():
        await call.line(name if "-s" in args else f"{name}:\n  mId={name}")
    return 0


async def _ime_reset(call: Call, args: list[str]) -> int:
    call.system.ime.reset()
    await call.line("Reset current and enabled IMEs for user #0")
    await call.line(f"  Newly selected: {call.system.ime.current}")
    return 0


async def _ime_set(call: Call, args: list[str]) -> int:
    name, methods = " ".join(args), call.system.ime
    if name not in methods.enabled():
        raise Failure(f"Unknown input method {name} cannot be selected for user #0", 255, prefixed=False)
    methods.choose(name)
    await call.line(f"Input method {name} selected for user #0")
    return 0


async def _ime_enable(call: Call, args: list[str]) -> int:
    verb, name, methods = call.args[0], " ".join(args), call.system.ime
    if name not in methods.all():
        raise Failure(f"Unknown input method {name} cannot be {verb}d for user #0", 255, prefixed=False)
    before = methods.enable(name, on=verb == "enable")
    await call.line(f"Input method {name}: {'already' if before else 'now'} {verb}d for user #0")
    return 0


_IME: dict[str, Verb] = {
    "disable": _ime_enable,
    "enable": _ime_enable,
    "list": _ime_list,
    "reset": _ime_reset,
    "set": _ime_set,
}


async def ime(call: Call) -> int:
    """ime list [-a] [-s] | enable ID | disable ID | set ID | reset"""
    return await run_verb(call, _IME)


# The log.

_BUFFERS = ("main", "system", "crash")


def _stamp(entry: Entry, form: set[str]) -> str:
    if "epoch" in form:
        return f"{entry.time_ms // 1000:10d}.{entry.time_ms % 1000:03d}"
    when = datetime.fromtimestamp(entry.time_ms // 1000, timezone.utc)
    return f"{when:%m-%d %H:%M:%S}.{entry.time_ms % 1000:03d}"


def _log_lines(entry: Entry, form: set[str]) -> str:
    """An entry as logcat prints it: brief, time or threadtime, with or without epoch."""
    tag = f"{entry.priority}/{entry.tag:<8}"
    if "brief" in form:
        head = f"{tag}({entry.pid:5d})"
    elif "time" in form:
        head = f"{_stamp(entry, form)} {tag}({entry.pid:5d})"
    else:
        head = f"{_stamp(entry, form)} {entry.pid:5d} {entry.pid:5d} {entry.priority} {entry.tag:<8}"
    return "".join(f"{head}: {message}\n" for message in entry.message.split("\n"))


def _levels(specs: list[str]) -> dict[str, str]:
    levels = {}
    for spec in specs:
        tag, _, level = spec.partition(":")
        letter = level[:1].upper().replace("*", "V") or "V"
        if letter not in PRIORITIES:
            raise Failure(f"Invalid filter expression '{spec}'")
        levels[tag] = letter
    return levels


async def logcat(call: Call) -> int:
    """logcat [-c] [-d] [-t COUNT] [-b BUFFERS] [-v brief|time|threadtime|epoch] [TAG:LEVEL…]"""
    call.args = ["-c" if arg == "--clear" else arg for arg in call.args]
    options, specs = call.options("cds", "vbt")
    form = set(options.get("v", "").replace(",", " ").split())
    if form - {"brief", "time", "threadtime", "epoch"}:
        raise Failure(f"the simulated phone's log has no format {options['v']}")
    buffers = set(options.get("b", "").replace(",", " ").split()) or set(_BUFFERS)
    log = call.system.log
    if "c" in options:
        log.clear(() if "b" not in options or "all" in buffers else tuple(buffers))
        return 0
    levels = ({"*": "S"} if "s" in options else {}) | _levels(specs)

    def wanted(entries: list[Entry]) -> list[Entry]:
        return [
            entry
            for entry in entries
            if ("all" in buffers or entry.buffer in buffers)
            and (level := levels.get(entry.tag, levels.get("*", "V"))) != "S"
            and PRIORITIES.index(entry.priority) >= PRIORITIES.index(level)
        ]

    last, entries = log.last, wanted(log.entries())
    if "t" in options:
        entries = entries[-max(1, call.integer(options["t"])) :]
    if entries:
        await call.line(f"--------- beginning of {entries[0].buffer}")
    await call.write("".join(_log_lines(entry, form) for entry in entries))
    while not {"d", "t"} & set(options):
        await log.wait(last)
        entries, last = wanted(log.entries(last)), log.last
        await call.write("".join(_log_lines(entry, form) for entry in entries))
    return 0


# Processes, users and the network.


async def ps(call: Call) -> int:
    """ps [-A]: the processes of the shell's user, or all."""
    options, rest = call.options("A")
    if rest:
        raise Failure("the simulated phone takes -A")
    rows = [["USER", "PID", "PPID", "VSZ", "RSS", "WCHAN", "ADDR", "S", "NAME"]]
    rows += [_process(each) for each in call.system.processes if "A" in options or each.uid == call.files.uid]
    widths = [max(len(row[column]) for row in rows) for column in range(8)]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [row[place].rjust(widths[place]) for place in range(1, 8)]
        await call.line(" ".join([*cells, row[8]]))
    return 0


def _process(process: Process) -> list[str]:
    sizes = ["12345678", "123456"] if process.uid >= 10000 else ["10856", "3300"]
    return [user(process.uid), str(process.pid), str(process.parent), *sizes, "0", "0", "S", process.name]


async def identity(call: Call) -> int:
    """id -u; whoami"""
    if call.name == "id" and call.args != ["-u"]:
        raise Failure("the simulated phone takes -u")
    await call.line(str(call.files.uid) if call.name == "id" else user(call.files.uid))
    return 0


async def network(call: Call) -> int:
    """ifconfig wlan0; ip route; ip addr show [dev] wlan0"""
    if call.args not in (["wlan0"], ["route"], ["addr", "show", "wlan0"], ["addr", "show", "dev", "wlan0"]):
        raise Failure(f"`{call.name} {' '.join(call.args)}` is not on the simulated phone")
    if not call.system.state["apps"]["settings"]["wifi"]:
        return 0
    if call.name == "ifconfig":
        await call.write(
            "wlan0     Link encap:Ethernet  HWaddr 02:15:b2:00:00:00  Driver mac80211_hwsim\n"
            f"          inet addr:{ADDRESS}  Bcast:10.0.2.255  Mask:255.255.255.0 \n"
            "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        )
    elif call.args == ["route"]:
        await call.line(f"10.0.2.0/24 dev wlan0 proto kernel scope link src {ADDRESS}")
    else:
        await call.write(
            "14: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP qlen 1000\n"
            "    link/ether 02:15:b2:00:00:00 brd ff:ff:ff:ff:ff:ff\n"
            f"    inet {ADDRESS}/24 brd 10.0.2.255 scope global wlan0\n"
            "       valid_lft forever preferred_lft forever\n"
        )
    return 0


async def reboot(call: Call) -> int:
    """reboot: restarts the phone, when the client has the answer."""
    if call.args:
        raise Failure("the simulated phone takes no arguments")
    asyncio.get_running_loop().call_later(RESTART_S, call.system.reboot)
    return 0


async def sleep(call: Call) -> int:
    """sleep SECONDS"""
    if len(call.args) != 1 or not re.fullmatch(r"\d{1,9}(\.\d*)?|\.\d+", call.args[0]):
        raise Failure(f"bad time '{' '.join(call.args)}'")
    await asyncio.sleep(min(MAX_SLEEP_S, float(call.args[0])))
    return 0


async def date(call: Call) -> int:
    """date +%s: the phone's clock, in seconds since 1970."""
    if call.args != ["+%s"]:
        raise Failure("the simulated phone's date takes +%s")
    await call.line(str(int(call.system.clock())))
    return 0


async def df(call: Call) -> int:
    """df -k /data"""
    if call.args != ["-k", "/data"]:
        raise Failure("the simulated phone's df takes -k /data")
    used = call.files.used() // 1024 + 1_048_576
    sizes = f"{DATA_KIB:>9} {used:>7} {DATA_KIB - used:>9} {f'{used * 100 // DATA_KIB}%':>4}"
    await call.line("Filesystem       1K-blocks    Used Available Use% Mounted on")
    await call.line(f"/dev/block/dm-5  {sizes} /data")
    return 0


async def constant(call: Call) -> int:
    """true, false"""
    return int(call.name == "false")


COMMANDS: dict[str, Command] = {
    "cmd": cmd,
    "content": content,
    "date": date,
    "df": df,
    "false": constant,
    "getprop": getprop,
    "id": identity,
    "ifconfig": network,
    "ime": ime,
    "ip": network,
    "logcat": logcat,
    "ps": ps,
    "reboot": reboot,
    "service": service,
    "setprop": setprop,
    "settings": settings,
    "sleep": sleep,
    "svc": svc,
    "true": constant,
    "whoami": identity,
}
