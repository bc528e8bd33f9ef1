"""Backends of `PhoneEnv` for real devices: start by a snapshot or a recipe, ground truth by a shell command.

A task may bring, in its `params`,

    setup: ["am start -W -a android.settings.SETTINGS", …]                 lines for the device's shell
    check: {shell: "settings get global wifi_on", equals: "1"}             or contains, or regex

Lines and check come from the task's author and run in the device's shell, never in this machine's. A task
without a check has no ground truth: its episodes stay unjudged and are not trained on. `backend_for` selects
the backend that belongs to a device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from distrl.core.actions import Action
from distrl.core.errors import EnvError, TaskError
from distrl.core.importing import import_object
from distrl.core.types import Task
from distrl.core.user_errors import first_problem, read_fields
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.device import Device
from distrl.workers.devices.errors import NotReady
from distrl.workers.devices.guard import Guard, GuardPolicy
from distrl.workers.devices.recipes import Cook, Recipe
from distrl.workers.envs.phone import SIMULATED, TaskBackend

LINE_S = 60.0  # deadline of a set-up line or a check, unless the task says otherwise


_RESTARTS = re.compile("Can't find service|Is the system running|DeadObjectException")
"""What commands such as `settings`, `dumpsys` and `am` print while Android's system server is down."""


class Check(BaseModel):
    """The ground truth of a task: what a shell command prints when it is done.

    White space around the output does not count, nor does the exit status. The output must be `equals`, have
    `contains` in it, or match `regex` somewhere: one of the three is given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shell: str = Field(min_length=1)
    equals: str | None = None
    contains: str | None = None
    regex: str | None = None

    @model_validator(mode="after")
    def _has_one_condition(self) -> Check:
        if sum(value is not None for value in (self.equals, self.contains, self.regex)) != 1:
            raise ValueError("a check has exactly one of equals, contains and regex")
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise ValueError(f"regex: {error}") from error
        return self

    def holds(self, output: str) -> bool:
        output = output.strip()
        if self.equals is not None:
            return output == self.equals.strip()
        if self.contains is not None:
            return self.contains in output
        return re.search(self.regex or "", output) is not None


class Script(BaseModel):
    """What a task's `params` say to this backend; other parameters are the task's own affair."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    setup: tuple[str, ...] = ()
    check: Check | None = None
    shell_timeout_s: float = Field(LINE_S, gt=0.0, le=600.0)

    @classmethod
    def of(cls, task: Task) -> Script:
        try:
            return cls.model_validate(task.params)
        except ValidationError as error:
            raise TaskError(f"{task.id}: {first_problem(error, 'params')}.", "Correct the task.") from error


class RecipeBackend:
    """Tasks on one real device, for `PhoneEnv`.

    `recipe` has fields of `Recipe`: the start state, and what is verified before each episode. With a
    `snapshot` its steps are left out, its checks are made. `guard` has fields of `GuardPolicy`.
    """

    def __init__(
        self,
        device: Device,
        shell: AdbClient,
        recipe: Mapping[str, object] | Recipe | None = None,
        snapshot: str | None = None,
        guard: Mapping[str, object] | GuardPolicy | None = None,
    ) -> None:
        self.device = device
        self._shell = shell
        self._cook = Cook(shell, read_fields(Recipe, recipe, "recipe"))
        self._snapshot = snapshot
        self.guard = None if guard is None else Guard(shell, read_fields(GuardPolicy, guard, "guard"))

    def prepare(self, task: Task) -> None:
        """Brings the device to the start state, verifies it, and runs the task's set-up lines."""
        script = Script.of(task)
        if self._snapshot is not None:
            self.device.load_state(self._snapshot)
            self._cook.season()
        else:
            self._cook.apply()
        self._cook.verify()
        for line in script.setup:
            result = self._shell.shell(line, script.shell_timeout_s)
            if result.status != 0:
                said = result.said[-400:]
                raise EnvError(
                    f"{task.id}: the set-up line {line!r} ended with status {result.status}: {said}",
                    "Correct the task, or what it needs on the device.",
                )

    def has_truth(self, task: Task) -> bool:
        return Script.of(task).check is not None

    def score(self, task: Task) -> float:
        """1 when the task's check holds now, else 0.

        Raises:
            EnvError: The task has no check.
            NotReady: The services that the check asks are down, as while Android restarts.
        """
        script = Script.of(task)
        if script.check is None:
            raise EnvError(f"{task.id} has no check.", "Give it params.check, or judge its episodes later.")
        result = self._shell.shell(script.check.shell, script.shell_timeout_s, reads=True)
        is_solved = script.check.holds(result.text)
        if not is_solved and _RESTARTS.search(result.said):
            raise NotReady(
                f"the check of {task.id} could not ask Android: {result.said[-200:]}.",
                "Unless Android has just restarted, correct the task's check.",
                serial=self._shell.serial,
                evidence=result.said,
            )
        return float(is_solved)

    def expert(self, task: Task) -> Action:
        raise EnvError(
            f"{task.id}: a real device has no scripted expert.", "Set learner.demonstrations.episodes to 0."
        )


SIMULATED_ADB = "distrl.simulator.adb.backend:AdbSimBackend"
"""Tasks of a simulated phone that is reached through adb."""


def backend_for(device: Device, **recipe: Any) -> TaskBackend:
    """The backend for `device`: a simulated phone, in this process or behind adb, or any device behind adb.

    `recipe` are the options of `RecipeBackend`. The guard "physical" is only for physical phones.
    """
    if not isinstance(device, AdbDevice):
        backend: TaskBackend = import_object(SIMULATED)(device)
        return backend
    if device.is_simulated:
        behind_adb: TaskBackend = import_object(SIMULATED_ADB)(device)
        return behind_adb

    if recipe.get("guard") == "physical":
        recipe["guard"] = {} if device.is_physical else None
    return RecipeBackend(device, device.client, **recipe)
