"""Redirections: which open files a command has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrl.simulator.adb.shell import expansion
from distrl.simulator.adb.shell.call import encode
from distrl.simulator.adb.shell.streams import FileSink, Source, Stream, Terminal
from distrl.simulator.adb.shell.syntax import Redirect

if TYPE_CHECKING:
    from distrl.simulator.adb.shell.interpreter import Interpreter


class RedirectionFailure(Exception):
    """A file cannot be opened; the message is what the shell prints."""


async def redirected(shell: Interpreter, redirects: tuple[Redirect, ...]) -> dict[int, Stream]:
    """The open files of `shell` after `redirects`, which are done from left to right."""
    if not redirects:
        return shell.fds
    fds = dict(shell.fds)
    for redirect in redirects:
        target = await expansion.single(shell, redirect.target)
        operator = redirect.operator
        if operator == "<<":
            fds[redirect.fd] = Source(encode(target))
        elif operator in (">&", "<&"):
            _duplicate(fds, redirect.fd, target)
        elif operator == "&>":
            fds[1] = fds[2] = _open(shell, fds, ">", target)
        else:
            fds[redirect.fd] = _open(shell, fds, operator, target)
    return fds


def _duplicate(fds: dict[int, Stream], fd: int, target: str) -> None:
    if target == "-":
        fds[fd] = Stream()
    elif target.isdecimal() and int(target) in fds:
        fds[fd] = fds[int(target)]
    else:
        raise RedirectionFailure(f"{target}: bad file descriptor")


def _open(shell: Interpreter, fds: dict[int, Stream], operator: str, target: str) -> Stream:
    path = shell.absolute(target)
    if path == "/dev/tty":
        return Terminal(shell.fds[0], shell.fds[1])
    if path in ("/dev/stdout", "/proc/self/fd/1"):
        return fds[1]
    if path in ("/dev/stderr", "/proc/self/fd/2"):
        return fds[2]
    try:
        if operator == "<":
            return Source(shell.system.files.read(path))
        return FileSink(shell.system.files, path, append=operator in (">>", "<>"))
    except OSError as error:
        verb = "open" if operator == "<" else "create"
        raise RedirectionFailure(f"can't {verb} {target}: {error.strerror}") from error
