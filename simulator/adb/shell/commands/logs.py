"""`logcat` and `log`: reading the log, following it, and writing to it."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from distrl.simulator.adb.android_processes import user
from distrl.simulator.adb.log import PRIORITIES, Entry
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.options import Options, parse

_LONG = {
    "buffer": "b",
    "clear": "c",
    "buffer-size": "g",
    "format": "v",
    "max-count": "m",
    "pid": "pid",
    "regex": "e",
    "statistics": "S",
}
_DEFAULT = ("main", "system", "crash")
_FORMATS = ("brief", "long", "process", "raw", "tag", "thread", "threadtime", "time")


def _time(entry: Entry, form: set[str]) -> str:
    if "epoch" in form:
        return f"{entry.time_ms // 1000:10d}.{entry.time_ms % 1000:03d}"
    when = datetime.fromtimestamp(entry.time_ms // 1000, timezone.utc)
    year = when.strftime("%Y-") if "year" in form else ""
    digits = f"{entry.time_ms % 1000:03d}" + ("000" if "usec" in form else "")
    zone = " +0000" if "UTC" in form or "zone" in form else ""
    return f"{year}{when:%m-%d %H:%M:%S}.{digits}{zone}"


def line(entry: Entry, kind: str, form: set[str]) -> str:
    """An entry as logcat prints it in format `kind`, with the modifiers in `form`."""
    out = []
    for message in entry.message.split("\n"):
        tag = f"{entry.priority}/{entry.tag:<8}"
        if kind == "brief":
            out.append(f"{tag}({entry.pid:5d}): {message}")
        elif kind == "process":
            out.append(f"{entry.priority}({entry.pid:5d}) {message}  ({entry.tag})")
        elif kind == "tag":
            out.append(f"{tag}: {message}")
        elif kind == "raw":
            out.append(message)
        elif kind == "thread":
            out.append(f"{entry.priority}({entry.pid:5d}:{entry.tid:5d}) {message}")
        elif kind == "time":
            out.append(f"{_time(entry, form)} {tag}({entry.pid:5d}): {message}")
        elif kind == "long":
            head = f"{_time(entry, form)} {entry.pid:5d}:{entry.tid:5d} {entry.priority}/{entry.tag:<8}"
            out.append(f"[ {head} ]\n{message}\n")
        else:
            owner = f" {user(entry.uid):>6}" if "uid" in form else ""
            head = (
                f"{_time(entry, form)}{owner} {entry.pid:5d} {entry.tid:5d} {entry.priority} {entry.tag:<8}"
            )
            out.append(f"{head}: {message}")
    return "".join(f"{text}\n" for text in out)


class _Filter:
    """Which entries a call wants, and how it wants to see them."""

    def __init__(self, call: Call, options: Options) -> None:
        self.kind, self.form = "threadtime", set[str]()
        for name in options.get("v", "").replace(",", " ").split():
            if name in _FORMATS:
                self.kind = name
            else:
                self.form.add(name)
        self.buffers = set(options.get("b", "").replace(",", " ").split()) or set(_DEFAULT)
        self.pid = call.integer(options["pid"]) if "pid" in options else 0
        self.since = _since(options["T"]) if "T" in options else _since(options.get("t", ""))
        try:
            self.pattern = re.compile(options["e"]) if "e" in options else None
        except re.error as error:
            raise Failure(f"bad regex '{options['e']}'") from error
        self.levels = {"*": "S"} if "s" in options else {}
        for spec in options.rest:
            tag, _, level = spec.partition(":")
            if level[:1].upper() not in tuple(PRIORITIES + "*") and level:
                raise Failure(f"Invalid filter expression '{spec}'", 1)
            self.levels[tag] = (level[:1].upper() or "V").replace("*", "V")

    def wants(self, entry: Entry) -> bool:
        """Whether it shows an entry."""
        if "all" not in self.buffers and entry.buffer not in self.buffers:
            return False
        if (self.pid and entry.pid != self.pid) or (self.since and entry.time_ms < self.since * 1000):
            return False
        level = self.levels.get(entry.tag, self.levels.get("*", "V"))
        if PRIORITIES.index(entry.priority) < PRIORITIES.index(level) or level == "S":
            return False
        return self.pattern is None or self.pattern.search(entry.message) is not None

    def text(self, entries: list[Entry]) -> str:
        """Those entries that it wants."""
        return "".join(line(entry, self.kind, self.form) for entry in entries if self.wants(entry))


def _since(text: str) -> float:
    """A time as -T and -t take it, in seconds since 1970; 0 when it is a count or nothing."""
    found = re.fullmatch(r"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?", text)
    if found:
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
        try:
            when = datetime(year or 2025, month, day, hour, minute, second, tzinfo=timezone.utc)
        except ValueError:
            return 0.0
        return when.timestamp()
    return float(text) if re.fullmatch(r"\d{9,10}\.\d+", text) else 0.0


async def logcat(call: Call) -> int:
    """logcat [-dcgs] [-v FORMAT] [-b BUFFER] [-t|-T COUNT|TIME] [-e REGEX] [--pid PID] [TAG:LEVEL…]"""
    options = parse(call, "dcgsLDSBp", "vbtTemrnfG")
    for name in [name for name in options if name in _LONG]:
        value = options.pop(name)
        options[_LONG[name]] = value or (call.args[call.args.index(f"--{name}") + 1 :] or [""])[0]
    log = call.system.log
    if "c" in options:
        buffers = tuple(options.get("b", "").replace(",", " ").split())
        log.clear(() if not buffers or "all" in buffers else buffers)
        return 0
    if "g" in options:
        for name in _DEFAULT:
            await call.line(
                f"{name}: ring buffer is 256 KiB (12 KiB consumed), max entry is 5120 B, max payload "
                "is 4068 B"
            )
        return 0
    chosen = _Filter(call, options)
    entries = [entry for entry in log.entries() if chosen.wants(entry)]
    last = log.last
    for option in ("t", "T"):
        if options.get(option, "").isdecimal():
            count = int(options[option][:9])
            entries = entries[-count:] if count else []
    await call.write((_begin(entries) if chosen.kind != "raw" else "") + chosen.text(entries))
    if "d" in options or "t" in options:
        return 0
    left = call.integer(options["m"]) if "m" in options else -1
    while left != 0:
        await log.wait(last)
        fresh = [entry for entry in log.entries(last) if chosen.wants(entry)]
        last = log.last
        fresh = fresh[:left] if left > 0 else fresh
        left -= len(fresh) if left > 0 else 0
        await call.write(chosen.text(fresh))
    return 0


def _begin(entries: list[Entry]) -> str:
    return f"--------- beginning of {entries[0].buffer}\n" if entries else ""


async def log_(call: Call) -> int:
    """log [-p PRIORITY] [-t TAG] MESSAGE…"""
    options = parse(call, "", "pt", first=True)
    priority = options.get("p", "i").upper()[:1]
    if priority not in tuple(PRIORITIES[:-1]):
        raise Failure("bad priority")
    message = " ".join(options.rest)[:4000]
    call.system.log.write(priority, options.get("t", "log")[:64], message, call.shell.pid, call.system.uid)
    return 0


COMMANDS: dict[str, Command] = {"log": log_, "logcat": logcat}
