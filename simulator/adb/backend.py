"""The simulated phone's tasks when the phone is behind adb: its own command gives and takes its state.

`cmd simphone load` takes the start state as JSON; `cmd simphone dump` prints the present one, from which
ground truth and expert are worked out here exactly as for a phone in this process.
"""

from __future__ import annotations

import json

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.simulator.phone.nodes import WIDTH
from distrl.simulator.phone.phone import Phone
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import play as tasks
from distrl.workers.devices.adb_device import AdbDevice
from distrl.workers.devices.errors import OutputInvalid

STATE_S = 10.0
"""Longest time to give the phone a state or to ask for it."""


class AdbSimBackend:
    """Tasks on one simulated phone behind adb."""

    def __init__(self, device: AdbDevice) -> None:
        self.device = device

    def prepare(self, task: Task) -> None:
        """Puts the phone into the task's start state."""
        state = tasks.start_state(task.template, task.params, task.seed)
        data = json.dumps(state, separators=(",", ":")).encode("ascii")
        # To give the same state twice is to give it once: this may be repeated.
        self.device.client.check("cmd simphone load", STATE_S, reads=True, stdin=data)

    def score(self, task: Task) -> float:
        """1 when the phone's state solves the task, else 0."""
        return float(not self.shortfall(task))

    def shortfall(self, task: Task) -> str:
        """What the phone's state lacks for the task to be solved, "" if nothing."""
        return tasks.shortfall(task.template, task.params, self._state())

    def wait(self) -> None:
        """Lets the phone's time pass, if something on it takes time."""
        self.device.client.check("cmd simphone wait", STATE_S)

    def expert(self, task: Task) -> Action:
        """What the scripted expert does now."""
        width, height = self.device.size
        return tasks.expert(task.template, task.params, Phone(self._state(), height * WIDTH / width))

    def _state(self) -> State:
        said = self.device.client.check("cmd simphone dump", STATE_S, reads=True)
        try:
            state: State = json.loads(said.out)
        except ValueError as error:
            raise OutputInvalid(
                f"`cmd simphone dump` printed no JSON ({error}).",
                "Is the phone of the same version as this program?",
                serial=self.device.serial,
                evidence=said.said[:300],
            ) from error
        return state
