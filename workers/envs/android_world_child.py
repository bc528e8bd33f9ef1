"""The process in which the `android_world` package runs: it seeds the global `random` and prints as it likes.

Its last argument is the file descriptor of its end of a socket pair. It serves one request after another.
When the other end or the parent is gone, it tears the task down, closes the device and ends. Standard output
goes where standard error goes: to the environment's log file.

    main thread   waits for a request, without a deadline, or for the end of the pipe
    watch thread  waits for the parent's end; `LAST_S` later the process ends, whatever the main thread does

A request is a msgpack map {op: "step", …}, its answer {ok: {…}} or {error: kind, message: …}. The package is
imported here and nowhere else, when it is first needed; its names are those of google-research/android_world,
see docs/devices.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import random
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack

TASK_FILE = Path(__file__).with_name("android_world_task.textproto")
"""android_env's own task: it has no goal and no end, those are android_world's."""

TASK, ENV, DEVICE, MISSING = "task", "env", "device", "missing"
"""Kinds of error: there is no such task, the package failed, the device did, a package is not installed."""


class Refused(Exception):
    """A request that cannot be done."""

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
    ) -> None:
        """Attaches to a running emulator.

        As `android_world_controller.get_controller` does, with two things it has no parameters for: the adb
        server's port, and a task file that is there instead of one that all processes write.
        """
        config = _part("android_env.components.config_classes")
        controller = _part("android_world.env.android_world_controller")
        launcher = config.EmulatorLauncherConfig(
            emulator_console_port=ports["console"],
            adb_port=ports["console"] + 1,  # android_env makes the serial of it: emulator-<adb - 1>
            grpc_port=ports["grpc"],
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

    def reset(self, family: str, name: str, seed: int) -> dict[str, Any]:
        """Starts a task. The goal may differ from the described one: some tasks word dates only now."""
        self.tear_down()
        self._env.reset(go_home=True)
        self._env.hide_automation_ui()  # the coordinates that android_env draws on the screen
        self._task = task = self._instance(family, name, seed)  # from here on it must be torn down
        task.initialize_task(self._env)
        self._env.reset(go_home=bool(task.start_on_home_screen))
        return {"goal": str(task.goal), **self._look(wait=True)}

    def step(self, action: dict[str, Any] | None, swipe: list[int] | None) -> dict[str, Any]:
        """Does an action, a swipe between two points in pixels, or nothing; then looks."""
        if action is not None:
            # ValueError is the package's word for an action that cannot be carried out: nothing happens.
            with contextlib.suppress(ValueError):
                self._env.execute_action(_part("android_world.env.json_action").JSONAction(**action))
        elif swipe is not None:
            adb = _part("android_world.env.adb_utils")
            adb.issue_generic_request(adb.generate_swipe_command(*swipe), self._env.controller)
        return self._look(wait=action is not None or swipe is not None)

    def score(self) -> dict[str, Any]:
        """What `is_successful` says. The task is still torn down by `tear_down`."""
        return {"score": float(self._task.is_successful(self._env))}

    def tear_down(self) -> None:
        """Tears the task down, if one runs; it counts as torn down also when that fails."""
        task, self._task = self._task, None
        if task is not None:
            task.tear_down(self._env)

    def close(self) -> None:
        try:
            self.tear_down()
        finally:
            env, self._env = self._env, None
            if env is not None:
                env.close()

    def _look(self, wait: bool) -> dict[str, Any]:
        clock = time.perf_counter()
        state = self._env.get_state(wait_to_stabilize=wait)
        seconds = time.perf_counter() - clock
        height, width = state.pixels.shape[:2]
        return {
            "pixels": state.pixels[:, :, :3].tobytes(),
            "width": int(width),
            "height": int(height),
            "app": str(self._env.foreground_activity_name or ""),
            "settle_s": seconds if wait else 0.0,
            "elements": [_attributes(one) for one in state.ui_elements if one.bbox_pixels is not None],
        }

    def _registry(self, family: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = _part("android_world.registry").TaskRegistry().get_registry(family)
        except ValueError as error:
            raise Refused(TASK, f"{error}.") from error
        return found

    def _instance(self, family: str, name: str, seed: int) -> Any:
        """A task with the parameters that its seed gives, as `suite_utils._instantiate_task` makes it."""
        known = self._registry(family)
        if name not in known:
            raise Refused(TASK, f"android_world's family {family!r} has no task {name!r}.")
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


_STATES = (
    "checkable", "checked", "clickable", "enabled", "focused", "long_clickable", "scrollable", "selected",
)  # fmt: skip


def _attributes(element: Any) -> dict[str, str]:
    """A `UIElement` as attributes of uiautomator."""
    texts = {
        "text": element.text,
        "content-desc": element.content_description,
        "class": element.class_name,
        "resource-id": element.resource_id or element.resource_name,
    }
    box, states = element.bbox_pixels, {name: getattr(element, f"is_{name}") for name in _STATES}
    return {
        "bounds": f"[{box.x_min:.0f},{box.y_min:.0f}][{box.x_max:.0f},{box.y_max:.0f}]",
        **{name: str(text) for name, text in texts.items() if text},
        **{name.replace("_", "-"): str(bool(on)).lower() for name, on in states.items() if on is not None},
    }


def _budget(task: Any) -> int:
    """The steps that `suite_utils._allocate_step_budget` gives a task."""
    return max(1, int(10 * task.complexity))


def _part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Refused(MISSING, error.name or name) from error


PARENT_POLL_S = 1.0
LAST_S = 60.0  # how long tearing down may take after the parent's end


def answer(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    operation = message.pop("op")
    try:
        return {"ok": getattr(session, operation)(**message)}
    except Refused as error:
        return {"error": error.kind, "message": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever the package raises is sent to the parent
        kind = ENV if operation in ("describe", "score") else DEVICE
        return {"error": kind, "message": f"{type(error).__name__}: {error}"[:2000]}


def serve(pipe: Connection) -> None:
    """Answers requests until the other side is gone or asks to close."""
    session = Session()
    is_over = False
    try:
        while not is_over:
            message = msgpack.unpackb(pipe.recv_bytes())
            is_over = message["op"] == "close"
            pipe.send_bytes(msgpack.packb(answer(session, message)))
    except (EOFError, OSError):
        answer(session, {"op": "close"})


def _watch(parent: int) -> None:
    """Ends this process soon after its parent, also when the package hangs."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    time.sleep(LAST_S)  # the main thread sees the end of the pipe, and tears down
    os._exit(1)


def main() -> None:
    os.dup2(2, 1)  # what the package prints
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    serve(Connection(int(sys.argv[-1])))


if __name__ == "__main__":
    main()
