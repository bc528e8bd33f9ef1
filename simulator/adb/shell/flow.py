"""Conditions and loops of the shell language: if, case, for, while, until."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from distrl.simulator.adb.shell import expansion, patterns
from distrl.simulator.adb.shell.control import Leave
from distrl.simulator.adb.shell.syntax import Case, For, If, Sequence, While

if TYPE_CHECKING:
    from distrl.simulator.adb.shell.interpreter import Interpreter


async def run(shell: Interpreter, command: If | For | While | Case) -> int:
    """Runs a condition or a loop; returns its status."""
    if isinstance(command, If):
        return await _if(shell, command)
    if isinstance(command, Case):
        return await _case(shell, command)
    return await (_for(shell, command) if isinstance(command, For) else _while(shell, command))


async def _if(shell: Interpreter, command: If) -> int:
    for condition, then in command.branches:
        if await shell.condition(condition) == 0:
            return await shell.run(then)
    return 0 if command.otherwise is None else await shell.run(command.otherwise)


async def _case(shell: Interpreter, command: Case) -> int:
    text = await expansion.single(shell, command.word)
    for words, body in command.branches:
        for word in words:
            if patterns.matches(await expansion.pattern(shell, word), text):
                shell.status = 0
                return await shell.run(body)
    return 0


async def _for(shell: Interpreter, command: For) -> int:
    if command.words is None:
        values = list(shell.positional)
    else:
        values = await expansion.arguments(shell, command.words)
    shell.status = 0
    for value in values:
        shell.variables[command.name] = value
        if not await _round(shell, command.body):
            break
    return shell.status


async def _while(shell: Interpreter, command: While) -> int:
    status = 0
    while (await shell.condition(command.condition) == 0) != command.until:
        going = await _round(shell, command.body)
        status = shell.status
        if not going:
            break
    return status


async def _round(shell: Interpreter, body: Sequence) -> bool:
    """Runs a loop's body once; False when the loop ends."""
    # A loop of builtins never waits for anything: let others have their turn.
    await asyncio.sleep(0)
    try:
        await shell.run(body)
    except Leave as leave:
        if leave.kind not in ("break", "continue"):
            raise
        if leave.status > 1:
            raise Leave(leave.kind, leave.status - 1) from None
        return leave.kind == "continue"
    return True
