"""Processes: stopping on signals, and children that never outlive their parent.

    signal ──► wake-up descriptor ──► watcher thread ──► StopEvent.set()   (a second signal: exit at once)

The watcher, not a Python signal handler, sets the event: a handler would run inside whatever the main thread
is doing, possibly while it holds the event's own lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

SECOND_SIGNAL_EXIT_CODE = 130
# Runs in the child before the command: the kernel sends SIGTERM when the parent's spawning thread is gone.
_BOOT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def num_cpus() -> int:
    """CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has affinity
        return os.cpu_count() or 1


class StopEvent(threading.Event):
    """Set when the process should stop. `on_set` callbacks wake loops that wait for something else."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    def on_set(self, callback: Callable[[], None]) -> None:
        """Calls `callback` (e.g. a waker) when the event is set; at once if it is already."""
        self._callbacks.append(callback)
        if self.is_set():
            callback()

    def set(self) -> None:
        """Sets the event, and calls the callbacks."""
        super().set()
        for callback in list(self._callbacks):
            callback()


def install_signals(grace_s: float | None = None) -> StopEvent:
    """Turns SIGINT and SIGTERM into a `StopEvent`; a second signal ends the process at once.

    Call it once, from the main thread.

    Args:
        grace_s: End the process this long after the first signal if it is still there then; None: never.
    """
    stop = StopEvent()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)  # it stays open
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # in place of the default action

    def watch() -> None:
        _wait_for_signal(reader)
        try:
            stop.set()
        finally:  # a callback that fails must not keep a second signal, or the end of the grace, from working
            reader.settimeout(grace_s)
            _wait_for_signal(reader)
            os._exit(SECOND_SIGNAL_EXIT_CODE)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    return stop


def _wait_for_signal(reader: socket.socket) -> None:
    """Returns at SIGINT or SIGTERM, or when the reader's time is up; other signals write here too."""
    with contextlib.suppress(TimeoutError):
        while reader.recv(1)[0] not in (signal.SIGINT, signal.SIGTERM):
            pass


class Child:
    """A child process in a session of its own, its output in a log file.

    Ctrl-C at the terminal does not reach it: its parent stops it. When the parent dies, however that
    happens, the child gets SIGTERM (Linux); it is spawned by the parent's main thread for that reason.
    """

    def __init__(
        self, name: str, command: Sequence[str], log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_file = log_file
        self.started_at = time.monotonic()
        log_file.parent.mkdir(parents=True, exist_ok=True)
        boot = [sys.executable, "-I", "-S", "-c", _BOOT, str(os.getpid())]
        with log_file.open("ab") as log:
            self.log_start = log.tell()  # what stands before is of an earlier process
            self._process = subprocess.Popen(
                [*boot, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )

    @property
    def pid(self) -> int:
        """The process id, also the id of its process group."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, None while it runs. Whatever it left behind in its group is killed."""
        if self._process.returncode is None and self._has_exited():
            # Not yet reaped, so the group id is still ours and cannot hit strangers.
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    def wait(self, timeout_s: float) -> int | None:
        """The exit code; None if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.poll()

    def request_stop(self) -> None:
        """Sends SIGTERM to the process (not its group: it stops its own children in order)."""
        if self.poll() is None:
            self._process.terminate()

    def kill(self) -> int:
        """SIGKILL to the whole group. Returns the exit code."""
        if self.poll() is None:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    def _has_exited(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def stop_all(children: Iterable[tuple[Child, float]]) -> None:
    """Stops all children at the same time: SIGTERM, then SIGKILL to each that outlives its seconds."""
    by_patience = sorted(children, key=lambda pair: pair[1])
    for child, _ in by_patience:
        child.request_stop()
    asked_at = time.monotonic()
    for child, patience_s in by_patience:
        child.wait(max(0.0, asked_at + patience_s - time.monotonic()))
        child.kill()
