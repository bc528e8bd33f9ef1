"""The environment interface: one GUI that an agent looks at and acts on.

An environment is used by one thread at a time. Everything random in an episode comes from `task.seed`. Where
that also determines what the task asks for, the class declares it: `seed_is_instance = True`; see
`distrl.workers.envs.seed_is_instance`. Where results depend on a simulator's version, a static method
`simulator` returns it for evaluations.
Failures of the environment itself raise `EnvError`; they are never reported as an invalid action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PIL import Image

from distrl.core.actions import Action
from distrl.core.types import Element, Task
from distrl.workers.devices.device import Screen


@dataclass(frozen=True)
class Frame:
    """What the screen shows now, at the device's resolution, and the app or page in front, "" if unknown.

    `state` is what an arm measures of itself; see `Observation.state`.
    """

    screen: Screen
    app: str = ""
    state: tuple[float, ...] = ()

    @classmethod
    def of(cls, image: Image.Image, app: str = "", state: tuple[float, ...] = ()) -> Frame:
        return cls(Screen.of(image), app, state)

    @property
    def image(self) -> Image.Image:
        """RGB screenshot."""
        return self.screen.picture()


@dataclass(frozen=True)
class StepResult:
    """The screen after an action.

    Attributes:
        done: Whether the environment itself ended the episode (e.g. a web task that closes).
        truncated: Whether the environment's own limit of time or steps ended it.
        settle_s: Seconds of the step that went into waiting for a still screen.
        guard: What the device's guard stopped, "" for nothing.
    """

    frame: Frame
    done: bool = False
    truncated: bool = False
    settle_s: float = 0.0
    guard: str = ""


class Env(Protocol):
    """One GUI, reset to a task and driven by actions."""

    def reset(self, task: Task) -> Frame:
        """Brings the GUI to the task's start state and returns the first frame."""

    def step(self, action: Action) -> StepResult:
        """Executes `action`. COMPLETE, IMPOSSIBLE, ANSWER and INVALID leave the GUI as it is.

        WAIT does too, except that time passes, so loading continues. OPEN_APP does too where there are no
        apps, or no app has that name. MOTION does too where there is no arm.
        """

    def evaluate(self) -> float:
        """The task's ground-truth score in [0, 1] for the GUI's present state."""

    def expert_action(self) -> Action:
        """What a scripted expert would do now. Raises EnvError when the task has no expert."""

    def close(self) -> None:
        """Releases the GUI. It may be called twice."""


@runtime_checkable
class PartialGroundTruth(Protocol):
    """An environment that can score only some tasks. Episodes of other tasks stay unjudged."""

    def has_truth(self, task: Task) -> bool:
        """Whether `evaluate` can score `task`."""


@runtime_checkable
class ExplainsFailure(Protocol):
    """An environment that explains why an episode did not get the full score."""

    def shortfall(self) -> str:
        """What the GUI's present state lacks for the task to be solved, in one sentence; "" if nothing."""


@runtime_checkable
class ExpertDistance(Protocol):
    """An environment that can compute, without side effects, how far its scripted expert is from the goal."""

    def distance(self) -> int | None:
        """The steps the expert would still need for the full score; None if unknown or unreachable."""


@runtime_checkable
class ProvidesGoal(Protocol):
    """An environment that supplies the instruction of the task that it was reset to."""

    @property
    def goal(self) -> str:
        """What the agent is to do."""


@runtime_checkable
class HasElements(Protocol):
    """An environment that can list the elements on its screen."""

    def elements(self) -> tuple[Element, ...] | None:
        """The visible elements that have a text or a state or can be acted on, in the screen's order.

        Returns:
            None if this screen cannot be read. That is not a fault: the episode continues without elements.
        """
