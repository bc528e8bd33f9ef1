"""The process in which the `android_world` package runs: it seeds the global `random` and prints as it likes.

Started as `python -m distrl.workers.envs.android_world_child FD`, where FD is its end of a socket pair. It
serves one request after another. When the other end or the parent is gone, it tears the task down, closes the
device and ends. Standard output goes where standard error goes: to the environment's log file.

    main thread   waits for a request, without a deadline, or for the end of the pipe
    watch thread  waits for the parent's end; `LAST_S` later the process ends, whatever the main thread does

    environment (a slot's thread)            child (one thread)
    {op: "step", …}          ──────────────► the package does it
                             ◄────────────── {ok: {…}}   or   {error: kind, message, detail}

A message is 4 bytes of length and a msgpack map of plain data. The package is imported here and nowhere else,
when it is first needed; its names are those of google-research/android_world, see docs/devices.md.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import random
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack

MAX_BYTES = 256 * 2**20
"""Largest message; a raw screenshot of 1440x3200 has 14 MiB."""

_LENGTH = struct.Struct(">I")


class PipeClosed(Exception):
    """The other side is gone."""


class PipeTimeout(Exception):
    """The other side did not answer in time."""


class Pipe:
    """One end. Used by one thread.

    Args:
        stream: A connected stream socket; the pipe owns it.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Sends a message.

        Args:
            message: Plain data.
            seconds: The deadline; None waits as long as the other side lives.

        Raises:
            PipeTimeout: It could not be handed over in time.
            PipeClosed: Nobody is there to take it.
        """
        data = msgpack.packb(dict(message), use_bin_type=True)
        if len(data) > MAX_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is longer than {MAX_BYTES}")
        self._stream.settimeout(seconds)
        try:
            self._stream.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError as error:
            raise PipeTimeout from error
        except OSError as error:
            raise PipeClosed from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message, all of it within `seconds`; None waits as long as the other side lives.

        Raises:
            PipeTimeout: It did not come in time.
            PipeClosed: The other side is gone, or sent an invalid message.
        """
        end = None if seconds is None else time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, end))
        if length > MAX_BYTES:
            raise PipeClosed
        try:
            message = msgpack.unpackb(self._read(length, end), raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise PipeClosed from error
        if not isinstance(message, dict):
            raise PipeClosed
        return message

    def _read(self, size: int, end: float | None) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0.0:
                raise PipeTimeout
            self._stream.settimeout(left)
            try:
                count = self._stream.recv_into(view)
            except TimeoutError as error:
                raise PipeTimeout from error
            except OSError as error:
                raise PipeClosed from error
            if count == 0:
                raise PipeClosed
            view = view[count:]
        return bytes(data)

    def close(self) -> None:
        """Ends the conversation. May be called twice."""
        self._stream.close()


TASK_FILE = Path(__file__).with_name("android_world_task.textproto")
"""android_env's own task: it has no goal and no end, those are android_world's."""

TASK, ENV, DEVICE, MISSING = "task", "env", "device", "missing"
"""Kinds of error: there is no such task, the package failed, the device did, a package is not installed."""


class Refused(Exception):
    """A request that cannot be done.

    Args:
        kind: One of the kinds above.
        message: What happened, for people.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Session:
    """The package, the device that it is attached to, and the task that runs on it.

    The order within an episode is the package's own (`suite_utils._run_task`, `episode_runner.run_episode`):
    reset, initialize_task, home if the task starts there, steps, is_successful, tear_down.
    """

    def __init__(self) -> None:
        self._env: Any = None
        self._task: Any = None

    def describe(self, family: str, names: list[str], seeds: list[int]) -> dict[str, Any]:
        """Goal and step budget of each task at each instance seed, without a device; `names` empty: all."""
        known = self._registry(family)
        found = []
        for name in names or sorted(known):
            for seed in seeds:
                task = self._instance(family, name, instance_seed(seed, name))
                found.append({"name": name, "seed": seed, "goal": _goal(task), "max_steps": _budget(task)})
        return {"tasks": found}

    def attach(
        self, ports: dict[str, int], adb_path: str, accessibility: str, setup: bool, freeze_time: bool
    ) -> dict[str, Any]:
        """Attaches to a running emulator.

        As `android_world_controller.get_controller` does, with two things it has no parameters for: the adb
        server's port, and a task file that is there instead of one that all processes write.
        """
        config = _part("android_env.components.config_classes")
        controller = _part("android_world.env.android_world_controller")
        launcher = config.EmulatorLauncherConfig(
            emulator_console_port=ports["console"], adb_port=ports["adb"], grpc_port=ports["grpc"]
        )
        adb = config.AdbControllerConfig(adb_path=adb_path, adb_server_port=ports["adb_server"])
        loaded = _part("android_env.loader").load(
            config.AndroidEnvConfig(
                task=config.FilesystemTaskConfig(path=str(TASK_FILE)),
                simulator=config.EmulatorConfig(emulator_launcher=launcher, adb_controller=adb),
            )
        )
        method = controller.A11yMethod(accessibility)
        wrapped = controller.AndroidWorldController(loaded, a11y_method=method)
        self._env = _part("android_world.env.interface").AsyncAndroidEnv(wrapped)
        _part("android_world.env.env_launcher").setup_env(self._env, setup, freeze_time)
        width, height = self._env.logical_screen_size
        return {"width": int(width), "height": int(height)}

    def reset(self, family: str, name: str, seed: int) -> dict[str, Any]:
        """Starts a task. The goal may differ from the described one: some tasks word dates only now."""
        self.tear_down()
        env = self._attached()
        env.reset(go_home=True)
        env.hide_automation_ui()  # the coordinates that android_env draws on the screen
        task = self._instance(family, name, seed)
        described = _goal(task)
        self._task = task  # from here on it must be torn down
        task.initialize_task(env)
        env.reset(go_home=bool(task.start_on_home_screen))
        return {
            "goal": str(task.goal),
            "described": described,
            "max_steps": _budget(task),
            **self._look(wait=True),
        }

    def step(self, action: dict[str, Any] | None, swipe: list[int] | None, wait: bool) -> dict[str, Any]:
        """Does an action, a swipe between two points in pixels, or nothing; then looks."""
        env = self._attached()
        refused = ""
        if action is not None:
            try:
                env.execute_action(_part("android_world.env.json_action").JSONAction(**action))
            except ValueError as error:  # the package's word for an action that cannot be carried out
                refused = str(error)
        elif swipe is not None:
            adb = _part("android_world.env.adb_utils")
            adb.issue_generic_request(adb.generate_swipe_command(*swipe), env.controller)
        return {"refused": refused, **self._look(wait)}

    def score(self) -> dict[str, Any]:
        """What `is_successful` says. The task is still torn down by `tear_down`."""
        if self._task is None:
            raise Refused(ENV, "no task runs")
        return {"score": float(self._task.is_successful(self._attached()))}

    def tear_down(self) -> dict[str, Any]:
        """Tears the task down, if one runs; it counts as torn down also when that fails."""
        task, self._task = self._task, None
        if task is not None:
            task.tear_down(self._attached())
        return {}

    def tear_down_left(self, family: str, name: str, seed: int) -> dict[str, Any]:
        """Tears down what a process that was killed left behind: the same task, as far as it is known."""
        self._instance(family, name, seed).tear_down(self._attached())
        return {}

    def close(self) -> dict[str, Any]:
        """Tears down and lets go of the device."""
        try:
            self.tear_down()
        finally:
            env, self._env = self._env, None
            if env is not None:
                env.close()
        return {}

    def _look(self, wait: bool) -> dict[str, Any]:
        clock = time.perf_counter()
        state = self._attached().get_state(wait_to_stabilize=wait)
        seconds = time.perf_counter() - clock
        height, width = state.pixels.shape[:2]
        return {
            "pixels": state.pixels[:, :, :3].tobytes(),
            "width": int(width),
            "height": int(height),
            "app": str(self._attached().foreground_activity_name or ""),
            "settle_s": seconds if wait else 0.0,
        }

    def _attached(self) -> Any:
        if self._env is None:
            raise Refused(ENV, "not attached to a device")
        return self._env

    def _registry(self, family: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = _part("android_world.registry").TaskRegistry().get_registry(family)
        except ValueError as error:
            raise Refused(TASK, str(error)) from error
        return found

    def _instance(self, family: str, name: str, seed: int) -> Any:
        """A task with the parameters that its seed gives, as `suite_utils._instantiate_task` makes it."""
        known = self._registry(family)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise Refused(TASK, f"android_world's family {family!r} has no task {name!r}{hint}")
        task_type = known[name]
        task_type.set_device_time(self._env)
        random.seed(seed)
        params = task_type.generate_random_params()
        params["seed"] = seed
        return task_type(params)


def instance_seed(seed: int, name: str, index: int = 0) -> int:
    """The seed of a task's instance, as `suite_utils.create_suite` derives it from the suite's seed."""
    return int(hashlib.sha256(f"{seed}_{name}_{index}".encode()).hexdigest(), 16) % 2**32


def _goal(task: Any) -> str:
    """The goal before the task is initialized; "" for a task that learns it from the device."""
    try:
        return str(task.goal)
    except (ValueError, KeyError):
        return ""


def _budget(task: Any) -> int:
    """The steps that `suite_utils._allocate_step_budget` gives a task."""
    return max(1, int(10 * task.complexity))


def _part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Refused(MISSING, error.name or name) from error


PARENT_POLL_S = 1.0
LAST_S = 60.0
"""How long tearing down may take after the parent's end."""

ANSWER_S = 30.0
"""How long the parent may take to read an answer before it counts as gone."""


def answer(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Does one request."""
    operation = str(message.pop("op", ""))
    do: Callable[..., dict[str, Any]] | None = getattr(session, operation, None)
    try:
        if do is None or operation.startswith("_"):
            raise Refused(ENV, f"there is no operation {operation!r}")
        return {"ok": do(**message)}
    except Refused as error:
        return {"error": error.kind, "message": str(error), "detail": ""}
    except Exception as error:  # noqa: BLE001 - whatever the package raises is sent to the parent
        kind = ENV if operation in ("describe", "score") else DEVICE
        message_text = f"{type(error).__name__}: {error}"
        return {"error": kind, "message": message_text[:2000], "detail": traceback.format_exc()[-4000:]}


def serve(pipe: Pipe) -> None:
    """Answers requests until the other side is gone or asks to close."""
    session = Session()
    try:
        while True:
            message = pipe.receive()
            is_last = message.get("op") == "close"
            pipe.send(answer(session, message), ANSWER_S)
            if is_last:
                return
    except (PipeClosed, PipeTimeout):
        answer(session, {"op": "close"})


def _watch(parent: int) -> None:
    """Ends this process soon after its parent, also when the package hangs."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    time.sleep(LAST_S)  # the main thread sees the end of the pipe, and tears down
    os._exit(1)


def main() -> None:
    """Runs the child."""
    os.dup2(2, 1)  # what the package prints
    pipe = Pipe(socket.socket(fileno=int(sys.argv[1])))
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    serve(pipe)


if __name__ == "__main__":
    main()
