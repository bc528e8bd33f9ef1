"""The environment interface: one GUI that an agent looks at and acts on.

An environment is used by one thread at a time. Everything random in an episode comes from `task.seed`. Where
that also chooses what the task asks for, the class says so: `seed_is_instance = True`; see
`distrl.workers.envs.seed_is_instance`.
Failures of the environment itself raise `EnvError`; they never look like a bad action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PIL import Image

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.workers.devices.base import Screen


@dataclass(frozen=True)
class Frame:
    """What the screen shows now.

    Attributes:
        screen: The screen at the device's own resolution.
        app: The app or page in front, "" if unknown.
    """

    screen: Screen
    app: str = ""

    @classmethod
    def of(cls, image: Image.Image, app: str = "") -> Frame:
        """The frame of a screenshot."""
        return cls(Screen.of(image), app)

    @property
    def image(self) -> Image.Image:
        """RGB screenshot."""
        return self.screen.picture()


@dataclass(frozen=True)
class StepResult:
    """What followed from an action.

    Attributes:
        frame: The screen afterwards.
        done: Whether the environment itself ended the episode (e.g. a web task that closes).
        settle_s: Seconds of the step that went into waiting for a still screen.
        virtual_s: Seconds that the step took by a virtual clock, besides those that went by.
        guard: What the device's guard put an end to, "" for nothing.
    """

    frame: Frame
    done: bool = False
    settle_s: float = 0.0
    virtual_s: float = 0.0
    guard: str = ""


class Env(Protocol):
    """One GUI, reset to a task and driven by actions."""

    def reset(self, task: Task) -> Frame:
        """Brings the GUI to the task's start state and returns the first frame."""
        ...

    def step(self, action: Action) -> StepResult:
        """Executes `action`. COMPLETE, IMPOSSIBLE, ANSWER and INVALID leave the GUI as it is.

        WAIT does too, but that time passes: what is loading goes on.
        So does OPEN_APP where there are no apps, or none has that name.
        """
        ...

    def evaluate(self) -> float:
        """The task's ground-truth score in [0, 1] for the GUI's present state."""
        ...

    def expert_action(self) -> Action:
        """What a scripted expert would do now. Raises EnvError when the task has no expert."""
        ...

    def close(self) -> None:
        """Releases the GUI. May be called twice."""
        ...


@runtime_checkable
class MayLackTruth(Protocol):
    """An environment that cannot score every task. Episodes of the others stay unjudged."""

    def has_truth(self, task: Task) -> bool:
        """Whether `evaluate` can score `task`."""
        ...


@runtime_checkable
class TellsShortfall(Protocol):
    """An environment that says why it gives no full score."""

    def shortfall(self) -> str:
        """What the GUI's present state lacks for the task to be solved, in a sentence; "" if nothing."""
        ...


@runtime_checkable
class KnowsDistance(Protocol):
    """An environment that can try out, without a trace, what its scripted expert would do from here."""

    def distance(self) -> int | None:
        """How many steps the expert would still take to full score; None if it is not known or never."""
        ...


@runtime_checkable
class WordsGoals(Protocol):
    """An environment that itself words the instruction of the task that it was reset to."""

    @property
    def goal(self) -> str:
        """What the agent is to do."""
        ...


@runtime_checkable
class TellsTexts(Protocol):
    """An environment that knows what stands on its screen."""

    def texts(self) -> tuple[str, ...] | None:
        """The texts and descriptions of the elements on the screen, from top to bottom.

        Returns:
            None if they cannot be read from this screen: no fault, as episodes do without.
        """
        ...
