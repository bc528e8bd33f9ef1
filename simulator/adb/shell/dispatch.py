"""Finds what a command's name stands for, and calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrl.simulator.adb.shell.builtins import BUILTINS
from distrl.simulator.adb.shell.call import Call, Command, Failure, decode
from distrl.simulator.adb.shell.commands import COMMANDS

if TYPE_CHECKING:
    from distrl.simulator.adb.shell.interpreter import Interpreter

BIN = ("/system/bin/", "/bin/", "/vendor/bin/", "/system/xbin/")


def find(shell: Interpreter, name: str) -> Command | None:
    """The program of this name or path, None when there is none."""
    for folder in BIN:
        if name.startswith(folder):
            name = name[len(folder) :]
            break
    return shell.system.programs.get(name) or COMMANDS.get(name)


def where(shell: Interpreter, name: str) -> str:
    """What a name stands for: itself for builtins and functions, a program's path, "" for nothing."""
    if name in BUILTINS or name in shell.functions:
        return name
    if find(shell, name) is not None:
        return name if "/" in name else f"/system/bin/{name}"
    return ""


async def call(shell: Interpreter, args: list[str]) -> int:
    """Calls a function, a builtin, a program or a script.

    Args:
        shell: The shell that calls.
        args: The name and the arguments.

    Returns:
        The exit status; 127 when nothing has that name, 126 when it cannot be executed.
    """
    name = args[0]
    if name in shell.functions:
        return await shell.function(shell.functions[name], args)
    command = BUILTINS.get(name)
    if command is not None:
        return await invoke(shell, command, args)
    command = find(shell, name)
    if command is None:
        return await _script(shell, args)
    processes = shell.system.processes
    entry = processes.add(processes.fresh_pid(), name, shell.system.uid)
    try:
        return await invoke(shell, command, args)
    finally:
        processes.remove(entry)


async def invoke(shell: Interpreter, command: Command, args: list[str]) -> int:
    """Runs a command with the shell's streams; what it raises becomes a message and a status."""
    name = args[0].rpartition("/")[2]
    fds = shell.fds
    made = Call(shell, name, args[1:], fds[0], fds[1], fds[2])
    try:
        return await command(made)
    except Failure as failure:
        if failure.message:
            await made.error(f"{name}: {failure.message}" if failure.prefixed else failure.message)
        return failure.status
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        await made.error(f"{name}: {where}{error.strerror}")
        return 1


async def _script(shell: Interpreter, args: list[str]) -> int:
    """Runs an executable file as a shell script."""
    name = args[0]
    if "/" not in name:
        await shell.complain(f"{name}: inaccessible or not found")
        return 127
    path = shell.absolute(name)
    try:
        found = shell.system.files.stat(path)
        text = b"" if found.is_dir else shell.system.files.read(path)
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        await shell.complain(f"{name}: inaccessible or not found" if missing else f"{name}: {error.strerror}")
        return 127 if missing else 126
    if found.is_dir or not found.mode & 0o111:
        await shell.complain(
            f"{name}: can't execute: {'Is a directory' if found.is_dir else 'Permission denied'}"
        )
        return 126
    if b"\0" in text[:128]:
        await shell.complain(f"{name}: not executable: not a program of this phone")
        return 126
    child = shell.fork()
    child.positional = args[1:]
    child.depth += 1
    if child.depth > 20:
        await shell.complain(f"{name}: scripts call each other too deep")
        return 126
    return await child.program(decode(text))
