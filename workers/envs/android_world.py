"""AndroidWorld as an environment: tasks of the `android_world` package on an emulator that runs already.

    slot's thread: AndroidWorldEnv ──pipe, one call at a time──► child process: Session ──gRPC, adb──► phone

An episode is the package's own: reset, initialize_task, steps, is_successful, tear_down, in that order;
whatever happens, the task is torn down before the next one starts. A `Task` names a task of the package's
registry in `params.task` and its instance by `seed`; `distrl tasks import --androidworld` makes such tasks.

A call that is not answered in time ends the child and what it started, except adb servers, which leave its
process group: a package that hangs cannot answer anything else. `EmulatorClaim` keeps an emulator to one
environment by a lock file. The lock is the kernel's (`flock`) and belongs to the environment and its child,
which inherits it. The file's text is the task that was not torn down; the next holder tears it down first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.core.user_errors import first_problem
from distrl.workers.agents.androidworld import named_gesture, write_json
from distrl.workers.agents.chat_agent import Grid
from distrl.workers.envs.android_world_child import DEVICE, MISSING, TASK, Pipe, PipeClosed, PipeTimeout
from distrl.workers.envs.base import Frame, StepResult

FAMILY = "android_world"
"""The package's whole suite, in the words of its registry."""


class Ports(BaseModel):
    """Where one running emulator is reached.

    Attributes:
        console: The console port, even; its serial is emulator-<console>.
        adb: The adb port, console + 1 when not given.
        grpc: The port that the emulator was started with by `-grpc`.
        adb_server: The adb server that lists the emulator. android_env restarts it when a command fails, so
            it should serve no other device.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    console: int = Field(5554, ge=1, le=65534)
    adb: int = Field(0, ge=0, le=65535)
    grpc: int = Field(8554, ge=1, le=65535)
    adb_server: int = Field(5037, ge=1, le=65535)

    @model_validator(mode="after")
    def _adb_follows_the_console(self) -> Ports:
        # android_env makes the serial of the adb port: emulator-<adb - 1>.
        if self.adb not in (0, self.console + 1):
            raise ValueError(f"adb is {self.adb}; android_env needs console + 1, {self.console + 1}")
        return self

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by name."""
        return {**self.model_dump(), "adb": self.console + 1}


class Deadlines(BaseModel):
    """Seconds that the package may take for each part of an episode; past them its process is ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attach_s: float = Field(300.0, gt=0.0)
    reset_s: float = Field(300.0, gt=0.0)
    step_s: float = Field(90.0, gt=0.0)
    score_s: float = Field(120.0, gt=0.0)
    tear_down_s: float = Field(180.0, gt=0.0)


class AndroidWorldOptions(BaseModel):
    """The environment's options.

    Attributes:
        devices: The emulators, by their ports. Each slot takes one that is free; with several, each has an
            adb server of its own.
        adb_path: The adb program; by default the one on PATH or in the Android SDK.
        accessibility: How the package reads the screen's elements: see its `A11yMethod`.
        setup: Whether the package installs its apps first: once for each new emulator.
        freeze_time: Whether the clock is set to the package's date, as its tasks expect.
        wait: Whether a step ends when the package finds the screen stable, rather than at once.
        deadlines: See `Deadlines`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: tuple[Ports, ...] = Field((Ports(),), min_length=1)
    adb_path: str | None = None
    accessibility: Literal["a11y_forwarder_app", "uiautomator", "none"] = "a11y_forwarder_app"
    setup: bool = False
    freeze_time: bool = True
    wait: bool = True
    deadlines: Deadlines = Deadlines()


def checked_options(fields: Mapping[str, object]) -> AndroidWorldOptions:
    """The options in a configuration.

    Raises:
        ConfigError: One is unknown or wrong, or two emulators share a port.
    """
    try:
        options = AndroidWorldOptions.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"{first_problem(error, 'env.options')}.", "See docs/devices.md.") from error
    for name in ("console", "grpc", "adb_server"):
        ports = [getattr(device, name) for device in options.devices]
        if len(set(ports)) != len(ports):
            raise ConfigError(
                f"env.options.devices: two emulators share the {name} port {max(ports, key=ports.count)}.",
                "Each has its own; so has the adb server, which android_env restarts when a command fails.",
            )
    return options


def find_adb(path: str | None) -> str:
    """The adb program's full path: android_env expands nothing.

    Args:
        path: Where it is; None looks on PATH and in the Android SDK.

    Raises:
        MissingDependency: It is not there.
    """
    sdk = os.environ.get("ANDROID_HOME") or os.environ.get("ANDROID_SDK_ROOT") or "~/Android/Sdk"
    places = [path] if path else [shutil.which("adb"), f"{sdk}/platform-tools/adb"]
    for place in filter(None, places):
        found = Path(place).expanduser()
        if found.is_file():
            return str(found.absolute())
    raise MissingDependency(
        f"there is no adb program{f' {path}' if path else ' on PATH or in the Android SDK'}.",
        "Install the SDK's platform tools, or set env.options.adb_path.",
    )


class EmulatorClaim:
    """One emulator, held until `release`. Use `take`.

    Attributes:
        ports: The emulator's.
    """

    def __init__(self, ports: Ports, descriptor: int) -> None:
        self.ports = ports
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, devices: Sequence[Ports], directory: Path | None = None) -> EmulatorClaim:
        """The first of `devices` that no other process or slot of this user holds.

        Args:
            devices: Which there are.
            directory: Where the lock files are; a private one of this user by default.

        Raises:
            EnvError: All are held, or the directory cannot be used.
        """
        folder = _folder() if directory is None else directory
        for ports in devices:
            path = folder / f"emulator-{ports.console}.json"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise EnvError(
                    f"{path} cannot be opened: {error.strerror}.", "Check the directory."
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return cls(ports, descriptor)
        raise EnvError(
            f"all {len(devices)} AndroidWorld emulators are in use by other slots or processes.",
            "Name as many in env.options.devices as there are slots on this machine.",
            fault="device",
        )

    @property
    def descriptor(self) -> int:
        """The lock file's; a child that inherits it holds the claim too."""
        assert self._descriptor is not None, "a released claim"
        return self._descriptor

    @property
    def left(self) -> dict[str, Any] | None:
        """The task that an earlier holder did not tear down, as it noted it; None if there is none."""
        text = os.pread(self.descriptor, 64 * 1024, 0)
        try:
            noted = json.loads(text) if text.strip() else None
        except ValueError:
            return None  # cut short by the machine's end
        return noted if isinstance(noted, dict) else None

    def note(self, task: dict[str, Any] | None) -> None:
        """Notes the task that is about to run, or None when it has been torn down."""
        os.ftruncate(self.descriptor, 0)
        if task is not None:
            os.pwrite(self.descriptor, json.dumps(task).encode(), 0)

    def release(self) -> None:
        """Lets go. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _folder() -> Path:
    """A directory that only this user can write to."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"distrl-androidworld-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
    except OSError as error:
        raise EnvError(f"{folder} cannot be made: {error.strerror}.", "Check the directory.") from error
    if info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise EnvError(f"{folder} belongs to another user or can be written by others.", "Remove it.")
    return folder


SEND_S = 10.0
EXIT_S = 10.0
"""How long the child may take to end after it has closed its device."""

_TAIL = 2000
INSTALL = (
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
        return MissingDependency(
            f"AndroidWorld needs the package {message}, which is not installed.", INSTALL
        )
    if kind == TASK:
        return TaskError(
            message.rstrip("?.") + ("?" if message.endswith("?") else "."),
            "See `android_world/registry.py` for its names.",
        )
    detail = str(answer.get("detail", "")).strip().rpartition("\n")[2]
    said = message if detail in ("", message) else f"{message} ({detail})"
    fault = "device" if kind == DEVICE else "env"
    return EnvError(f"android_world failed in {operation}: {said}", "Look at the emulator.", fault=fault)


SWIPE_MS = 500

_log = logging.getLogger(__name__)


class AndroidWorldEnv:
    """One emulator that plays the package's tasks.

    Args: those of `Options`, as plain data.

    Raises:
        ConfigError: An option is unknown or wrong.
        MissingDependency: The package or adb is not installed.
        EnvError: No emulator is free, or it cannot be attached to.
    """

    seed_is_instance: ClassVar[bool] = True
    """The package draws a task's parameters from it, and words the goal by them."""

    def __init__(
        self,
        devices: Sequence[Mapping[str, int]] | None = None,
        adb_path: str | None = None,
        accessibility: str = "a11y_forwarder_app",
        setup: bool = False,
        freeze_time: bool = True,
        wait: bool = True,
        deadlines: Mapping[str, float] | None = None,
    ) -> None:
        fields: dict[str, object] = {
            "adb_path": adb_path,
            "accessibility": accessibility,
            "setup": setup,
            "freeze_time": freeze_time,
            "wait": wait,
            "deadlines": deadlines or {},
        }
        self._options = checked_options(fields if devices is None else {**fields, "devices": devices})
        self._deadlines = self._options.deadlines
        self._task: Task | None = None
        self._goal = ""
        self._frame: Frame | None = None
        self._score: float | None = None
        self._unclean = ""
        self._is_attached = self._is_closed = False
        self._reworded: set[str] = set()
        adb = find_adb(self._options.adb_path)
        self._claim = EmulatorClaim.take(self._options.devices)
        try:
            self._process = WorldProcess((self._claim.descriptor,))
        except BaseException:
            self._claim.release()
            raise
        try:
            self._attach(adb)
        except BaseException:
            self.close()
            raise

    @property
    def goal(self) -> str:
        """The instruction as the package words it once the task is initialized."""
        return self._goal

    @property
    def ports(self) -> Ports:
        """The emulator that this environment holds."""
        return self._claim.ports

    def reset(self, task: Task) -> Frame:
        """Starts `task`, after the former one has been torn down.

        Raises:
            TaskError: It is none of the package's.
            EnvError: The package or the emulator failed.
        """
        self._tear_down()
        if self._unclean:
            raise EnvError(f"the task before was not torn down: {self._unclean}", fault="device")
        name, family = named(task)
        self._process.forget_log()
        self._claim.note({"family": family, "name": name, "seed": task.seed})
        found = self._process.call("reset", self._deadlines.reset_s, family=family, name=name, seed=task.seed)
        self._compare(task, str(found["described"]))
        self._task, self._goal, self._score = task, str(found["goal"]), None
        return self._keep(found)

    def step(self, action: Action) -> StepResult:
        """Executes `action` by the package, which ends typing with the enter key."""
        frame = self._running()
        if action.is_terminal:
            return StepResult(frame)
        wait, swipe, fields = self._options.wait, None, None
        if action.kind is ActionKind.INVALID:
            wait = False
        elif action.kind is ActionKind.SWIPE and named_gesture(action) is None:
            swipe = [*self._pixels(action.point), *self._pixels(action.to), SWIPE_MS]
        else:
            fields = write_json(action, self._grid())
        found = self._process.call("step", self._deadlines.step_s, action=fields, swipe=swipe, wait=wait)
        if found["refused"]:
            _log.debug("%s refused %s: %s", self._claim.ports.console, fields, found["refused"])
        return StepResult(self._keep(found), settle_s=float(found["settle_s"]))

    def evaluate(self) -> float:
        """What `is_successful` says now; then the task is torn down, so that a second call gives the same."""
        if self._score is None:
            self._running()
            score = self._process.call("score", self._deadlines.score_s)["score"]
            self._score = min(1.0, max(0.0, float(score)))
            self._tear_down()
        return self._score

    def expert_action(self) -> Action:
        """AndroidWorld has no scripted expert: raises EnvError."""
        raise EnvError("AndroidWorld has no scripted expert.", "Set learner.demonstrations.episodes to 0.")

    def close(self) -> None:
        """Tears down and lets go of the emulator. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._task = self._frame = None
        was_alive = self._process.is_alive
        try:
            self._process.close(self._deadlines.tear_down_s)
            if was_alive and self._is_attached and not self._unclean:
                self._claim.note(None)
        except EnvError as error:
            # The claim still names the task: the next holder of the emulator tears it down.
            _log.warning("emulator-%d: %s", self._claim.ports.console, error)
        finally:
            self._claim.release()

    def _attach(self, adb: str) -> None:
        options = self._options
        self._process.call(
            "attach",
            self._deadlines.attach_s,
            ports=self._claim.ports.numbers,
            adb_path=adb,
            accessibility=options.accessibility,
            setup=options.setup,
            freeze_time=options.freeze_time,
        )
        self._is_attached = True
        left = self._claim.left
        if left is not None:
            try:
                self._process.call("tear_down_left", self._deadlines.tear_down_s, **left)
            except (EnvError, TaskError) as error:
                # initialize_task restores the apps it needs anyway; more than trying cannot be done.
                _log.warning("emulator-%d: what was left: %s", self._claim.ports.console, error)
            self._claim.note(None)

    def _tear_down(self) -> None:
        """Tears the present task down, if there is one. A failure is remembered: the score holds."""
        if self._unclean or (self._task is None and self._claim.left is None):
            return
        self._task = self._frame = None
        try:
            self._process.call("tear_down", self._deadlines.tear_down_s)
        except EnvError as error:
            self._unclean = str(error)
        else:
            self._claim.note(None)

    def _compare(self, task: Task, described: str) -> None:
        """Says once for each template that the package words a task otherwise than when it was imported.

        Another version of the package does so; so do the few tasks that take a name from the clock. What the
        package says now is what the agent reads and what is scored.
        """
        if described in ("", task.goal) or task.template in self._reworded:
            return
        self._reworded.add(task.template)
        _log.warning(
            "%s was imported as %r; the installed android_world makes %r of its seed. If other templates do "
            "the same, import the tasks again with this version.",
            *(task.id, task.goal, described),
        )

    def _running(self) -> Frame:
        if self._task is None or self._frame is None:
            raise EnvError("no AndroidWorld task is running.", "Reset the environment to a task first.")
        return self._frame

    def _keep(self, found: dict[str, Any]) -> Frame:
        size = (int(found["width"]), int(found["height"]))
        self._frame = Frame.of(Image.frombytes("RGB", size, found["pixels"]), app=str(found["app"]))
        return self._frame

    def _grid(self) -> Grid:
        return Grid(*self._running().image.size)

    def _pixels(self, point: tuple[float, float] | None) -> tuple[int, int]:
        assert point is not None, "a swipe has two points"
        return self._grid().cell(point)


def named(task: Task) -> tuple[str, str]:
    name, family = task.params.get("task"), task.params.get("family", FAMILY)
    if not isinstance(name, str) or not isinstance(family, str):
        raise TaskError(
            f"{task.id} names no AndroidWorld task in params.task.",
            "Make tasks by `distrl tasks import --androidworld`.",
        )
    return name, family
