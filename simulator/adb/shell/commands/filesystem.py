"""Commands that change files: rm, mkdir, mv, cp, touch, chmod, ln, dd, …"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.options import parse


async def _each(call: Call, paths: list[str], work: Callable[[str, str], None], quiet: bool = False) -> int:
    """Does `work(path as given, absolute path)` for each path; failures are named, the others still done."""
    if not paths and not quiet:
        raise Failure("Needs 1 argument")
    status = 0
    for path in paths:
        try:
            work(path, call.path(path))
        except OSError as error:
            if quiet and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                continue
            await call.complain(path, error)
            status = 1
    return status


async def rm(call: Call) -> int:
    """rm [-rf] FILE…"""
    options = parse(call, "rRfiv")
    tree = "r" in options or "R" in options

    def remove(path: str, absolute: str) -> None:
        if tree:
            call.files.remove_tree(absolute)
        elif call.files.lstat(absolute).is_dir:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        else:
            call.files.remove(absolute)

    return await _each(call, options.rest, remove, quiet="f" in options)


async def rmdir(call: Call) -> int:
    """rmdir [-p] DIRECTORY…"""

    def remove(path: str, absolute: str) -> None:
        if not call.files.lstat(absolute).is_dir:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        call.files.remove(absolute)

    return await _each(call, parse(call, "p").rest, remove)


async def mkdir(call: Call) -> int:
    """mkdir [-p] [-m MODE] DIRECTORY…"""
    options = parse(call, "pv", "m")
    mode = int(options["m"], 8) if re.fullmatch("[0-7]{1,4}", options.get("m", "")) else 0o777
    return await _each(
        call, options.rest, lambda path, absolute: call.files.mkdir(absolute, mode, parents="p" in options)
    )


async def touch(call: Call) -> int:
    """touch [-c] [-d DATE | -t TIME] FILE…"""
    options = parse(call, "cam", "dtr")

    def one(path: str, absolute: str) -> None:
        if call.files.exists(absolute):
            call.files.utime(absolute, int(call.system.clock()))
        elif "c" not in options:
            call.files.write(absolute, b"", mode=0o666 & ~0o022)

    return await _each(call, options.rest, one)


async def chmod(call: Call) -> int:
    """chmod [-R] MODE FILE…"""
    options = parse(call, "Rvf")
    if len(options.rest) < 2:
        raise Failure("Needs 2 arguments")
    mode, paths = options.rest[0], options.rest[1:]

    def one(path: str, absolute: str) -> None:
        call.files.chmod(absolute, _mode(mode, call.files.stat(absolute).mode))
        if "R" in options and call.files.stat(absolute).is_dir:
            for name, node in call.files.tree(absolute):
                if not node.is_link:
                    call.files.chmod(name, _mode(mode, node.mode))

    return await _each(call, paths, one)


def _mode(text: str, present: int) -> int:
    """A mode as chmod takes it: octal, or like `u+x,go-w`."""
    if re.fullmatch("[0-7]{1,4}", text):
        return int(text, 8)
    bits = present & 0o7777
    for part in text.split(","):
        found = re.fullmatch(r"([ugoa]*)([-+=])([rwxXst]*)", part)
        if not found:
            raise Failure(f"bad mode '{text}'")
        who = found.group(1).replace("a", "ugo") or "ugo"
        value = sum({"r": 4, "w": 2, "x": 1, "X": 1}.get(letter, 0) for letter in set(found.group(3)))
        mask = sum(value << {"u": 6, "g": 3, "o": 0}[each] for each in set(who))
        if found.group(2) == "=":
            bits &= ~sum(7 << {"u": 6, "g": 3, "o": 0}[each] for each in set(who))
        bits = bits & ~mask if found.group(2) == "-" else bits | mask
    return bits


async def chown(call: Call) -> int:
    """chown, chgrp [-R] OWNER FILE…: numbers, or names that Android knows."""
    options = parse(call, "Rfhv")
    if len(options.rest) < 2:
        raise Failure("Needs 2 arguments")
    ids = {"root": 0, "system": 1000, "shell": 2000, "sdcard_rw": 1015, "media_rw": 1023, "everybody": 9997}
    owner, _, group = options.rest[0].replace(".", ":").partition(":")
    for name in (owner, group):
        if name and name not in ids and not name.isdecimal():
            raise Failure(f"bad user or group '{name}'")

    def one(path: str, absolute: str) -> None:
        found = call.files.stat(absolute)
        number = [int(ids.get(name, name or -1)) for name in (owner, group)]
        if call.name == "chgrp":
            number = [-1, number[0]]
        uid, gid = (
            new if new >= 0 else old for new, old in zip(number, (found.uid, found.gid), strict=False)
        )
        call.files.chown(absolute, uid, gid)

    return await _each(call, options.rest[1:], one)


def _into(call: Call, source: str, target: str) -> str:
    """Where `source` goes: into `target` when that is a directory, else `target` itself."""
    absolute = call.path(target)
    if call.files.exists(absolute) and call.files.stat(absolute).is_dir:
        return f"{absolute.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}"
    return absolute


def _targets(call: Call, paths: list[str], folder: str) -> tuple[list[str], str]:
    if folder:
        return paths, folder
    if len(paths) < 2:
        raise Failure("Needs 2 arguments")
    target = call.path(paths[-1])
    if len(paths) > 2 and not (call.files.exists(target) and call.files.stat(target).is_dir):
        raise Failure(f"'{paths[-1]}' not directory")
    return paths[:-1], paths[-1]


async def mv(call: Call) -> int:
    """mv [-fn] SOURCE… TARGET"""
    options = parse(call, "finv", "t")
    sources, target = _targets(call, options.rest, options.get("t", ""))

    def move(path: str, absolute: str) -> None:
        into = _into(call, path, target)
        if not ("n" in options and call.files.exists(into)):
            call.files.rename(absolute, into)

    return await _each(call, sources, move)


async def cp(call: Call) -> int:
    """cp [-rfap] SOURCE… TARGET"""
    options = parse(call, "rRfapinvdHLP", "t")
    sources, target = _targets(call, options.rest, options.get("t", ""))
    tree = bool({"r", "R", "a"} & set(options))

    def copy(path: str, absolute: str) -> None:
        into = _into(call, path, target)
        if "n" in options and call.files.exists(into):
            return
        if call.files.stat(absolute).is_dir and not tree:
            raise Failure(f"Skipped dir '{path}'")
        _copy(call, absolute, into, keep="p" in options or "a" in options)

    return await _each(call, sources, copy)


def _copy(call: Call, source: str, target: str, keep: bool) -> None:
    files, found = call.files, call.files.stat(source)
    if not found.is_dir:
        files.write(target, files.read(source), found.mode & 0o777, found.mtime if keep else None)
        return
    if f"{files.real(target)}/".startswith(f"{files.real(source)}/"):
        raise OSError(errno.EINVAL, "recursion", target)
    files.mkdir(target, found.mode & 0o7777, parents=files.exists(target))
    for name, _ in files.list(source):
        _copy(call, f"{source}/{name}", f"{target}/{name}", keep)


async def ln(call: Call) -> int:
    """ln -s [-f] TARGET NAME"""
    options = parse(call, "sfnv")
    if len(options.rest) != 2:
        raise Failure("Needs 2 arguments")
    target, name = options.rest
    path = _into(call, target, name)
    if "f" in options and call.files.exists(path):
        call.files.remove(path)
    if "s" in options:
        call.files.symlink(target, path)
    else:
        call.files.write(path, call.files.read(call.path(target)))
    return 0


_SUFFIX = {"": 1, "c": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "b": 512}


async def dd(call: Call) -> int:
    """dd [if=FILE] [of=FILE] [bs=N] [count=N] [skip=N] [seek=N]"""
    given = dict(arg.partition("=")[::2] for arg in call.args)

    def number(name: str, default: int) -> int:
        found = re.fullmatch(r"(\d{1,9})([ckKMb]?)", given.get(name, str(default)))
        if not found:
            raise Failure(f"bad {name}={given[name]}")
        return int(found.group(1)) * _SUFFIX[found.group(2)]

    block, count = number("bs", 512), number("count", -1) if "count" in given else -1
    if count >= 0 and block * count > 1 << 28:
        raise Failure("too large")
    if "if" in given:
        data = call.files.read(call.path(given["if"]))
        if call.path(given["if"]) in ("/dev/zero", "/dev/urandom") and count >= 0:
            data = (data * (block * count // len(data) + 1))[: block * count]
    else:
        data = await call.read_all()
    start = number("skip", 0) * block if "skip" in given else 0
    data = data[start : start + block * count] if count >= 0 else data[start:]
    if "of" in given:
        path = call.path(given["of"])
        seek = number("seek", 0) * block if "seek" in given else 0
        before = call.files.read(path)[:seek].ljust(seek, b"\0") if seek else b""
        call.files.write(path, before + data)
    else:
        await call.write(data)
    whole, part = divmod(len(data), max(1, block))
    await call.error(f"{whole}+{bool(part):d} records in\n{whole}+{bool(part):d} records out")
    await call.error(f"{len(data)} bytes copied, 0.001 s")
    return 0


async def truncate(call: Call) -> int:
    """truncate -s SIZE FILE…"""
    options = parse(call, "c", "s")
    found = re.fullmatch(r"(\d{1,9})([kKM]?)", options.get("s", ""))
    if not found:
        raise Failure("Needs -s")
    size = int(found.group(1)) * _SUFFIX[found.group(2)]

    def one(path: str, absolute: str) -> None:
        data = call.files.read(absolute) if call.files.exists(absolute) else b""
        call.files.write(absolute, data[:size].ljust(size, b"\0"))

    return await _each(call, options.rest, one)


async def sync(call: Call) -> int:
    """sync: there is nothing to write back."""
    return 0


async def mktemp(call: Call) -> int:
    """mktemp [-d] [TEMPLATE]"""
    options = parse(call, "dqtu", "p")
    template = options.rest[0] if options.rest else f"{options.get('p') or '/data/local/tmp'}/tmp.XXXXXXXXXX"
    marks = len(template) - len(template.rstrip("X"))
    letters = "".join(call.shell.random.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(marks))
    path = template[: len(template) - marks] + letters
    if "d" in options:
        call.files.mkdir(call.path(path), 0o700)
    else:
        call.files.write(call.path(path), b"", mode=0o600)
    await call.line(path)
    return 0


COMMANDS: dict[str, Command] = {
    "chgrp": chown,
    "chmod": chmod,
    "chown": chown,
    "cp": cp,
    "dd": dd,
    "ln": ln,
    "mkdir": mkdir,
    "mktemp": mktemp,
    "mv": mv,
    "rm": rm,
    "rmdir": rmdir,
    "sync": sync,
    "touch": touch,
    "truncate": truncate,
}
