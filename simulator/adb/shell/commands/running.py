"""Commands that run others, and those that only wait or return: sh, su, xargs, timeout, env, sleep, …"""

from __future__ import annotations

import asyncio
import re

from distrl.simulator.adb.shell.call import Call, Command, Failure, decode
from distrl.simulator.adb.shell.commands.options import parse

MAX_SLEEP_S = 86_400.0


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d*)?|\.\d+)([smhd]?)", text)
    if not found:
        raise Failure(f"bad time '{text}'")
    return float(found.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found.group(2)]


async def sleep(call: Call) -> int:
    """sleep SECONDS"""
    if not call.args:
        raise Failure("Needs 1 argument")
    factor = 1e-6 if call.name == "usleep" else 1.0
    await asyncio.sleep(min(MAX_SLEEP_S, sum(_seconds(arg) for arg in call.args) * factor))
    return 0


async def sh(call: Call) -> int:
    """sh [-c PROGRAM [NAME [ARG…]]] [FILE [ARG…]]"""
    shell = call.shell.fork({0: call.stdin, 1: call.stdout, 2: call.stderr})
    shell.depth += 1
    if shell.depth > 20:
        raise Failure("shells call each other too deep")
    shell.functions = {}
    shell.pid = call.system.processes.fresh_pid()
    args = list(call.args)
    given = False
    while args and re.fullmatch(r"-[a-zA-Z]+", args[0]):
        letters = args.pop(0)[1:]
        given = given or "c" in letters
        shell.options |= set(letters) - {"c"}
    if given:
        if not args:
            raise Failure("-c requires an argument")
        text = args.pop(0)
        if args:
            shell.name = args.pop(0)
    elif args:
        shell.name = args.pop(0)
        try:
            text = decode(call.files.read(call.path(shell.name)))
        except OSError as error:
            await call.error(f"/system/bin/sh: can't open {shell.name}: {error.strerror}")
            return 127
    else:
        text = decode(await call.read_all())
    shell.positional = args
    return await shell.program(text)


async def su(call: Call) -> int:
    """su [-c PROGRAM | USER [COMMAND…]]: as root, as the images of emulators allow it."""
    args = list(call.args)
    if args[:1] == ["-c"]:
        args = ["sh", "-c", *args[1:]]
    else:
        if args and args[0] not in ("root", "0"):
            raise Failure(f"invalid uid/gid '{args[0]}'")
        args = args[1:] or ["sh"]
        if args[0] == "-c":
            args = ["sh", *args]
    before, call.system.uid = call.system.uid, 0
    try:
        return await call.shell.call(args)
    finally:
        call.system.uid = before


async def xargs(call: Call) -> int:
    """xargs [-0rt] [-n NUM] [-I TEXT] COMMAND [ARG…]"""
    options = parse(call, "0rtpox", "nILs", first=True)
    data = decode(await call.read_all())
    words = data.split("\0") if "0" in options else data.split("\n" if "I" in options else None)
    words = [word for word in words if word]
    command = options.rest or ["echo"]
    if "I" in options:
        calls = [[part.replace(options["I"], word) for part in command] for word in words]
    else:
        size = call.integer(options["n"]) if "n" in options else max(1, len(words))
        if size < 1:
            raise Failure("bad -n")
        calls = [[*command, *words[at : at + size]] for at in range(0, len(words), size)]
        if not words and "r" not in options:
            calls = [command]
    status = 0
    for args in calls:
        if await call.shell.call(args):
            status = 123
    return status


async def timeout(call: Call) -> int:
    """timeout [-k SECONDS] [-s SIGNAL] SECONDS COMMAND [ARG…]"""
    options = parse(call, "vi", "ks", first=True)
    if len(options.rest) < 2:
        raise Failure("Needs 2 arguments")
    seconds = _seconds(options.rest[0])
    try:
        return await asyncio.wait_for(call.shell.call(options.rest[1:]), seconds or None)
    except asyncio.TimeoutError:
        return 137 if options.get("s") in ("9", "KILL") else 143


async def run(call: Call) -> int:
    """nohup, nice, ionice, setsid, toybox, busybox, time, env: run the command that follows."""
    args = list(call.args)
    if call.name in ("nice", "ionice", "setsid"):
        while args and args[0].startswith("-"):
            option = args.pop(0)
            if option in ("-n", "-c", "-p") and args:
                args.pop(0)
    if not args:
        if call.name == "toybox":
            from distrl.simulator.adb.shell.commands import NAMES

            await call.line(" ".join(NAMES))
            return 0
        raise Failure("Needs 1 argument")
    if call.name == "toybox" and not call.shell.where(args[0]):
        raise Failure(f"Unknown command {args[0]}", 127)
    status = await call.shell.call(args)
    if call.name == "time":
        await call.error("    0m00.00s real     0m00.00s user     0m00.00s system")
    return status


async def env(call: Call) -> int:
    """env, printenv [-i] [NAME=VALUE…] [COMMAND [ARG…]]"""
    shell = call.shell.fork({0: call.stdin, 1: call.stdout, 2: call.stderr})
    args = list(call.args)
    if call.name == "printenv" and args:
        values = [
            shell.variables[name] for name in args if name in shell.exported and name in shell.variables
        ]
        await call.write("".join(f"{value}\n" for value in values))
        return int(len(values) < len(args))
    while args and (args[0].startswith("-") or "=" in args[0]):
        arg = args.pop(0)
        if arg == "-i":
            shell.variables, shell.exported = {}, set()
        elif arg == "-u" and args:
            shell.variables.pop(args.pop(0), None)
        elif "=" in arg:
            name, _, value = arg.partition("=")
            shell.variables[name] = value
            shell.exported.add(name)
    if args:
        return await shell.call(args)
    names = sorted(name for name in shell.exported if name in shell.variables)
    await call.write("".join(f"{name}={shell.variables[name]}\n" for name in names))
    return 0


async def which(call: Call) -> int:
    """which [-a] NAME…"""
    status = 0
    for name in [arg for arg in call.args if arg != "-a"]:
        where = call.shell.where(name)
        if where.startswith("/"):
            await call.line(where)
        else:
            status = 1
    return status


async def constant(call: Call) -> int:
    """true, false"""
    return int(call.name == "false")


COMMANDS: dict[str, Command] = {
    "env": env,
    "false": constant,
    "ionice": run,
    "nice": run,
    "nohup": run,
    "printenv": env,
    "setsid": run,
    "sh": sh,
    "sleep": sleep,
    "su": su,
    "time": run,
    "timeout": timeout,
    "toybox": run,
    "true": constant,
    "usleep": sleep,
    "which": which,
    "xargs": xargs,
}
