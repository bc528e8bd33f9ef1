"""The simulated phone's shell: runs what adb clients send (shell_language.py says what it understands).

    run ── parse ── Shell.run ── pipelines, their commands joined by pipes ── builtins, COMMANDS

A line that is not understood does not run at all: status 2, and a message on standard error.
"""

from __future__ import annotations

import asyncio
import glob
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from distrl.simulator.adb.call import Call, Command, Failure, Stream, decode, encode
from distrl.simulator.adb.commands import COMMANDS
from distrl.simulator.adb.files import Files
from distrl.simulator.adb.shell_language import (
    Incomplete,
    Part,
    Pipeline,
    Redirection,
    ShellError,
    Simple,
    Word,
    parse,
)

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

__all__ = ["Io", "ShellError", "parse", "run"]
MAX_LINE = 1 << 20
"""Most bytes of one interactive line."""
PIPE_BYTES = 1 << 16
"""Most bytes that a pipe holds; a writer waits until there is room."""
MAX_JOBS = 64
"""Most commands that one session runs in the background."""
MAX_DEPTH = 20
"""How deep `sh` may call `sh`."""
SYNTAX_STATUS, NOT_FOUND_STATUS, INTERRUPTED_STATUS, SIGPIPE_STATUS = 2, 127, 130, 141
_VARIABLES = {
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "PATH": "/product/bin:/system/bin:/system/xbin:/vendor/bin",
    "TMPDIR": "/data/local/tmp",
}
_BIN = re.compile(r"/(?:system/|vendor/|system/x)?bin/")
T = TypeVar("T")


class Io(Protocol):
    """The three standard streams of a session."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes from standard input; b"" at its end."""
        ...

    async def out(self, data: bytes) -> None:
        """Writes to standard output; returns when there is room for more."""
        ...

    async def err(self, data: bytes) -> None:
        """Writes to standard error; returns when there is room for more."""
        ...


# Streams.


class _Standard(Stream):
    """A standard stream of the session."""

    def __init__(self, io: Io, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        self._io, self._write = io, write

    async def read(self, size: int) -> bytes:
        return await self._io.read(size)

    async def write(self, data: bytes) -> None:
        if data:
            await self._write(data)


class _Source(Stream):
    """Reads given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = BytesIO(data)

    async def read(self, size: int) -> bytes:
        return self._data.read(size)


class _FileSink(Stream):
    """Writes to a file, created or emptied at once unless it is appended to."""

    def __init__(self, files: Files, path: str, append: bool) -> None:
        self._files, self._path = files, path
        files.write(path, b"", mode=0o644, append=append)

    async def write(self, data: bytes) -> None:
        self._files.write(self._path, data, append=True)


class _Pipe(Stream):
    """Joins two commands: one writes, the other reads."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._changed = asyncio.Event()
        self._is_written = self._is_unread = False

    async def read(self, size: int) -> bytes:
        while not self._data and not self._is_written:
            await self._change()
        found = bytes(self._data[:size])
        del self._data[:size]
        self._changed.set()
        return found

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), PIPE_BYTES):
            while len(self._data) >= PIPE_BYTES and not self._is_unread:
                await self._change()
            if self._is_unread:
                raise BrokenPipeError("the reader is gone")
            self._data += data[start : start + PIPE_BYTES]
            self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def close_writer(self) -> None:
        """No more is written."""
        self._is_written = True
        self._changed.set()

    def close_reader(self) -> None:
        """No more is read: the writer gets a BrokenPipeError."""
        self._is_unread = True
        self._changed.set()


# Running.


class _Exit(Exception):
    """`exit` and `exec`: the shell ends with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status & 255


@dataclass
class Shell:
    """A shell process.

    Attributes:
        fds: Standard input, output and error.
        interrupts: Set at each Ctrl-C; None where there is no terminal.
        depth: How many shells called each other.
        jobs: Its last commands in the background, by the numbers that $! gives.
        running: What runs in the background of the whole session: shells that call each other share it.
    """

    system: AndroidSystem
    fds: tuple[Stream, Stream, Stream]
    interrupts: asyncio.Event | None = None
    variables: dict[str, str] = field(default_factory=lambda: dict(_VARIABLES))
    status: int = 0
    depth: int = 0
    jobs: dict[int, asyncio.Task[int]] = field(default_factory=dict)
    running: set[asyncio.Task[int]] = field(default_factory=set)

    def _fork(self, *fds: Stream) -> Shell:
        """A shell with other streams and the same variables, whose changes do not come back."""
        one, two, three = fds
        variables = dict(self.variables)
        return replace(self, fds=(one, two, three), interrupts=None, variables=variables, jobs={})

    async def program(self, text: str) -> int:
        """Runs a program to its end, or to `exit`; returns the exit status."""
        try:
            return await self.run(parse(text))
        except ShellError as error:
            await self.complain(str(error))
            return SYNTAX_STATUS
        except _Exit as leaving:
            return leaving.status
        except BrokenPipeError:
            return SIGPIPE_STATUS

    async def complain(self, message: str) -> None:
        """Prints an error as the shell itself does."""
        await self.fds[2].write(encode(f"/system/bin/sh: {message}\n"))

    async def run(self, pipelines: list[Pipeline]) -> int:
        """Runs pipelines one after the other; returns the last status."""
        for pipeline in pipelines:
            if pipeline.runs_if and (self.status == 0) != (pipeline.runs_if == "&&"):
                continue
            if pipeline.is_background:
                await self._start(pipeline)
            else:
                self.status = await self._pipeline(pipeline.commands)
        return self.status

    async def _start(self, pipeline: Pipeline) -> None:
        if len(self.running) >= MAX_JOBS:
            raise ShellError("cannot fork - try again")
        pid = self.system.processes.fresh_pid()
        job = asyncio.ensure_future(self._fork(Stream(), *self.fds[1:])._stage(pipeline.commands))
        self.running.add(job)
        job.add_done_callback(self.running.discard)
        self.jobs[pid] = job
        if len(self.jobs) > MAX_JOBS:
            del self.jobs[next(iter(self.jobs))]
        self.variables["!"] = str(pid)
        self.status = 0

    async def _pipeline(self, commands: list[Simple]) -> int:
        if len(commands) == 1:
            return await self._simple(commands[0])
        pipes = [_Pipe() for _ in commands[1:]]
        sources, sinks = [self.fds[0], *pipes], [*pipes, self.fds[1]]
        tasks = [
            asyncio.ensure_future(self._fork(source, sink, self.fds[2])._stage([command]))
            for command, source, sink in zip(commands, sources, sinks, strict=True)
        ]
        try:
            for task in tasks:
                status = await task
            return status
        finally:
            await _cancel(tasks)

    async def _stage(self, commands: list[Simple]) -> int:
        """Runs a part of a pipeline, or a command in the background; this shell is a fork made for it."""
        try:
            return await self._pipeline(commands)
        except _Exit as leaving:
            return leaving.status
        except BrokenPipeError:
            return SIGPIPE_STATUS
        finally:
            source, sink = self.fds[:2]
            if isinstance(source, _Pipe):
                source.close_reader()
            if isinstance(sink, _Pipe):
                sink.close_writer()

    async def _simple(self, command: Simple) -> int:
        outer = self.fds
        try:
            args = [arg for word in command.words for arg in self._expand(word)]
            self.fds = self._redirected(command.redirections)
            if args:
                return await self._call(args)  # no command of this phone looks at variables
            for name, word in command.assignments:
                self.variables[name] = self._text(word)
            return 0
        except ShellError as error:
            await self.complain(str(error))
            return 1
        finally:
            self.fds = outer

    def _text(self, word: Word) -> str:
        return "".join(self._value(part) for part in word)

    def _value(self, part: Part) -> str:
        if not part.is_variable:
            return part.text
        return str(self.status) if part.text == "?" else self.variables.get(part.text, "")

    def _expand(self, word: Word) -> list[str]:
        """The arguments that a word becomes: none for an empty variable, several for a pattern."""
        for part in word:
            if part.is_variable and not part.is_quoted and re.search(r"\s", self._value(part)):
                raise ShellError(f"${part.text} has blanks: quote it, words are not split here")
        text = self._text(word)
        if not text and all(part.is_variable and not part.is_quoted for part in word):
            return []
        if any(glob.has_magic(part.text) for part in word if not (part.is_quoted or part.is_variable)):
            pattern = "".join(
                glob.escape(self._value(part)) if part.is_quoted or part.is_variable else part.text
                for part in word
            )
            return _matches(self.system.files, pattern) or [text]
        return [text]

    def _redirected(self, redirections: list[Redirection]) -> tuple[Stream, Stream, Stream]:
        fds = list(self.fds)
        for each in redirections:
            target = self._text(each.target)
            if each.operator == ">&" and target in ("1", "2"):
                fds[each.fd] = fds[int(target)]
                continue
            if each.fd > 2 or each.operator == ">&":
                raise ShellError(f"{each.fd}{each.operator}{target}: bad file descriptor")
            files = self.system.files
            path = target if target.startswith("/") else f"/{target}"
            try:
                if each.operator == "<":
                    fds[each.fd] = _Source(files.read(path))
                else:
                    fds[each.fd] = _FileSink(files, path, each.operator == ">>")
            except OSError as error:
                verb = "open" if each.operator == "<" else "create"
                raise ShellError(f"can't {verb} {target}: {error.strerror}") from error
        return fds[0], fds[1], fds[2]

    async def _call(self, args: list[str]) -> int:
        """Calls a builtin or a command; what it raises becomes a message and a status."""
        builtin = _BUILTINS.get(args[0])
        command = None if builtin else find(args[0])
        if builtin is None and command is None:
            await self.complain(f"{args[0]}: inaccessible or not found")
            return NOT_FOUND_STATUS
        name = args[0].rpartition("/")[2]
        call = Call(self.system, name, args[1:], *self.fds)
        try:
            return await (builtin(self, call) if builtin else command(call))  # type: ignore[misc]
        except Failure as failure:
            if failure.message:
                await call.error(f"{name}: {failure.message}" if failure.prefixed else failure.message)
            return failure.status
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            await call.error(f"{name}: {where}{error.strerror}")
            return 1

    # Builtins.

    async def _exit(self, call: Call) -> int:
        raise _Exit(call.integer(call.args[0]) if call.args else self.status)

    async def _exec(self, call: Call) -> int:
        raise _Exit(await self._call(call.args) if call.args else 0)

    async def _export(self, call: Call) -> int:
        """export NAME[=VALUE]…"""
        for arg in call.args:
            name, equals, value = arg.partition("=")
            if equals:
                self.variables[name] = value
        return 0

    async def _wait(self, call: Call) -> int:
        """wait PID: until that command in the background has ended."""
        if len(call.args) != 1:
            raise Failure("the simulated phone's shell takes one PID", SYNTAX_STATUS)
        job = self.jobs.pop(call.integer(call.args[0]), None)
        return NOT_FOUND_STATUS if job is None else await job

    async def _sh(self, call: Call) -> int:
        """sh -c PROGRAM | FILE"""
        if self.depth >= MAX_DEPTH:
            raise Failure("shells call each other too deep")
        child = self._fork(*self.fds)
        child.depth += 1
        if call.args[:1] == ["-c"] and len(call.args) == 2:
            return await child.program(call.args[1])
        if len(call.args) != 1:
            raise Failure("the simulated phone's shell takes -c PROGRAM or one FILE", SYNTAX_STATUS)
        return await child.program(decode(self.system.files.read(call.path(call.args[0]))))

    async def _toybox(self, call: Call) -> int:
        return await self._call(call.args) if call.args else 0

    async def _which(self, call: Call) -> int:
        names = [name for name in call.args if find(name)]
        await call.write("".join(f"/system/bin/{name}\n" for name in names))
        return int(len(names) < len(call.args))


_BUILTINS: dict[str, Callable[[Shell, Call], Coroutine[Any, Any, int]]] = {
    "exec": Shell._exec,
    "exit": Shell._exit,
    "export": Shell._export,
    "sh": Shell._sh,
    "toybox": Shell._toybox,
    "wait": Shell._wait,
    "which": Shell._which,
}


def find(name: str) -> Command | None:
    """The command of this name or path, None when there is none."""
    return COMMANDS.get(_BIN.sub("", name, count=1) if name.startswith("/") else name)


def _matches(files: Files, pattern: str) -> list[str]:
    found = [""]
    for part in pattern.strip("/").split("/"):
        if glob.has_magic(part):
            found = [
                f"{folder}/{name}"
                for folder in found
                for name in _names(files, folder or "/")
                if fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
            ]
        else:
            found = [path for folder in found if files.exists(path := f"{folder}/{part}")]
    return found if pattern.startswith("/") else [path[1:] for path in found]


def _names(files: Files, folder: str) -> list[str]:
    try:
        return [name for name, _ in files.list(folder)]
    except OSError:
        return []


async def _cancel(tasks: list[asyncio.Task[int]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Sessions.


async def run(system: AndroidSystem, command: str, io: Io, *, interrupts: asyncio.Event | None = None) -> int:
    """Runs a command line on the phone.

    Args:
        command: What would stand after `sh -c`; empty for an interactive shell that reads standard input.
            Bytes that are not UTF-8 stand in it as surrogates ("surrogateescape").
        io: Its streams. The call may be cancelled at any await.
        interrupts: Set at each Ctrl-C; None where the streams are not a terminal. It ends `command`, or what
            an interactive shell runs in the foreground.
    """
    shell = Shell(system, (_Standard(io, io.out), _Standard(io, io.out), _Standard(io, io.err)), interrupts)
    try:
        status = await (_interruptible(shell, shell.program(command)) if command else _interact(shell))
        while shell.running and interrupts is None:  # a terminal hangs up on what is still in the background
            await asyncio.gather(*shell.running, return_exceptions=True)
        return INTERRUPTED_STATUS if status is None else status
    finally:
        await _cancel(list(shell.running))


async def _interruptible(shell: Shell, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, None when Ctrl-C has ended it."""
    if shell.interrupts is None:
        return await work
    task, interrupt = asyncio.ensure_future(work), asyncio.ensure_future(shell.interrupts.wait())
    try:
        await asyncio.wait((task, interrupt), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        shell.interrupts.clear()
        return None
    finally:
        task.cancel()
        interrupt.cancel()
        await asyncio.gather(task, interrupt, return_exceptions=True)


async def _interact(shell: Shell) -> int:
    """Reads lines from standard input and runs them, until it ends or `exit`; returns the last status."""
    text = ""
    while True:
        if shell.interrupts is not None:
            mark = "#" if shell.system.files.uid == 0 else "$"
            await shell.fds[2].write(b"> " if text else f"simphone:/ {mark} ".encode())
        line = await _interruptible(shell, _line(shell))
        if line is None:
            text, shell.status = "", INTERRUPTED_STATUS
            continue
        text += line
        try:
            pipelines = parse(text)
            text = ""
            if await _interruptible(shell, shell.run(pipelines)) is None:
                shell.status = INTERRUPTED_STATUS
        except ShellError as error:
            if isinstance(error, Incomplete) and line and len(text) < MAX_LINE:
                continue
            await shell.complain(str(error))
            text, shell.status = "", SYNTAX_STATUS
        except _Exit as leaving:
            return leaving.status
        except BrokenPipeError:
            return SIGPIPE_STATUS
        if not line:
            return shell.status


async def _line(shell: Shell) -> str:
    """One line with its line end; without one at the end of the input."""
    data = bytearray()
    while len(data) < MAX_LINE:
        byte = await shell.fds[0].read(1)
        data += byte
        if byte in (b"", b"\n"):
            break
    return decode(bytes(data))
