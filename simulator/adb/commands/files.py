"""Files and text: cat, cut, echo, grep, ls, md5sum, mkdir, rm."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat as modes
from datetime import datetime, timezone

from distrl.simulator.adb.call import Call, Command, Failure
from distrl.simulator.adb.files import Stat
from distrl.simulator.adb.runtime import user

_GROUPS = {1004: "input", 1015: "sdcard_rw", 1023: "media_rw", 2001: "cache", 9997: "everybody", 9998: "misc"}


async def cat(call: Call) -> int:
    """cat [FILE…]"""
    status, (_, paths) = 0, call.options("")
    if not paths:
        async for chunk in call.chunks():
            await call.write(chunk)
    for path in paths:
        try:
            await call.write(call.files.read(call.path(path)))
        except OSError as error:
            await call.complain(path, error)
            status = 1
    return status


async def cut(call: Call) -> int:
    """cut -d DELIMITER -f NUMBER"""
    options, rest = call.options("", "df")
    if rest or not options.get("d") or not options.get("f", "").isdecimal():
        raise Failure("the simulated phone's cut takes -d DELIMITER -f NUMBER")
    number = int(options["f"])
    async for line in call.lines():
        parts = line.split(options["d"])
        await call.line(line if len(parts) == 1 else "".join(parts[number - 1 : number]))
    return 0


async def echo(call: Call) -> int:
    """echo [-n] [WORD…]"""
    if call.args and re.fullmatch("-[neE]*[eE][neE]*", call.args[0]):
        raise Failure(f"{call.args[0]} is not supported by the simulated phone")
    words = call.args[1:] if call.args[:1] == ["-n"] else call.args
    await call.write(" ".join(words) + ("\n" if words is call.args else ""))
    return 0


async def grep(call: Call) -> int:
    """grep [-Eiv] PATTERN: standard input line by line, as it comes, so that it can follow a log."""
    options, rest = call.options("Eiv")
    if len(rest) != 1:
        raise Failure("the simulated phone's grep takes one PATTERN, and reads standard input", 2)
    pattern = rest[0]
    if "[:" in pattern or ("E" not in options and re.search(r"\\[(){}|+?]", pattern)):
        raise Failure(f"'{pattern}' is not supported by the simulated phone's grep", 2)
    try:
        text = pattern if "E" in options else re.sub(r"[(){}|+?]", r"\\\g<0>", pattern)
        matcher = re.compile(text, re.I if "i" in options else 0)
    except re.error as error:
        raise Failure(f"bad REGEX '{pattern}': {error}", 2) from error
    status = 1
    async for line in call.lines():
        if (matcher.search(line) is None) == ("v" in options):
            status = 0
            await call.line(line)
    return status


async def ls(call: Call) -> int:
    """ls [-1al] [FILE…]"""
    options, paths = call.options("1al")
    status = 0
    for path in paths or ["."]:
        absolute = "/" if path == "." else call.path(path)
        try:
            found = call.files.lstat(absolute)
            if found.is_link and ("l" not in options or path.endswith("/")):
                found = call.files.stat(absolute)
            entries = _entries(call, absolute, "a" in options) if found.is_dir else [(path, found, absolute)]
        except OSError as error:
            await call.complain(path, error)
            status = 1
            continue
        head = f"{path}:\n" if len(paths) > 1 and found.is_dir else ""
        if "l" in options and found.is_dir:
            head += f"total {sum((each.size + 511) // 512 for _, each, _ in entries) // 2}\n"
        await call.write(head + (_long(call, entries) if "l" in options else _short(entries)))
    return status


def _entries(call: Call, folder: str, everything: bool) -> list[tuple[str, Stat, str]]:
    base = folder.rstrip("/")
    found = [(name, entry, f"{base}/{name}") for name, entry in call.files.list(folder)]
    if not everything:
        return [entry for entry in found if not entry[0].startswith(".")]
    here = call.files.stat(folder)
    return [(".", here, folder), ("..", here, folder), *found]


def _short(entries: list[tuple[str, Stat, str]]) -> str:
    return "".join(f"{name}\n" for name, _, _ in entries)


def _long(call: Call, entries: list[tuple[str, Stat, str]]) -> str:
    rows = []
    for name, found, path in entries:
        link = f" -> {call.files.readlink(path)}" if found.is_link else ""
        when = datetime.fromtimestamp(found.mtime, timezone.utc).strftime("%Y-%m-%d %H:%M")
        owner, group = user(found.uid), _GROUPS.get(found.gid) or user(found.gid)
        head = [modes.filemode(found.mode), str(found.nlink), owner, group, str(found.size)]
        rows.append((head, f"{when} {name}{link}"))
    width = [max(len(head[column]) for head, _ in rows) for column in range(5)] if rows else []
    return "".join(
        f"{mode} {links:>{width[1]}} {owner:<{width[2]}} {group:<{width[3]}} {size:>{width[4]}} {tail}\n"
        for (mode, links, owner, group, size), tail in rows
    )


async def md5sum(call: Call) -> int:
    """md5sum FILE…"""
    status, (_, paths) = 0, call.options("")
    if not paths:
        raise Failure("Needs 1 argument")
    for path in paths:
        try:
            data = call.files.read(call.path(path))
        except OSError as error:
            await call.complain(path, error)
            status = 1
        else:
            await call.line(f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {path}")
    return status


async def mkdir(call: Call) -> int:
    """mkdir [-p] DIRECTORY…"""
    options, paths = call.options("p")
    if not paths:
        raise Failure("Needs 1 argument")
    status = 0
    for path in paths:
        try:
            call.files.mkdir(call.path(path), 0o777, parents="p" in options)
        except OSError as error:
            await call.complain(path, error)
            status = 1
    return status


async def rm(call: Call) -> int:
    """rm [-rf] FILE…"""
    options, paths = call.options("rf")
    if not paths and "f" not in options:
        raise Failure("Needs 1 argument")
    status = 0
    for path in paths:
        try:
            if "r" in options:
                call.files.remove_tree(call.path(path))
            elif call.files.lstat(call.path(path)).is_dir:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            else:
                call.files.remove(call.path(path))
        except OSError as error:
            if not ("f" in options and isinstance(error, (FileNotFoundError, NotADirectoryError))):
                await call.complain(path, error)
                status = 1
    return status


COMMANDS: dict[str, Command] = {
    "cat": cat,
    "cut": cut,
    "echo": echo,
    "grep": grep,
    "ls": ls,
    "md5sum": md5sum,
    "mkdir": mkdir,
    "rm": rm,
}
