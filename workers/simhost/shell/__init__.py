"""The simulated phone's shell: a small POSIX shell, and the commands that tools run on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distrl.workers.simhost.android import AndroidSystem


class Io(Protocol):
    """The three standard streams of a command."""

    async def read(self, size: int) -> bytes:
        """At most `size` bytes from standard input; b"" at its end."""
        ...

    async def out(self, data: bytes) -> None:
        """Writes to standard output; returns when there is room for more."""
        ...

    async def err(self, data: bytes) -> None:
        """Writes to standard error; returns when there is room for more."""
        ...


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
    await io.err(b"/system/bin/sh: no commands yet\n")
    return 127
