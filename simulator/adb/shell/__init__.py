"""The simulated phone's shell: a small POSIX shell, and the commands that tools run on a device.

text -> lexer, parser -> syntax tree -> interpreter -> dispatch -> builtins | commands/*
                                            streams: the session's, files, pipes
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from distrl.simulator.adb.shell.interpreter import Interpreter
from distrl.simulator.adb.shell.session import INTERRUPTED, interact, interruptible
from distrl.simulator.adb.shell.streams import Io, SessionIn, SessionOut, Stream

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

__all__ = ["Io", "run"]

_VARIABLES = {
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "ANDROID_STORAGE": "/storage",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "HOSTNAME": "simphone",
    "LOGNAME": "shell",
    "PATH": "/product/bin:/apex/com.android.runtime/bin:/system_ext/bin:/system/bin:/system/xbin:/vendor/bin",
    "PWD": "/",
    "SHELL": "/bin/sh",
    "TERM": "dumb",
    "TMPDIR": "/data/local/tmp",
    "USER": "shell",
}


async def run(system: AndroidSystem, command: str, io: Io, *, interrupts: asyncio.Event | None = None) -> int:
    """Runs a command line on the phone.

    Args:
        system: The phone.
        command: What would stand after `sh -c`; empty for an interactive shell that reads standard input.
            Bytes that are no UTF-8 stand in it as surrogates ("surrogateescape").
        io: Its streams. The call may be cancelled at any await.
        interrupts: Set at each Ctrl-C; None where the streams are not a terminal. It ends `command`, or what
            an interactive shell runs in the foreground.

    Returns:
        The exit status, 0 to 255.
    """
    fds: dict[int, Stream] = {0: SessionIn(io), 1: SessionOut(io), 2: SessionOut(io, error=True)}
    user = "root" if system.uid == 0 else "shell"
    variables = {**_VARIABLES, "ANDROID_SERIAL": system.serial, "USER": user, "LOGNAME": user}
    shell = Interpreter(system, fds, variables, interrupts)
    try:
        if command:
            status = await interruptible(shell, shell.program(command))
        else:
            status = await interact(shell)
        if interrupts is None:  # a terminal hangs up on what is still in the background
            await shell.finish()
        return INTERRUPTED if status is None else status
    finally:
        shell.stop()
