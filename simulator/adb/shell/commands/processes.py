"""Commands about processes: ps, pidof, pgrep, pkill, kill, killall, top."""

from __future__ import annotations

import re

from distrl.simulator.adb.android_processes import Process, user
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.options import parse

_SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "TERM": 15, "STOP": 19, "CONT": 18, "USR1": 10}


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
        f"Tasks: {len(processes)} total,   1 running, {len(processes) - 1} sleeping,   0 stopped,   0 "
        "zombie\n"
        "  Mem:  2034056K total,  1434056K used,   600000K free,     4096K buffers\n"
        " Swap:  1525540K total,        0K used,  1525540K free,   800000K cached\n"
        "400%cpu   0%user   0%nice   0%sys 400%idle   0%iow   0%irq   0%sirq   0%host\n"
    )
    columns = ["PID", "USER", "PRI", "NI", "VSZ", "RSS", "S", "%CPU", "%MEM", "TIME+", "ARGS"]
    await call.write(_table([columns, *(_row(process, columns) for process in processes)], (1,)))
    return 0


COMMANDS: dict[str, Command] = {
    "kill": kill,
    "killall": kill,
    "pgrep": pgrep,
    "pidof": pidof,
    "pkill": pgrep,
    "ps": ps,
    "top": top,
}
