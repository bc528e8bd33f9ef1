"""Ending an emulator, or another started process, without ever hitting a stranger.

    console `kill` ── 30 s ──► SIGTERM ── 5 s ──► SIGKILL

Before each step the process is compared with the one that was started, and the console's port with its
sockets.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from distrl.workers.devices.adb.console import Console
from distrl.workers.devices.emulator import procfs
from distrl.workers.devices.emulator.procfs import ProcessKey
from distrl.workers.devices.errors import DeviceError

CONSOLE_S = 30.0
TERM_S = 5.0
KILL_S = 5.0
_POLL_S = 0.05


def end(
    key: ProcessKey,
    marks: Iterable[str] = (),
    console_port: int | None = None,
    console_s: float = CONSOLE_S,
    is_gone: Callable[[], bool] | None = None,
) -> str:
    """Ends a process.

    Args:
        key, marks: Which one; if it is another, nothing happens.
        console_port: Its emulator console, if it has one.
        console_s: How long it may take after the console's `kill`.
        is_gone: Whether it has ended; a parent passes one that collects its child.

    Returns:
        What ended it: "gone" (it had ended), "console", "SIGTERM", "SIGKILL"; "" if it still runs.

    Raises:
        PermissionError: If it belongs to somebody else.
    """
    marks = tuple(marks)
    gone = is_gone or (lambda: not procfs.is_alive(key))
    if gone() or not procfs.is_what(key, marks):
        return "gone"
    if console_port is not None and _told(key.pid, console_port) and _wait(gone, console_s):
        return "console"
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        if not procfs.send(key, number, marks) and gone():
            return "gone"
        if _wait(gone, patience_s):
            return number.name
    return ""


def _told(pid: int, port: int) -> bool:
    """Gives the console's `kill`, if it is this process that listens there."""
    if not procfs.listens(pid, port):
        return False
    try:
        Console(port).kill()
    except DeviceError:
        return False  # it hangs, or does not know us: signals are next
    return True


def _wait(gone: Callable[[], bool], patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while not gone():
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_S)
    return True
