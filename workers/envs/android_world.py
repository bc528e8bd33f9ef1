"""AndroidWorld as an environment: tasks of the `android_world` package on an emulator that runs already.

    slot's thread: AndroidWorldEnv ──pipe, one call at a time──► child process: Session ──gRPC, adb──► phone

A `Task` names a task of the package's registry in `params.task` and its instance by `seed`;
`distrl tasks import --androidworld` makes such tasks.

A call that is not answered in time ends the child and what it started, except adb servers, which leave its
process group. A lock file keeps an emulator to one environment; its child inherits the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgpack
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.packing import MAX_ELEMENTS
from distrl.core.types import Element, Task
from distrl.core.user_errors import read_fields
from distrl.workers.agents.androidworld import named_gesture, write_json
from distrl.workers.agents.notation import Grid
from distrl.workers.devices.adb_server import adb_path
from distrl.workers.devices.processes import state_dir
from distrl.workers.envs import android_world_child
from distrl.workers.envs.android_world_child import DEVICE, MISSING, TASK
from distrl.workers.envs.base import Frame, StepResult
from distrl.workers.envs.phone import element_of

FAMILY = "android_world"  # the package's whole suite, in the words of its registry
SWIPE_MS = 500
DEADLINES_S = {
    "describe": 600.0,
    "attach": 300.0,
    "setup": 1800.0,
    "reset": 300.0,
    "step": 90.0,
    "score": 120.0,
    "close": 180.0,
}
"""How long the package may take for each operation; past it its process is ended.

"setup" is `attach` with the installation of its apps: two dozen, which it downloads, installs and starts.
"""

EXIT_S = 10.0  # how long the child may take to end after it has closed its device
MAX_BYTES = 256 * 2**20  # largest answer; a raw screenshot of 1440x3200 has 14 MiB

# By its path: as a module it would first import the packages around it, which it does not use.
_RUN = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
_TAIL = 2000
INSTALL = (
    "Clone github.com/google-research/android_world, then run `pip install -r requirements.txt` and "
    "`pip install .` in it, in this environment."
)
_log = logging.getLogger(__name__)


class Ports(BaseModel):
    """The ports of a running emulator, which was started with `-grpc`; its adb port is `console` + 1.

    android_env restarts the adb server when a command fails, so it should serve no other device.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    console: int = Field(5554, ge=1, le=65534)
    grpc: int = Field(8554, ge=1, le=65535)
    adb_server: int = Field(5037, ge=1, le=65535)


class AndroidWorldOptions(BaseModel):
    """The environment's options.

    Attributes:
        devices: Each slot takes one that is free; with several, each has an adb server of its own.
        accessibility: How the package reads the screen's elements: see its `A11yMethod`.
        setup: Whether the package installs its apps first: once for each new emulator.
        freeze_time: Whether the clock is set to the package's date, as its tasks expect.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: tuple[Ports, ...] = Field((Ports(),), min_length=1)
    adb_path: str | None = None
    accessibility: Literal["a11y_forwarder_app", "uiautomator", "none"] = "a11y_forwarder_app"
    setup: bool = False
    freeze_time: bool = True

    @model_validator(mode="after")
    def _share_no_port(self) -> AndroidWorldOptions:
        for name in Ports.model_fields:
            ports = [getattr(device, name) for device in self.devices]
            if len(set(ports)) != len(ports):
                raise ValueError(f"two devices share the {name} port {max(ports, key=ports.count)}")
        return self


def find_adb(path: str | None) -> str:
    """The full path of the adb program, because android_env expands nothing. Raises MissingDependency."""
    found = Path(path or adb_path()).expanduser().absolute()
    if not found.is_file():
        raise MissingDependency(f"there is no adb program {found}.", "Correct env.options.adb_path.")
    return str(found)


def claim_emulator(devices: Sequence[Ports]) -> tuple[Ports, int]:
    """The first emulator that no other process or slot of this user holds, and its lock's descriptor."""
    for ports in devices:
        path = state_dir() / f"androidworld-{ports.console}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EnvError(f"{path} cannot be opened: {error.strerror}.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return ports, descriptor
    raise EnvError(
        f"all {len(devices)} AndroidWorld emulators are in use by other slots or processes.",
        "Name as many in env.options.devices as there are slots on this machine.",
        fault="device",
    )


class WorldProcess:
    """One child, which keeps the descriptors `inherit` open. Used by one thread."""

    def __init__(self, inherit: Sequence[int] = ()) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        # Else the child would go on behind what `forget_log` has cut off.
        fcntl.fcntl(self._log, fcntl.F_SETFL, fcntl.fcntl(self._log, fcntl.F_GETFL) | os.O_APPEND)
        # The same module path, and set orders that do not differ from run to run.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN, android_world_child.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
                pass_fds=(theirs.fileno(), *inherit),
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Calls a method of the child's `Session`; past its deadline the child is ended.

        Raises:
            MissingDependency: A package is not installed.
            TaskError: There is no such task.
            EnvError: The package or the device failed, or the child did not answer.
        """
        seconds = DEADLINES_S["setup" if arguments.get("setup") else operation]
        end = time.monotonic() + seconds
        # Reading has no deadline of its own, and an answer may come in part. Reading ends with the child.
        timer = threading.Timer(seconds, self.kill)
        timer.daemon = True
        timer.start()
        try:
            self._pipe.send_bytes(msgpack.packb({"op": operation, **arguments}))
            answer: dict[str, Any] = msgpack.unpackb(self._pipe.recv_bytes(MAX_BYTES))
        except (OSError, EOFError):
            is_late = time.monotonic() >= end
            self.kill()
            happened = f"ended its process during {operation}, exit status {self._process.returncode}"
            if is_late:
                happened = f"did not finish {operation} in {seconds:g} s; its process was ended"
            raise EnvError(
                f"android_world {happened}.{self._printed()}", "Look at the emulator.", fault="device"
            ) from None
        finally:
            timer.cancel()
        if "ok" in answer:
            found: dict[str, Any] = answer["ok"]
            return found
        kind, message = answer["error"], answer["message"]
        if kind == MISSING:
            raise MissingDependency(
                f"AndroidWorld needs the package {message}, which is not installed.", INSTALL
            )
        if kind == TASK:
            raise TaskError(message, "See `android_world/registry.py` for its names.")
        fault = "device" if kind == DEVICE else "env"
        raise EnvError(
            f"android_world failed in {operation}: {message}.", "Look at the emulator.", fault=fault
        )

    def forget_log(self) -> None:
        """Empties the log, so that it holds what the present episode printed."""
        self._log.truncate(0)

    def close(self) -> None:
        """Lets the child tear down and close its device, then ends it. May be called twice."""
        try:
            if self.is_alive:
                self.call("close")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(EXIT_S)
        finally:
            self.kill()
            self._pipe.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: only what it started
        self._process.wait()

    def _printed(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        text = self._log.read().decode("utf-8", "replace").strip()
        return f" It printed: {text}" if text else ""


class AndroidWorldEnv:
    """One emulator that plays the package's tasks; its options are the fields of `AndroidWorldOptions`."""

    seed_is_instance: ClassVar[bool] = True
    """The package draws a task's parameters from it, and words the goal by them."""

    def __init__(self, **options: Any) -> None:
        self._options = read_fields(AndroidWorldOptions, options, "env.options")
        self.goal = ""  # as the package words it once the task is initialized
        self._frame: Frame | None = None
        self._attributes: list[dict[str, str]] = []
        self._score: float | None = None
        self._is_closed = False
        adb = find_adb(self._options.adb_path)
        self.ports, self._lock = claim_emulator(self._options.devices)
        try:
            self._process = WorldProcess((self._lock,))
        except BaseException:
            os.close(self._lock)
            raise
        options = self._options.model_dump(include={"accessibility", "setup", "freeze_time"})
        try:
            self._process.call("attach", ports=self.ports.model_dump(), adb_path=adb, **options)
        except BaseException:
            self.close()
            raise

    def reset(self, task: Task) -> Frame:
        self._frame = self._score = None
        name, family = named(task)
        self._process.forget_log()
        found = self._process.call("reset", family=family, name=name, seed=task.seed)
        self.goal = found["goal"]
        return self._keep(found)

    def step(self, action: Action) -> StepResult:
        """Executes `action` by the package, which ends typing with the enter key."""
        frame = self._running()
        if action.is_terminal:
            return StepResult(frame)
        grid = Grid(*frame.image.size)
        swipe, fields = None, None
        if action.kind is ActionKind.INVALID:
            pass  # the screen stays as it is
        elif action.point and action.to and named_gesture(action) is None:
            swipe = [*grid.cell(action.point), *grid.cell(action.to), SWIPE_MS]
        else:
            fields = write_json(action, grid)
        found = self._process.call("step", action=fields, swipe=swipe)
        return StepResult(self._keep(found), settle_s=found["settle_s"])

    def evaluate(self) -> float:
        """What `is_successful` says now; a second call gives the same."""
        if self._score is None:
            self._running()
            self._score = min(1.0, max(0.0, self._process.call("score")["score"]))
        return self._score

    def expert_action(self) -> Action:
        raise EnvError("AndroidWorld has no scripted expert.", "Set learner.demonstrations.episodes to 0.")

    def elements(self) -> tuple[Element, ...] | None:
        """Those that the package lists; None if it lists none, as with `accessibility` none."""
        size = self._running().image.size
        found = [element_of(attributes, size) for attributes in self._attributes]
        return tuple(filter(None, found))[:MAX_ELEMENTS] or None

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed, self._frame = True, None
        try:
            self._process.close()
        except EnvError as error:
            _log.warning("emulator-%d: %s", self.ports.console, error)
        finally:
            os.close(self._lock)

    def _running(self) -> Frame:
        if self._frame is None:
            raise EnvError("no AndroidWorld task is running.", "Reset the environment to a task first.")
        return self._frame

    def _keep(self, found: dict[str, Any]) -> Frame:
        size, self._attributes = (found["width"], found["height"]), found["elements"]
        self._frame = Frame.of(Image.frombytes("RGB", size, found["pixels"]), app=found["app"])
        return self._frame


def named(task: Task) -> tuple[str, str]:
    """The name and the family of a task in the package's registry. Raises TaskError if it names none."""
    name, family = task.params.get("task"), task.params.get("family", FAMILY)
    if not isinstance(name, str) or not isinstance(family, str):
        raise TaskError(
            f"{task.id} names no AndroidWorld task in params.task.",
            "Make tasks by `distrl tasks import --androidworld`.",
        )
    return name, family
