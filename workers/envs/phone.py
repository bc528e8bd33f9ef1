"""A phone as an environment: acts and looks through a `Device`, and leaves the task to a backend.

The device may be simulated or real; the backend starts a task on it, scores it by its state, and says what a
scripted expert would do. `Latency` and `Faults` add waits and failures on purpose.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Protocol
from xml.etree import ElementTree

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.importing import import_object
from distrl.core.types import Task
from distrl.core.user_errors import read_fields
from distrl.workers.devices.device import Device, Key, Screen
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceOffline,
    DeviceTimeout,
    OutputInvalid,
    Untypable,
)
from distrl.workers.devices.screen import Settle, Settler
from distrl.workers.envs.base import Frame, StepResult

if TYPE_CHECKING:
    from distrl.workers.devices.guard import Guard


class Faults(BaseModel):
    """How likely each fault is at each step.

    Attributes:
        hang: The phone does not answer; after `hang_s` seconds it is given up.
        crash: The phone is gone in the middle of the action.
        offline: The phone is not reached, and the action not made.
        blank: The action is made, but the frame after it is black.
        hang_s: How long a hang lasts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    hang: float = Field(0.0, ge=0.0, le=1.0)
    crash: float = Field(0.0, ge=0.0, le=1.0)
    offline: float = Field(0.0, ge=0.0, le=1.0)
    blank: float = Field(0.0, ge=0.0, le=1.0)
    hang_s: float = Field(30.0, ge=0.0)

    @model_validator(mode="after")
    def _add_up(self) -> Faults:
        total = self.hang + self.crash + self.offline + self.blank
        if total > 1.0:
            raise ValueError(f"hang, crash, offline and blank add up to {total}, which is more than 1")
        return self

    def draw(self, rng: random.Random) -> str:
        """The name of the fault that comes at this step, "" for none."""
        kinds = ("hang", "crash", "offline", "blank")
        weights = [getattr(self, kind) for kind in kinds]
        if not any(weights):
            return ""
        return rng.choices((*kinds, ""), (*weights, max(0.0, 1.0 - sum(weights))))[0]

    def fail(self, kind: str, sleep: Callable[[float], None], act: Callable[[], None]) -> None:
        """What `kind` does to a step; "blank" and "" do nothing here.

        Args:
            kind: As `draw` gave it.
            sleep: Waits for so many seconds.
            act: Makes the action.

        Raises:
            DeviceError: The episode is faulted.
        """
        remedy = "It is injected by env.options.faults."
        if kind == "hang":
            sleep(self.hang_s)
            raise DeviceTimeout(f"the phone did not answer for {self.hang_s:g} s.", remedy)
        if kind == "crash":
            act()
            raise DeviceDisconnected("the phone crashed.", remedy)
        if kind == "offline":
            raise DeviceOffline("the phone is offline.", remedy)


_log = logging.getLogger(__name__)
SIMULATED_DEVICE = "distrl.simulator.device:SimDevice"
"""The phone that tasks run on where no other device is given."""
SIMULATED = "distrl.simulator.tasks.play:SimBackend"
"""Its tasks."""
MAX_DISTANCE = 60
"""The expert rehearses at most so many steps."""
_KEYS = {ActionKind.BACK: Key.BACK, ActionKind.HOME: Key.HOME, ActionKind.ENTER: Key.ENTER}


class TaskBackend(Protocol):
    """What a phone environment must know about tasks.

    A backend may also have: `guard`, a `distrl.workers.devices.guard.Guard` that looks after every action;
    `wait()`, which lets time pass on a device with a time of its own; `has_truth(task)`; `shortfall(task)`;
    and `rehearse()`, a copy of the backend and its phone to act on.
    """

    @property
    def device(self) -> Device:
        """The phone that tasks run on."""

    def prepare(self, task: Task) -> None:
        """Brings the device to the task's start state."""

    def score(self, task: Task) -> float:
        """The task's ground-truth score in [0, 1] now."""

    def expert(self, task: Task) -> Action:
        """What a scripted expert would do now."""


class Latency(BaseModel):
    """How long every action takes.

    Attributes:
        kind: "none", or "lognormal" with median `median_s` and shape `sigma`.
        clock: "real": the wait is slept. "virtual": it is counted only, as if it had been.
        max_s: The longest wait of one action.
        apps: What the wait is multiplied by while an app is in front, by the app's name.
        stragglers: The share of episodes whose phone is slow throughout.
        straggler_factor: What every wait of such an episode is multiplied by.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "lognormal"] = "none"
    clock: Literal["real", "virtual"] = "real"
    median_s: float = Field(0.5, ge=0.0)
    sigma: float = Field(0.5, ge=0.0)
    max_s: float = Field(60.0, ge=0.0)
    apps: dict[str, Annotated[float, Field(gt=0.0, le=100.0)]] = {}
    stragglers: float = Field(0.0, ge=0.0, le=1.0)
    straggler_factor: float = Field(10.0, ge=1.0, le=100.0)

    def episode(self, rng: random.Random) -> float:
        """What every wait of an episode is multiplied by."""
        return self.straggler_factor if self.stragglers and rng.random() < self.stragglers else 1.0

    def draw(self, rng: random.Random, factor: float = 1.0) -> float:
        """Seconds that one action takes, `factor` times as long as usual."""
        if self.kind == "none":
            return 0.0
        return min(self.max_s, factor * self.median_s * math.exp(self.sigma * rng.gauss(0.0, 1.0)))


class PhoneEnv:
    """One phone, driven by actions.

    Args:
        width, height: Screen of the simulated phone in pixels; ignored when a backend is given.
        latency: Fields of `Latency`; None acts at once.
        backend: The tasks and their device; by default a simulated phone. A configuration cannot name one.
        settle: Fields of `Settle`: how to wait for a still screen.
        sleep: Waits for so many seconds.
        faults: Fields of `Faults`: what goes wrong on purpose; None for nothing.

    Raises:
        ConfigError: If `latency`, `settle` or `faults` has an unknown or wrong field.
        ValueError: If `backend` is not one.
    """

    def __init__(
        self,
        width: int = 540,
        height: int = 1200,
        latency: Mapping[str, object] | Latency | None = None,
        backend: TaskBackend | None = None,
        settle: Mapping[str, object] | Settle | None = None,
        sleep: Callable[[float], None] = time.sleep,
        faults: Mapping[str, object] | Faults | None = None,
    ) -> None:
        if backend is not None and not hasattr(backend, "device"):
            raise ValueError(f"backend={backend!r} is not a task backend; leave it out of a configuration")
        if backend is None:
            backend = import_object(SIMULATED)(import_object(SIMULATED_DEVICE)(width, height))
        self._backend: TaskBackend = backend
        self._device = self._backend.device
        self._latency = read_fields(Latency, latency, "latency")
        self._faults = read_fields(Faults, faults, "faults")
        self._slowness = 1.0
        self._episodes = 0
        self._sleep = sleep
        self._settler = Settler(Settle.of(settle), sleep=sleep)
        self._guard: Guard | None = getattr(self._backend, "guard", None)
        self._rng = random.Random(0)
        self._fault_rng = random.Random(0)
        self._task: Task | None = None
        self._warned: set[str] = set()

    def reset(self, task: Task) -> Frame:
        """Starts `task` and shows its first screen."""
        self._backend.prepare(task)
        self._task = task
        self._rng = random.Random(f"latency/{task.seed}/{task.id}")
        self._slowness = self._latency.episode(self._rng)
        # Another try of a task that was faulted need not be.
        self._fault_rng = random.Random(f"faults/{task.seed}/{task.id}/{self._episodes}")
        self._episodes += 1
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """Executes `action` after the latency's wait, and waits until the screen is still.

        The phone itself never ends an episode.

        Raises:
            DeviceError: If the device fails, or a fault is injected.
        """
        self._started()
        counted_s = self._wait()
        fault = self._faults.draw(self._fault_rng)
        self._faults.fail(fault, self._sleep, lambda: self._act(action))
        self._act(action)
        marks = [self._look()]
        # Looked at all the while: a call is not let ring until the screen is still.
        settled = self._settler.wait(self._device, lambda: marks.append(self._look()))
        settle_s = settled.seconds
        if last := self._look():
            marks.append(last)
            settled = self._settler.wait(self._device)
            settle_s += settled.seconds
        screen = settled.screen
        if fault == "blank":
            size = self._device.size
            screen = Screen(lambda: Image.new("RGB", size), None if screen.key is None else ("black", size))
        frame = Frame(screen, self._device.foreground())
        guard = next(filter(None, marks), "")
        return StepResult(frame, settle_s=settle_s, virtual_s=counted_s, guard=guard)

    def _started(self) -> Task:
        if self._task is None:
            raise EnvError("the phone shows no task.", "Reset the environment to a task first.")
        return self._task

    def _wait(self) -> float:
        """Waits as long as the latency says. Returns the seconds that are only counted."""
        factor = self._slowness
        if self._latency.apps:
            factor *= self._latency.apps.get(self._device.foreground(), 1.0)
        seconds = self._latency.draw(self._rng, factor)
        if self._latency.clock == "virtual":
            return seconds
        if seconds > 0:
            self._sleep(seconds)
        return 0.0

    def _look(self) -> str:
        """Has the guard look, if there is one. Returns its mark."""
        return self._guard.check() if self._guard else ""

    def _act(self, action: Action) -> None:
        device, point = self._device, action.point and self._pixel(action.point)
        touches = {
            ActionKind.TAP: device.tap,
            ActionKind.DOUBLE_TAP: device.double_tap,
            ActionKind.LONG_PRESS: device.long_press,
        }
        if action.kind in touches and point:
            touches[action.kind](*point)
        elif action.kind is ActionKind.SWIPE and point and action.to:
            device.swipe(*point, *self._pixel(action.to))
        elif action.kind is ActionKind.TYPE:
            if point:
                device.tap(*point)
                self._settler.wait(device)  # the keyboard comes up
            self._type(action.text)
        elif action.kind in _KEYS:
            device.key(_KEYS[action.kind])
        elif action.kind is ActionKind.OPEN_APP:
            device.open_app(action.text)
        elif action.kind is ActionKind.WAIT and (wait := getattr(self._backend, "wait", None)):
            wait()

    def _type(self, text: str) -> None:
        """Types, if the device can: what the agent came up with is not the device's fault."""
        try:
            self._device.type_text(text)
        except Untypable as error:
            self._warn("nothing was typed", error)

    def _warn(self, what: str, error: Exception) -> None:
        """Warns the first time."""
        _log.log(logging.DEBUG if what in self._warned else logging.WARNING, "%s: %s", what, error)
        self._warned.add(what)

    def _pixel(self, point: tuple[float, float]) -> tuple[int, int]:
        width, height = self._device.size
        return min(width - 1, int(point[0] * width)), min(height - 1, int(point[1] * height))

    def _frame(self) -> Frame:
        screen = self._settler.wait(self._device).screen
        return Frame(screen, self._device.foreground())

    def has_truth(self, task: Task) -> bool:
        """Whether the backend can score `task`; it can, unless it says otherwise."""
        ask = getattr(self._backend, "has_truth", None)
        return ask is None or bool(ask(task))

    def texts(self) -> tuple[str, ...] | None:
        """The texts and content descriptions in the screen's hierarchy, in its order.

        Returns:
            None if the device makes none, as uiautomator does while a screen moves.
        """
        try:
            return texts_of(self._device.hierarchy())
        except OutputInvalid as error:
            self._warn("the texts of a screen are not recorded", error)
            return None

    def evaluate(self) -> float:
        """The task's ground-truth score by the phone's state."""
        return self._backend.score(self._started())

    def shortfall(self) -> str:
        """What the phone's state lacks for the task to be solved; "" too if the backend cannot say."""
        ask = getattr(self._backend, "shortfall", None)
        return "" if ask is None or self._task is None else str(ask(self._task))

    def expert_action(self) -> Action:
        """What the scripted expert would do now; COMPLETE once the task is fulfilled."""
        return self._backend.expert(self._started())

    def distance(self) -> int | None:
        """How many steps the expert would still take before it ends the episode.

        Returns:
            None if the backend cannot rehearse, the task cannot be solved any more, or the expert needs more
            than `MAX_DISTANCE` steps.
        """
        rehearse = getattr(self._backend, "rehearse", None)
        if rehearse is None or self._task is None:
            return None
        rehearsal = PhoneEnv(backend=rehearse())
        rehearsal._task = self._task
        for taken in range(MAX_DISTANCE + 1):
            action = rehearsal.expert_action()
            if action.is_terminal:
                return taken if rehearsal.evaluate() >= 1.0 else None
            rehearsal.step(action)
        return None

    def close(self) -> None:
        """Releases the device."""
        self._device.close()


def texts_of(hierarchy: str) -> tuple[str, ...]:
    """The texts, else the content descriptions, in uiautomator XML. Raises OutputInvalid if it is not XML."""
    try:
        nodes = ElementTree.fromstring(hierarchy).iter("node")
    except ElementTree.ParseError as error:
        raise OutputInvalid(f"the screen's hierarchy is not XML: {error}.", "Look again.") from error
    found = (node.get("text") or node.get("content-desc") or "" for node in nodes)
    return tuple(text for text in found if text)
