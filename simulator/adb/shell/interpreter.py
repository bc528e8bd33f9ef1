"""Runs the syntax tree: pipelines as tasks joined by pipes, redirections, control flow, functions, jobs.

One `Interpreter` is one shell process. Subshells, substitutions and the stages of pipelines run in forks of
it, which change nothing of their parent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from distrl.simulator.adb.files import normal
from distrl.simulator.adb.shell import dispatch, expansion, flow
from distrl.simulator.adb.shell.call import decode, encode
from distrl.simulator.adb.shell.control import MAX_DEPTH, Leave
from distrl.simulator.adb.shell.expansion import ExpansionFailure
from distrl.simulator.adb.shell.lexer import ShellSyntaxError
from distrl.simulator.adb.shell.parser import parse
from distrl.simulator.adb.shell.redirection import RedirectionFailure, redirected
from distrl.simulator.adb.shell.streams import Buffer, Pipe, Stream
from distrl.simulator.adb.shell.syntax import (
    AndOr,
    Command,
    Function,
    Group,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
    Text,
    Word,
)

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

MAX_JOBS = 64
"""Most commands of one session in the background."""
SIGPIPE_STATUS = 141
"""The status of a command whose reader is gone: 128 + SIGPIPE."""


class Interpreter:
    """A shell process.

    Args:
        system: The phone.
        fds: Its open files: 0, 1 and 2 at least.
        variables: Its variables; all that are given are exported.
        interrupts: Set at each Ctrl-C; None where there is no terminal.

    Attributes:
        cwd, positional, functions, status, name, pid, depth: What their names say.
        exported: Names of the variables that commands see.
        options: Letters of the options that are set.
        jobs: Its own commands in the background, by their processes' numbers.
    """

    def __init__(
        self,
        system: AndroidSystem,
        fds: dict[int, Stream],
        variables: dict[str, str],
        interrupts: asyncio.Event | None = None,
    ) -> None:
        self.system = system
        self.fds = fds
        self.variables = variables
        self.exported = set(variables)
        self.interrupts = interrupts
        self.cwd = "/"
        self.name = "sh"
        self.positional: list[str] = []
        self.outer_values: dict[str, str | None] | None = None  # of a function's local variables
        self.functions: dict[str, Command] = {}
        self.options: set[str] = set()
        self.status = 0
        self.depth = 0
        self.background_pid = 0
        self.jobs: dict[int, asyncio.Task[int]] = {}
        self._holding: list[asyncio.Task[int]] = []  # in the background, of all shells of the session
        self.pid = system.processes.fresh_pid()
        self.random = random.Random(self.pid)
        self._conditions = 0
        self._captured: int | None = None

    @property
    def tty(self) -> bool:
        """Whether it talks to a terminal."""
        return self.interrupts is not None

    def fork(self, fds: dict[int, Stream] | None = None) -> Interpreter:
        """A copy, with other open files if `fds` is given."""
        child = Interpreter.__new__(Interpreter)
        child.__dict__.update(self.__dict__)
        child.fds = dict(self.fds if fds is None else fds)
        child.variables = dict(self.variables)
        child.exported = set(self.exported)
        child.functions = dict(self.functions)
        child.options = set(self.options)
        child.positional = list(self.positional)
        child.outer_values = None if self.outer_values is None else dict(self.outer_values)
        child.jobs = {}
        return child

    async def program(self, text: str) -> int:
        """Parses and runs a program; says on standard error when it is none."""
        try:
            sequence = parse(text)
        except ShellSyntaxError as error:
            await self.complain(str(error))
            return 1
        except RecursionError:
            await self.complain("syntax error: nesting too deep")
            return 1
        return await self.process(sequence)

    async def process(self, sequence: Sequence) -> int:
        """Runs a program to its end or `exit`; returns the exit status."""
        try:
            return await self.run(sequence)
        except Leave as leave:
            return leave.status & 255 if leave.kind in ("exit", "return", "error") else self.status
        except BrokenPipeError:
            return SIGPIPE_STATUS

    async def complain(self, message: str) -> None:
        """Prints an error as the shell itself does."""
        await self.fds[2].write(encode(f"/system/bin/{self.name}: {message}\n"))

    async def run(self, sequence: Sequence) -> int:
        """Runs lists one after the other; returns the last status."""
        for item, background in sequence.items:
            if background:
                await self._background(item)
            else:
                await self._and_or(item)
        return self.status

    async def condition(self, sequence: Sequence) -> int:
        """Runs what is only tested: `set -e` does not mind its failing."""
        self._conditions += 1
        try:
            return await self.run(sequence)
        finally:
            self._conditions -= 1

    async def _and_or(self, item: AndOr) -> int:
        self._conditions += bool(item.rest)
        try:
            self.status = await self._pipeline(item.first)
            for place, (operator, pipeline) in enumerate(item.rest):
                if (self.status == 0) == (operator == "&&"):
                    last = place == len(item.rest) - 1
                    self._conditions -= last
                    try:
                        self.status = await self._pipeline(pipeline)
                    finally:
                        self._conditions += last
                    if last:
                        self._exit_on_error(pipeline)
        finally:
            self._conditions -= bool(item.rest)
        if not item.rest:
            self._exit_on_error(item.first)
        return self.status

    def _exit_on_error(self, pipeline: Pipeline) -> None:
        if self.status and "e" in self.options and not self._conditions and not pipeline.negated:
            raise Leave("exit", self.status)

    async def _pipeline(self, pipeline: Pipeline) -> int:
        if len(pipeline.commands) == 1:
            status = await self._command(pipeline.commands[0])
        else:
            status = await self._piped(pipeline.commands)
        return int(not status) if pipeline.negated else status

    async def _piped(self, commands: tuple[Command, ...]) -> int:
        stages: list[Awaitable[int]] = []
        source = self.fds[0]
        for command in commands[:-1]:
            pipe = Pipe()
            stages.append(self._stage(command, source, pipe.writer))
            source = pipe.reader
        stages.append(self._stage(commands[-1], source, self.fds[1]))
        tasks = [asyncio.ensure_future(stage) for stage in stages]
        try:
            for task in tasks:
                status = await task
            return status
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stage(self, command: Command, source: Stream, sink: Stream) -> int:
        child = self.fork({**self.fds, 0: source, 1: sink})
        try:
            return await child.process(_alone(command))
        finally:
            if source is not self.fds[0]:
                source.close()
            if sink is not self.fds[1]:
                sink.close()

    async def _background(self, item: AndOr) -> None:
        if len(self._holding) >= MAX_JOBS:
            self._holding[:] = [task for task in self._holding if not task.done()]
        if len(self.jobs) >= MAX_JOBS:
            for pid in [pid for pid, task in self.jobs.items() if task.done()]:
                del self.jobs[pid]
        if max(len(self._holding), len(self.jobs)) >= MAX_JOBS:
            await self.complain("cannot fork - try again")
            return
        child = self.fork({**self.fds, 0: Stream()})
        child.pid = self.background_pid = self.system.processes.fresh_pid()
        task = asyncio.ensure_future(child.process(Sequence(((item, False),))))
        name = self.system.processes.add(child.pid, "sh", self.system.uid, task)
        task.add_done_callback(lambda _: self.system.processes.remove(name))
        self.jobs[child.pid] = task
        if _detached(item):
            self.system.processes.keep(task)
        else:
            self._holding.append(task)
        self.status = 0

    async def capture(self, body: Sequence) -> str:
        """The output of a command substitution, without the line ends at its end."""
        buffer = Buffer()
        child = self.fork({**self.fds, 1: buffer})
        try:
            self.status = self._captured = await child.process(body)
        except OverflowError as error:
            raise ExpansionFailure(str(error)) from error
        return decode(bytes(buffer.data).replace(b"\0", b"").rstrip(b"\n"))

    async def _command(self, command: Command) -> int:
        try:
            if isinstance(command, Simple):
                self.status = await self._simple(command)
            elif isinstance(command, Redirected):
                self.status = await self._redirected(command)
            elif isinstance(command, Group):
                self.status = await (
                    self.fork().process(command.body) if command.subshell else self.run(command.body)
                )
            elif isinstance(command, Function):
                self.functions[command.name] = command.body
                self.status = 0
            else:
                self.status = await flow.run(self, command)
        except ExpansionFailure as error:
            await self.complain(str(error))
            self.status = 1
        except RedirectionFailure as error:
            await self.complain(str(error))
            self.status = 1
        return self.status

    async def _redirected(self, command: Redirected) -> int:
        outer = self.fds
        self.fds = await redirected(self, command.redirects)
        try:
            return await self._command(command.command)
        finally:
            self.fds = outer

    async def _simple(self, command: Simple) -> int:
        self._captured = None
        args = await self._arguments(command.words)
        outer = self.fds
        self.fds = await redirected(self, command.redirects)
        if args == ["exec"]:
            return 0
        try:
            if not args:
                await self._assign(command.assignments)
                return self._captured or 0
            return await self._with(command.assignments, args)
        finally:
            self.fds = outer

    async def _arguments(self, words: tuple[Word, ...]) -> list[str]:
        if words and words[0] == (Text("[["),):  # neither splits words nor looks for files
            return [await expansion.single(self, word) for word in words]
        return await expansion.arguments(self, words)

    async def _assign(self, assignments: tuple[tuple[str, Word], ...]) -> None:
        for name, word in assignments:
            self.variables[name] = await expansion.single(self, word)

    async def _with(self, assignments: tuple[tuple[str, Word], ...], args: list[str]) -> int:
        """Runs a command with variables of its own."""
        if not assignments:
            return await self.call(args)
        names = {name for name, _ in assignments}
        before = {name: self.variables.get(name) for name in names}
        added = names - self.exported
        await self._assign(assignments)
        self.exported |= added
        try:
            return await self.call(args)
        finally:
            self.exported -= added
            self._put_back(before)

    def _put_back(self, values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = value

    async def function(self, body: Command, args: list[str]) -> int:
        """Calls a function."""
        if self.depth >= MAX_DEPTH:
            await self.complain(f"{args[0]}: recursion too deep")
            return 1
        outer, self.positional = self.positional, args[1:]
        before = dict[str, str | None]()
        outer_values, self.outer_values = self.outer_values, before
        self.depth += 1
        try:
            return await self._command(body)
        except Leave as leave:
            if leave.kind != "return":
                raise
            return leave.status & 255
        finally:
            self.depth -= 1
            self.positional = outer
            self._put_back(before)
            self.outer_values = outer_values

    async def call(self, args: list[str]) -> int:
        """Runs one command: its name and arguments."""
        return await dispatch.call(self, args)

    def where(self, name: str) -> str:
        """What a name stands for: itself for builtins and functions, a program's path, "" for nothing."""
        return dispatch.where(self, name)

    async def evaluate(self, text: str) -> int:
        """Runs a program as a part of this one (eval, source)."""
        if self.depth >= MAX_DEPTH:
            await self.complain("eval: recursion too deep")
            return 1
        try:
            sequence = parse(text, self.depth)
        except ShellSyntaxError as error:
            await self.complain(str(error))
            raise Leave("error", 1) from error
        self.depth += 1
        try:
            return await self.run(sequence)
        finally:
            self.depth -= 1

    async def finish(self) -> None:
        """Waits for the commands in the background, as adb waits for whoever holds the shell's output."""
        await asyncio.gather(*self._holding, return_exceptions=True)

    def stop(self) -> None:
        """Ends the commands in the background."""
        for task in self._holding:
            task.cancel()

    def absolute(self, path: str) -> str:
        """`path` seen from the present directory."""
        return normal(path, self.cwd)


def _alone(command: Command) -> Sequence:
    return Sequence(((AndOr(Pipeline((command,))), False),))


def _detached(item: AndOr) -> bool:
    """Whether a background list sends all its output elsewhere, so that nobody waits for it."""
    command = item.first.commands[-1]
    if item.rest or not isinstance(command, (Simple, Redirected)):
        return False
    fds = {redirect.fd for redirect in command.redirects}
    return {1, 2} <= fds or any(redirect.operator == "&>" for redirect in command.redirects)
