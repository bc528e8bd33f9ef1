"""An interactive shell: a prompt, a line, its commands, until the input ends or `exit`.

On a terminal Ctrl-C ends what runs in the foreground.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from distrl.simulator.adb.shell.call import decode, encode
from distrl.simulator.adb.shell.control import Leave
from distrl.simulator.adb.shell.interpreter import SIGPIPE_STATUS, Interpreter
from distrl.simulator.adb.shell.lexer import ShellSyntaxError
from distrl.simulator.adb.shell.parser import MAX_PROGRAM, parse

T = TypeVar("T")

INTERRUPTED = 130
"""The status of a command that Ctrl-C has ended: 128 + SIGINT."""
_INCOMPLETE = ("no closing quote", "unexpected EOF", "unclosed")


async def interruptible(shell: Interpreter, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, None when Ctrl-C has ended it."""
    if shell.interrupts is None:
        return await work
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(shell.interrupts.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        shell.interrupts.clear()
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def interact(shell: Interpreter) -> int:
    """Reads commands from standard input and runs them; returns the last status."""
    text = ""
    while True:
        if shell.tty:
            mark = "#" if shell.system.uid == 0 else "$"
            prompt = "> " if text else f"simphone:{shell.cwd} {mark} "
            await shell.fds[2].write(encode(prompt))
        line = await interruptible(shell, _line(shell))
        if line is None:
            text, shell.status = "", INTERRUPTED
            continue
        text += line
        try:
            sequence = parse(text)
        except ShellSyntaxError as error:
            if line and any(part in str(error) for part in _INCOMPLETE) and len(text) < MAX_PROGRAM:
                continue
            await shell.complain(str(error))
            text, shell.status = "", 1
        else:
            text = ""
            try:
                if await interruptible(shell, shell.run(sequence)) is None:
                    shell.status = INTERRUPTED
            except Leave as leave:
                if leave.kind == "exit":
                    return leave.status & 255
                if leave.kind == "error":
                    shell.status = leave.status
            except BrokenPipeError:
                return SIGPIPE_STATUS
        if not line:
            return shell.status


async def _line(shell: Interpreter) -> str:
    """One line with its line end; without one at the end of the input."""
    data = bytearray()
    while len(data) < MAX_PROGRAM:
        byte = await shell.fds[0].read(1)
        data += byte
        if byte in (b"", b"\n"):
            break
    return decode(bytes(data))
