"""Files and text: cat, cut, echo, grep, ls, md5sum, mkdir, rm."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import stat as modes
from collections.abc import Callable
from datetime import datetime, timezone

from distrl.simulator.adb.call import Call, Command, Failure
from distrl.simulator.adb.files import Stat, fail
from distrl.simulator.adb.runtime import user

_GROUPS = {1004: "input", 1015: "sdcard_rw", 1023: "media_rw", 2001: "cache", 9997: "everybody", 9998: "misc"}


async def _each(call: Call, paths: list[str], work: Callable[[str], str | bytes | None]) -> int:
    """Writes what `work` gives for each path, and reports where it fails. Returns the exit status."""
    status = 0
    for path in paths:
        try:
            output = work(path)
        except OSError as error:
            await call.error(f"{call.name}: {path}: {error.strerror}")
            status = 1
        else:
            await call.write(output or "")
    return status


async def cat(call: Call) -> int:
    """cat [FILE…]"""
    _, paths = call.options("")
    if not paths:
        async for chunk in call.chunks():
            await call.write(chunk)
    return await _each(call, paths, lambda path: call.files.read(call.path(path)))


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

    def listed(path: str) -> str:
        absolute = "/" if path == "." else call.path(path)
        found = call.files.lstat(absolute)
        if found.is_link and ("l" not in options or path.endswith("/")):
            found = call.files.stat(absolute)
        entries = _entries(call, absolute, "a" in options) if found.is_dir else [(path, found, absolute)]
        head = f"{path}:\n" if len(paths) > 1 and found.is_dir else ""
        if "l" not in options:
            return head + "".join(f"{name}\n" for name, _, _ in entries)
        if found.is_dir:
            head += f"total {sum((each.size + 511) // 512 for _, each, _ in entries) // 2}\n"
        return head + _long(call, entries)

    return await _each(call, paths or ["."], listed)


def _entries(call: Call, folder: str, everything: bool) -> list[tuple[str, Stat, str]]:
    base = folder.rstrip("/")
    found = [(name, entry, f"{base}/{name}") for name, entry in call.files.list(folder)]
    if not everything:
        return [entry for entry in found if not entry[0].startswith(".")]
    here = call.files.stat(folder)
    return [(".", here, folder), ("..", here, folder), *found]


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
    _, paths = call.options("")
    if not paths:
        raise Failure("Needs 1 argument")

    def digest(path: str) -> str:
        data = call.files.read(call.path(path))
        return f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {path}\n"

    return await _each(call, paths, digest)


async def mkdir(call: Call) -> int:
    """mkdir [-p] DIRECTORY…"""
    options, paths = call.options("p")
    if not paths:
        raise Failure("Needs 1 argument")
    return await _each(
        call, paths, lambda path: call.files.mkdir(call.path(path), 0o777, parents="p" in options)
    )


async def rm(call: Call) -> int:
    """rm [-rf] FILE…"""
    options, paths = call.options("rf")
    if not paths and "f" not in options:
        raise Failure("Needs 1 argument")

    def remove(path: str) -> None:
        absolute, ignored = call.path(path), (FileNotFoundError, NotADirectoryError) if "f" in options else ()
        with contextlib.suppress(*ignored):
            if "r" in options:
                call.files.remove_tree(absolute)
            elif call.files.lstat(absolute).is_dir:
                raise fail(errno.EISDIR, path)
            else:
                call.files.remove(absolute)

    return await _each(call, paths, remove)


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
