"""Commands about processes, and commands that run other commands: ps, kill, sh, xargs, timeout, sleep, …"""

from __future__ import annotations

import asyncio
import re

from distrl.workers.simhost.android_processes import Process, user
from distrl.workers.simhost.shell.call import Call, Command, Failure, decode
from distrl.workers.simhost.shell.commands.options import parse

MAX_SLEEP_S = 86_400.0
_SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "TERM": 15, "STOP": 19, "CONT": 18, "USR1": 10}


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


def _row(process: Process, columns: list[str]) -> list[str]:
    values = {
        "USER": user(process.uid),
        "UID": str(process.uid),
        "PID": str(process.pid),
        "PPID": str(process.parent),
        "VSZ": "12345678" if process.uid >= 10000 else "10856",
        "RSS": "123456" if process.uid >= 10000 else "3300",
        "WCHAN": "0",
        "ADDR": "0",
        "S": "R" if process.name == "ps" else "S",
        "NAME": process.name,
        "CMD": process.name[:15],
        "ARGS": process.name,
        "%CPU": "0.0",
        "%MEM": "0.0",
        "TIME+": "0:00.00",
        "TIME": "00:00:00",
        "PRI": "19",
        "NI": "0",
        "TTY": "?",
        "STIME": "00:00",
        "STAT": "S",
    }
    return [values.get(column, "-") for column in columns]


def _table(rows: list[list[str]], left: tuple[int, ...]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(widths[place]) if place in left else cell.rjust(widths[place])
            for place, cell in enumerate(row[:-1])
        ]
        lines.append(" ".join([*cells, row[-1]]) + "\n")
    return "".join(lines)


async def ps(call: Call) -> int:
    """ps [-Aef] [-o COLUMNS] [-p PID] [-u USER]"""
    options = parse(call, "AaefTlwZnM", "opuGP")
    columns = ["USER", "PID", "PPID", "VSZ", "RSS", "WCHAN", "ADDR", "S", "NAME"]
    if "f" in options:
        columns = ["UID", "PID", "PPID", "STIME", "TTY", "TIME", "CMD"]
    if "o" in options:
        columns = [name.partition("=")[0].upper() for name in re.split("[, ]+", options["o"])]
    wanted = list(call.system.processes)
    if "p" in options:
        pids = [call.integer(pid) for pid in options["p"].split(",")]
        wanted = [process for process in wanted if process.pid in pids]
    elif "u" in options:
        wanted = [process for process in wanted if options["u"] in (user(process.uid), str(process.uid))]
    elif not {"A", "e", "o"} & set(options):
        wanted = [process for process in wanted if process.uid == call.system.uid and process.pid > 2000]
    rows = [columns, *(_row(process, columns) for process in wanted)]
    if "o" in options and options["o"].endswith("="):
        rows = rows[1:]
    if rows:
        left = tuple(place for place, name in enumerate(columns) if name in ("USER", "UID", "ADDR"))
        await call.write(_table(rows, left))
    return 0


async def pidof(call: Call) -> int:
    """pidof [-s] NAME…"""
    options = parse(call, "sx", "o")
    pids = [process.pid for name in options.rest for process in call.system.processes.find(name)]
    if pids:
        await call.line(
            " ".join(str(pid) for pid in (pids[:1] if "s" in options else sorted(pids, reverse=True)))
        )
    return int(not pids)


async def pgrep(call: Call) -> int:
    """pgrep, pkill [-flx] [-SIGNAL] PATTERN"""
    args = [arg for arg in call.args if not re.fullmatch(r"-(\d+|[A-Z0-9]+)", arg)]
    exact = any(arg in ("-x", "-fx") for arg in args)
    rest = [arg for arg in args if not arg.startswith("-")]
    if not rest:
        raise Failure("No PATTERN")
    try:
        matcher = re.compile(f"^(?:{rest[0]})$" if exact else rest[0])
    except re.error as error:
        raise Failure(f"bad regex '{rest[0]}'") from error
    found = [each for each in call.system.processes if matcher.search(each.name) and each.name != call.name]
    for process in found:
        if call.name == "pkill":
            _kill(call, process)
        else:
            await call.line(f"{process.pid} {process.name}" if "-l" in args else str(process.pid))
    return int(not found)


def _kill(call: Call, process: Process) -> None:
    if call.system.uid != 0 and process.uid != call.system.uid:
        raise Failure(f"pid {process.pid}: Operation not permitted")
    if process.task is not None:
        process.task.cancel()
    elif process.uid >= 10000:
        call.system.activities.crash(process.name)
    else:
        raise Failure(f"pid {process.pid}: Operation not permitted")


async def kill(call: Call) -> int:
    """kill, killall [-SIGNAL] PID…"""
    args = list(call.args)
    if args[:1] == ["-l"]:
        await call.write("".join(f"{number:2d}) SIG{name}\n" for name, number in _SIGNALS.items()))
        return 0
    signal = ""
    if args and args[0].startswith("-") and args[0] != "--":
        signal = args.pop(0)[1:]
        if signal in ("s", "n") and args:
            signal = args.pop(0)
    if not args:
        raise Failure("Needs 1 argument")
    status = 0
    for arg in args:
        if call.name == "killall":
            found = call.system.processes.find(arg)
        else:
            one = call.system.processes.get(call.integer(arg))
            found = [one] if one is not None else []
        if not found:
            await call.error(f"{call.name}: {arg}: No such process")
            status = 1
        for process in found:
            if signal != "0":
                _kill(call, process)
    return status


async def top(call: Call) -> int:
    """top [-b] [-n COUNT]: the process table once."""
    processes = list(call.system.processes)
    await call.write(
        f"Tasks: {len(processes)} total,   1 running, {len(processes) - 1} sleeping,   0 stopped,   0 zombie\n"
        "  Mem:  2034056K total,  1434056K used,   600000K free,     4096K buffers\n"
        " Swap:  1525540K total,        0K used,  1525540K free,   800000K cached\n"
        "400%cpu   0%user   0%nice   0%sys 400%idle   0%iow   0%irq   0%sirq   0%host\n"
    )
    columns = ["PID", "USER", "PRI", "NI", "VSZ", "RSS", "S", "%CPU", "%MEM", "TIME+", "ARGS"]
    await call.write(_table([columns, *(_row(process, columns) for process in processes)], (1,)))
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
            from distrl.workers.simhost.shell.commands import NAMES

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
    "kill": kill,
    "killall": kill,
    "nice": run,
    "nohup": run,
    "pgrep": pgrep,
    "pidof": pidof,
    "pkill": pgrep,
    "printenv": env,
    "ps": ps,
    "setsid": run,
    "sh": sh,
    "sleep": sleep,
    "su": su,
    "time": run,
    "timeout": timeout,
    "top": top,
    "toybox": run,
    "true": constant,
    "usleep": sleep,
    "which": which,
    "xargs": xargs,
}
