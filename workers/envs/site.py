"""The site interface: a family of web tasks that `distrl.workers.envs.browser.BrowserEnv` can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.workers.envs.chromium import Chromium


@dataclass(frozen=True)
class Verdict:
    """What the page says about the episode: whether it ended it, and the score in [0, 1] so far."""

    done: bool
    score: float


class Site(Protocol):
    """A family of web tasks.

    Attributes:
        size: Width and height of the page in CSS pixels.
    """

    size: tuple[int, int]

    def begin(self, browser: Chromium, task: Task) -> None:
        """Brings the page to the task's start state, the same for the same task whatever was shown before.

        Raises:
            TaskError: The site has no such task.
        """
        ...

    def verdict(self, browser: Chromium) -> Verdict:
        """Asks the page about the episode."""
        ...

    def expert(self, browser: Chromium, task: Task) -> Action:
        """The next action of a scripted expert. Raises EnvError when it has none."""
        ...
