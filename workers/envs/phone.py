"""A phone as an environment: acts and looks through a `Device`, and leaves the task to a backend.

The device may be simulated or real; the backend starts a task on it, scores it by its state, and says what a
scripted expert would do. `Latency` adds waits on purpose.
"""

from __future__ import annotations

import logging
import math
import random
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, Protocol
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, Field

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.importing import import_object
from distrl.core.packing import MAX_ELEMENT_TEXT, MAX_ELEMENTS
from distrl.core.types import Element, Flag, Task
from distrl.core.user_errors import read_fields
from distrl.workers.devices.device import Device, Key
from distrl.workers.devices.errors import OutputInvalid, Untypable
from distrl.workers.devices.screen import Settle, wait_settled
from distrl.workers.envs.base import Frame, StepResult

if TYPE_CHECKING:
    from distrl.workers.devices.guard import Guard


_log = logging.getLogger(__name__)
SIMULATED_DEVICE = "distrl.simulator.device:SimDevice"  # where no other device is given
SIMULATED = "distrl.simulator.tasks.play:SimBackend"  # its tasks
MAX_DISTANCE = 60  # the expert rehearses at most so many steps
SCREENS = 256  # screens whose elements are kept; one of 100 elements takes about 0.1 MB
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
    """How long every action takes: lognormal with median `median_s` and shape `sigma`, at most `max_s`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "lognormal"] = "none"
    median_s: float = Field(0.5, ge=0.0)
    sigma: float = Field(0.5, ge=0.0)
    max_s: float = Field(60.0, ge=0.0)

    def draw(self, rng: random.Random) -> float:
        if self.kind == "none":
            return 0.0
        return min(self.max_s, self.median_s * math.exp(self.sigma * rng.gauss(0.0, 1.0)))


class PhoneEnv:
    """One phone, driven by actions.

    Args:
        width, height: Screen of the simulated phone in pixels; ignored when a backend is given.
        latency, settle: Fields of `Latency` and of `Settle`: how to wait for a still screen.
        backend: The tasks and their device; by default a simulated phone. A configuration cannot name one.
    """

    def __init__(
        self,
        width: int = 540,
        height: int = 1200,
        latency: Mapping[str, object] | Latency | None = None,
        backend: TaskBackend | None = None,
        settle: Mapping[str, object] | Settle | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if backend is not None and not hasattr(backend, "device"):
            raise ValueError(f"backend={backend!r} is not a task backend; leave it out of a configuration")
        if backend is None:
            backend = import_object(SIMULATED)(import_object(SIMULATED_DEVICE)(width, height))
        self._backend: TaskBackend = backend
        self._device = self._backend.device
        self._latency = read_fields(Latency, latency, "latency")
        self._sleep = sleep
        self._settle = partial(wait_settled, options=read_fields(Settle, settle, "settle"), sleep=sleep)
        self._guard: Guard | None = getattr(self._backend, "guard", None)
        self._rng = random.Random(0)
        self._task: Task | None = None
        self._warned: set[str] = set()

    def reset(self, task: Task) -> Frame:
        self._backend.prepare(task)
        self._task = task
        self._rng = random.Random(f"latency/{task.seed}/{task.id}")
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """Executes `action` after the latency's wait, and waits until the screen is still."""
        self._started()
        if seconds := self._latency.draw(self._rng):
            self._sleep(seconds)
        self._act(action)
        stopped = [self._look()]
        # Looked at all the while: a call is not let ring until the screen is still.
        settled = self._settle(self._device, meanwhile=lambda: stopped.append(self._look()))
        settle_s = settled.seconds
        if last := self._look():
            stopped.append(last)
            settled = self._settle(self._device)
            settle_s += settled.seconds
        frame = Frame(settled.screen, self._device.foreground())
        guard = next(filter(None, stopped), "")
        return StepResult(frame, settle_s=settle_s, guard=guard)

    def _started(self) -> Task:
        if self._task is None:
            raise EnvError("the phone shows no task.", "Reset the environment to a task first.")
        return self._task

    def _look(self) -> str:
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
                self._settle(device)  # the keyboard comes up
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
        _log.log(logging.DEBUG if what in self._warned else logging.WARNING, "%s: %s", what, error)
        self._warned.add(what)

    def _pixel(self, point: tuple[float, float]) -> tuple[int, int]:
        width, height = self._device.size
        return min(width - 1, int(point[0] * width)), min(height - 1, int(point[1] * height))

    def _frame(self) -> Frame:
        screen = self._settle(self._device).screen
        return Frame(screen, self._device.foreground())

    def has_truth(self, task: Task) -> bool:
        """Whether the backend can score `task`; it can, unless it says otherwise."""
        ask = getattr(self._backend, "has_truth", None)
        return ask is None or bool(ask(task))

    def elements(self) -> tuple[Element, ...] | None:
        """The screen's elements; None if the device lists none, as uiautomator while a screen moves."""
        try:
            return elements_of(self._device.hierarchy(), self._device.size)
        except OutputInvalid as error:
            self._warn("the elements of a screen are not recorded", error)
            return None

    def evaluate(self) -> float:
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

        None if the backend cannot rehearse, or the expert needs too many steps or ends without full score:
        it does not undo what else was changed, even where that is possible.
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
        self._device.close()


_FLAGS: dict[str, Flag] = {
    "checked": "checked",
    "selected": "selected",
    "focused": "focused",
    "clickable": "clickable",
    "long-clickable": "long_clickable",
    "scrollable": "scrollable",
}
"""The attributes of uiautomator that are flags of an element."""
_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")


@lru_cache(SCREENS)
def elements_of(hierarchy: str, size: tuple[int, int]) -> tuple[Element, ...]:
    """The elements in uiautomator XML that are visible and say something or can be acted on, in its order.

    `size` is width and height of the screen in pixels. Raises OutputInvalid if it is not XML.
    """
    try:
        root = ElementTree.fromstring(hierarchy)
    except ElementTree.ParseError as error:
        raise OutputInvalid(f"the screen's hierarchy is not XML: {error}.", "Look again.") from error
    found: list[Element] = []
    waiting = [(root, -1)]
    while waiting and len(found) < MAX_ELEMENTS:
        node, parent = waiting.pop()
        element = element_of(node.attrib, size, parent)
        if element is not None:
            parent = len(found)
            found.append(element)
        waiting += [(child, parent) for child in reversed(node)]
    return tuple(found)


def element_of(node: Mapping[str, str], size: tuple[int, int], parent: int = -1) -> Element | None:
    """The element with these attributes of uiautomator.

    None if it has no text, no state and no use, or no place on the screen.
    """
    bounds = _BOUNDS.fullmatch(node.get("bounds", ""))
    if bounds is None:
        return None
    text, description = node.get("text", ""), node.get("content-desc", "")
    class_name = node.get("class", "").rpartition(".")[2]
    flags = [flag for name, flag in _FLAGS.items() if node.get(name) == "true"]
    if node.get("checkable") == "true" and "checked" not in flags:
        flags.append("unchecked")
    if class_name.endswith(("EditText", "AutoCompleteTextView")):
        flags.append("editable")
    if not (text or description or flags):
        return None
    if node.get("enabled") == "false":
        flags.append("disabled")
    shares = (int(edge) / size[place % 2] for place, edge in enumerate(bounds.groups()))
    left, top, right, bottom = (round(min(1.0, max(0.0, share)), 4) for share in shares)
    if left >= right or top >= bottom:
        return None
    return Element(
        text=text[:MAX_ELEMENT_TEXT],
        description=description[:MAX_ELEMENT_TEXT],
        bounds=(left, top, right, bottom),
        class_name=class_name[:MAX_ELEMENT_TEXT],
        resource_id=node.get("resource-id", "").rpartition("/")[2][:MAX_ELEMENT_TEXT],
        flags=tuple(flags),
        parent=parent,
    )
