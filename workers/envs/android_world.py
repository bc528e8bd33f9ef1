"""AndroidWorld as an environment: tasks of the `android_world` package on an emulator that runs already.

    slot's thread: AndroidWorldEnv ──pipe, one call at a time──► child process: Session ──gRPC, adb──► phone

An episode is the package's own: reset, initialize_task, steps, is_successful, tear_down, in that order;
whatever happens, the task is torn down before the next one starts. A `Task` names a task of the package's
registry in `params.task` and its instance by `seed`; `distrl tasks import --androidworld` makes such tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from PIL import Image

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, TaskError
from distrl.core.types import Task
from distrl.workers.agents.json_action import named_gesture, write
from distrl.workers.agents.notation import Grid
from distrl.workers.envs.android_world_claim import Claim
from distrl.workers.envs.android_world_options import FAMILY, Ports, checked, find_adb
from distrl.workers.envs.android_world_process import WorldProcess
from distrl.workers.envs.base import Frame, StepResult

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
        self._options = checked(fields if devices is None else {**fields, "devices": devices})
        self._deadlines = self._options.deadlines
        self._task: Task | None = None
        self._goal = ""
        self._frame: Frame | None = None
        self._score: float | None = None
        self._unclean = ""
        self._is_attached = self._is_closed = False
        self._reworded: set[str] = set()
        adb = find_adb(self._options.adb_path)
        self._claim = Claim.take(self._options.devices)
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
            fields = write(action, self._grid())
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
