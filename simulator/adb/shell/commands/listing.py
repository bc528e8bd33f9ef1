"""Commands that tell about single files: ls, stat, checksums, base64, parts of names, links."""

from __future__ import annotations

import base64 as b64
import hashlib
import re
import stat as modes
from datetime import datetime, timezone

from distrl.simulator.adb.android_processes import user
from distrl.simulator.adb.files import Stat
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.options import Options, inputs, parse

_GROUPS = {1004: "input", 1015: "sdcard_rw", 1023: "media_rw", 2001: "cache", 9997: "everybody", 9998: "misc"}


def group(gid: int) -> str:
    """The group's name."""
    return _GROUPS.get(gid) or user(gid)


def stamp(seconds: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time as the phone shows it; its zone is UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def _rows(call: Call, entries: list[tuple[str, Stat, str]], options: Options) -> str:
    """The entries (name, stat, path) as `ls` prints them."""
    if "l" not in options and "n" not in options and "o" not in options and "g" not in options:
        lines = []
        for name, found, _ in entries:
            mark = (
                ("/" if found.is_dir else "@" if found.is_link else "")
                if "F" in options or "p" in options
                else ""
            )
            inode = f"{found.ino} " if "i" in options else ""
            blocks = f"{(found.size + 511) // 512} " if "s" in options else ""
            lines.append(f"{inode}{blocks}{name}{mark}\n")
        return "".join(lines)
    cells = []
    for name, found, path in entries:
        owner = str(found.uid) if "n" in options else user(found.uid)
        its = str(found.gid) if "n" in options else group(found.gid)
        size = human(found.size) if "h" in options else str(found.size)
        link = f" -> {call.files.readlink(path)}" if found.is_link else ""
        form = "%Y-%m-%d %H:%M:%S.000000000 +0000" if "ll" in options else "%Y-%m-%d %H:%M"
        head = [modes.filemode(found.mode), str(found.nlink), owner, its, size]
        cells.append((head, f"{stamp(found.mtime, form)} {name}{link}"))
    widths = [max(len(head[column]) for head, _ in cells) for column in range(5)] if cells else []
    lines = []
    for head, tail in cells:
        left = [head[0], head[1].rjust(widths[1]), head[2].ljust(widths[2]), head[3].ljust(widths[3])]
        lines.append(" ".join([*left, head[4].rjust(widths[4]), tail]) + "\n")
    return "".join(lines)


def human(size: int) -> str:
    """A size as `-h` shows it, e.g. "1.5K"."""
    amount, unit = float(size), ""
    for unit in ("", "K", "M", "G"):
        if amount < 1000 or unit == "G":
            break
        amount /= 1024
    return f"{amount:.1f}{unit}" if unit and amount < 10 else f"{amount:.0f}{unit}"


async def ls(call: Call) -> int:
    """ls [-1aAdlnhRtSrFps] [FILE…]"""
    options = parse(call, "1aAdlnogiRtSrFpshLHZCxmqbkuc")
    if call.name == "ll":
        options["l"] = ""
    status, files, folders = 0, [], []
    for path in options.rest or ["."]:
        try:
            absolute = call.path(path)
            found = call.files.lstat(absolute)
            if found.is_link and ("l" not in options or path.endswith("/")) and call.files.exists(absolute):
                found = call.files.stat(absolute)
            if found.is_dir and "d" not in options:
                folders.append(path)
            else:
                files.append((path, found, absolute))
        except OSError as error:
            await call.complain(path, error)
            status = 1
    await call.write(_rows(call, _ordered(files, options), options))
    titled = len(options.rest) > 1 or "R" in options
    queue = list(folders)
    first = not files
    while queue:
        path = queue.pop(0)
        try:
            below = await _folder(call, path, options, titled, first)
        except OSError as error:
            await call.complain(path, error)
            status = 1
            continue
        first = False
        if "R" in options:
            queue = below + queue
    return status


async def _folder(call: Call, path: str, options: Options, titled: bool, first: bool) -> list[str]:
    """Prints a directory; returns the directories in it."""
    absolute = call.path(path)
    entries = [
        (name, found, f"{absolute.rstrip('/')}/{name}")
        for name, found in call.files.list(absolute)
        if not name.startswith(".") or "a" in options or "A" in options
    ]
    if "a" in options:
        here = call.files.stat(absolute)
        entries += [(".", here, absolute), ("..", here, absolute)]
    text = "" if first else "\n"
    text = f"{text}{path}:\n" if titled else text
    if "l" in options:
        text += f"total {sum((found.size + 511) // 512 for _, found, _ in entries) // 2}\n"
    await call.write(text + _rows(call, _ordered(entries, options), options))
    return [
        f"{path.rstrip('/')}/{name}" for name, found, _ in entries if found.is_dir and name not in (".", "..")
    ]


def _ordered(entries: list[tuple[str, Stat, str]], options: Options) -> list[tuple[str, Stat, str]]:
    entries = sorted(entries)
    if "t" in options:
        entries.sort(key=lambda entry: -entry[1].mtime)
    elif "S" in options:
        entries.sort(key=lambda entry: -entry[1].size)
    return entries[::-1] if "r" in options else entries


_KINDS = {modes.S_IFDIR: "directory", modes.S_IFLNK: "symbolic link", modes.S_IFCHR: "character device"}


async def stat(call: Call) -> int:
    """stat [-L] [-c FORMAT] FILE…"""
    options = parse(call, "Lft", "c")
    if not options.rest:
        raise Failure("Needs 1 argument")
    status = 0
    for path in options.rest:
        try:
            found = (call.files.stat if "L" in options else call.files.lstat)(call.path(path))
        except OSError as error:
            await call.complain(path, error)
            status = 1
            continue
        await call.write(_stat_text(path, found, options.get("c")))
    return status


def _stat_text(path: str, found: Stat, form: str | None) -> str:
    kind = _KINDS.get(modes.S_IFMT(found.mode)) or ("regular file" if found.size else "regular empty file")
    full = stamp(found.mtime, "%Y-%m-%d %H:%M:%S.000000000 +0000")
    values = {
        "n": path,
        "N": f"'{path}'",
        "s": str(found.size),
        "a": f"{found.mode & 0o7777:o}",
        "A": modes.filemode(found.mode),
        "f": f"{found.mode:x}",
        "F": kind,
        "u": str(found.uid),
        "U": user(found.uid),
        "g": str(found.gid),
        "G": group(found.gid),
        "i": str(found.ino),
        "h": str(found.nlink),
        "b": str((found.size + 511) // 512),
        "B": "512",
        "o": "4096",
        "%": "%",
        **dict.fromkeys("XYZ", str(found.mtime)),
        **dict.fromkeys("xyz", full),
    }
    if form is not None:
        return re.sub(r"%(.)", lambda match: values.get(match.group(1), match.group()), form) + "\n"
    return (
        f"  File: {path}\n"
        f"  Size: {found.size}\t Blocks: {values['b']}\t IO Blocks: 512\t{kind}\n"
        f"Device: fe1bh/65051d\t Inode: {found.ino}\t Links: {found.nlink}\n"
        f"Access: ({found.mode & 0o7777:04o}/{values['A']})\tUid: ({found.uid:5d}/{user(found.uid):>8})"
        f"\tGid: ({found.gid:5d}/{group(found.gid):>8})\n"
        f"Access: {full}\nModify: {full}\nChange: {full}\n"
    )


async def checksum(call: Call) -> int:
    """md5sum, sha1sum, sha256sum, sha512sum [-b] [FILE…]"""
    options = parse(call, "b")
    for name, data in await inputs(call, options.rest):
        digest = hashlib.new(call.name.removesuffix("sum"), data, usedforsecurity=False).hexdigest()
        await call.line(digest if "b" in options else f"{digest}  {name}")
    return call.shell.status


async def base64(call: Call) -> int:
    """base64 [-d] [-w COLUMNS] [FILE]"""
    options = parse(call, "di", "w")
    width = call.integer(options.get("w", "76"))
    for _, data in await inputs(call, options.rest[:1]):
        if "d" in options:
            try:
                await call.write(b64.b64decode(b"".join(data.split())))
            except ValueError as error:
                raise Failure("bad input") from error
            continue
        text = b64.b64encode(data).decode()
        rows = [text[at : at + width] for at in range(0, len(text), width)] if width > 0 else [text]
        await call.write("".join(f"{row}\n" for row in rows) if width > 0 else text)
    return call.shell.status


async def basename(call: Call) -> int:
    """basename PATH [SUFFIX]"""
    if not call.args:
        raise Failure("Needs 1 argument")
    name = call.args[0].rstrip("/").rpartition("/")[2] or "/"
    suffix = call.args[1] if len(call.args) > 1 else ""
    await call.line(name[: -len(suffix)] if suffix and name.endswith(suffix) and name != suffix else name)
    return 0


async def dirname(call: Call) -> int:
    """dirname PATH"""
    if not call.args:
        raise Failure("Needs 1 argument")
    folder, slash, _ = call.args[0].rstrip("/").rpartition("/")
    await call.line(folder.rstrip("/") or slash or ".")
    return 0


async def readlink(call: Call) -> int:
    """readlink [-f] FILE…; realpath FILE…"""
    options = parse(call, "fenq")
    for path in options.rest:
        try:
            if call.name == "realpath" or "f" in options:
                await call.line(call.files.real(call.path(path)))
            else:
                await call.line(call.files.readlink(call.path(path)))
        except OSError as error:
            if call.name == "realpath":
                await call.complain(path, error)
            return 1
    return 0


COMMANDS: dict[str, Command] = {
    "base64": base64,
    "basename": basename,
    "dirname": dirname,
    "ll": ls,
    "ls": ls,
    "md5sum": checksum,
    "readlink": readlink,
    "realpath": readlink,
    "sha1sum": checksum,
    "sha256sum": checksum,
    "sha512sum": checksum,
    "stat": stat,
}
