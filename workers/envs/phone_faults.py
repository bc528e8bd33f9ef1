"""Faults of a phone on purpose: it hangs, crashes, goes offline, or shows a black screen, by chance.

They are for trying out what a run does about them. `distrl sim-host` has faults of its own, below adb.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator

from distrl.workers.devices.device import Screen
from distrl.workers.devices.errors import DeviceDisconnected, DeviceOffline, DeviceTimeout


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


def black(screen: Screen, size: tuple[int, int]) -> Screen:
    """A black screen in place of `screen`.

    Args:
        size: Width and height in pixels.
    """
    return Screen(lambda: Image.new("RGB", size), None if screen.key is None else ("black", size))
