"""The child process of an AndroidWorld environment, as its parent sees it: calls with deadlines, and its end.

A call that is not answered in time ends the child (and what it started, but for adb servers, which leave its
process group): a package that hangs cannot be asked anything else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.workers.envs.android_world_pipe import Pipe, PipeClosed, PipeTimeout
from distrl.workers.envs.android_world_session import DEVICE, MISSING, TASK

SEND_S = 10.0
EXIT_S = 10.0
"""How long the child may take to end after it has closed its device."""

_TAIL = 2000
REMEDY = (
    "Clone github.com/google-research/android_world, then run `pip install -r requirements.txt` and "
    "`pip install .` in it, in this environment."
)


class WorldProcess:
    """One child. Used by one thread.

    Args:
        inherit: File descriptors that the child keeps open.
    """

    def __init__(self, inherit: Sequence[int] = ()) -> None:
        self._log = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 - closed with the child
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "distrl.workers.envs.android_world_child", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=_environment(),
                pass_fds=(theirs.fileno(), *inherit),
                start_new_session=True,
            )
        self._pipe = Pipe(ours)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def call(self, operation: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Asks for one operation of `android_world_session.Session`.

        Args:
            operation: The method's name.
            seconds: The deadline; past it the child is ended.
            arguments: The method's arguments, plain data.

        Raises:
            MissingDependency: A package is not installed.
            TaskError: There is no such task.
            EnvError: The package or the device failed, or the child did not answer.
        """
        try:
            self._pipe.send({"op": operation, **arguments}, SEND_S)
            answer = self._pipe.receive(seconds)
        except PipeTimeout:
            self.kill()
            raise EnvError(
                f"android_world did not finish {operation} in {seconds:g} s; its process was ended."
                f"{self._said()}",
                "Look at the emulator, or raise the deadline in env.options.deadlines.",
                fault="device",
            ) from None
        except PipeClosed:
            self.kill()
            raise EnvError(
                f"android_world's process ended during {operation}, exit status "
                f"{self._process.returncode}.{self._said()}",
                "See what it printed.",
                fault="device",
            ) from None
        if "ok" in answer:
            found: dict[str, Any] = answer["ok"]
            return found
        raise _error(operation, answer)

    def forget_log(self) -> None:
        """Empties the log, so that it holds what the present episode printed."""
        self._log.truncate(0)

    def close(self, seconds: float) -> None:
        """Lets the child tear down and close its device, then ends it. May be called twice.

        Raises:
            EnvError: It could not do so.
        """
        try:
            if self.is_alive:
                self.call("close", seconds)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(EXIT_S)
        finally:
            self.kill()
            self._pipe.close()

    def kill(self) -> None:
        """Ends the child at once."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: only what it started
        self._process.wait()

    def _said(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        text = self._log.read().decode("utf-8", "replace").strip()
        return f" It printed: {text}" if text else ""


def _environment() -> dict[str, str]:
    """This process's, with its module path, and with set orders that do not differ from run to run."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}


def _error(operation: str, answer: dict[str, Any]) -> Exception:
    kind, message = answer.get("error"), str(answer.get("message", ""))
    if kind == MISSING:
        return MissingDependency(f"AndroidWorld needs the package {message}, which is not installed.", REMEDY)
    if kind == TASK:
        return TaskError(
            message.rstrip("?.") + ("?" if message.endswith("?") else "."),
            "See `android_world/registry.py` for its names.",
        )
    detail = str(answer.get("detail", "")).strip().rpartition("\n")[2]
    said = message if detail in ("", message) else f"{message} ({detail})"
    fault = "device" if kind == DEVICE else "env"
    return EnvError(f"android_world failed in {operation}: {said}", "Look at the emulator.", fault=fault)
