"""The simulated phone's shell: a small POSIX shell, and the commands that tools run on a device.

text -> lexer, parser -> syntax tree -> interpreter -> dispatch -> builtins | commands/*
                                            streams: the session's, files, pipes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrl.workers.simhost.shell.interpreter import Interpreter
from distrl.workers.simhost.shell.session import interact
from distrl.workers.simhost.shell.streams import Io, SessionIn, SessionOut, Stream

if TYPE_CHECKING:
    from distrl.workers.simhost.android import AndroidSystem

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


async def run(system: AndroidSystem, command: str, io: Io, *, tty: bool = False) -> int:
    """Runs a command line on the phone.

    Args:
        system: The phone.
        command: What would stand after `sh -c`; empty for an interactive shell that reads standard input.
            Bytes that are no UTF-8 stand in it as surrogates ("surrogateescape").
        io: Its streams. The call may be cancelled at any await.
        tty: Whether the streams are a terminal.

    Returns:
        The exit status, 0 to 255.
    """
    fds: dict[int, Stream] = {0: SessionIn(io), 1: SessionOut(io), 2: SessionOut(io, error=True)}
    user = "root" if system.uid == 0 else "shell"
    variables = {**_VARIABLES, "ANDROID_SERIAL": system.serial, "USER": user, "LOGNAME": user}
    shell = Interpreter(system, fds, variables, tty)
    try:
        status = await (shell.program(command) if command else interact(shell))
        await shell.finish()
        return status
    finally:
        shell.stop()
