"""The simulated phone's side of a task: start state, ground truth and expert, for `PhoneEnv`."""

from __future__ import annotations

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.simulator.device import SimDevice
from distrl.simulator.tasks import play as tasks


class SimBackend:
    """Tasks on one `SimDevice`.

    Args:
        device: The phone that the environment acts on.
    """

    def __init__(self, device: SimDevice) -> None:
        self.device = device

    def prepare(self, task: Task) -> None:
        """Puts the phone into the task's start state."""
        self.device.load(tasks.start_state(task.template, task.params, task.seed))

    def score(self, task: Task) -> float:
        """1 when the phone's state solves the task, else 0."""
        return float(not self.shortfall(task))

    def shortfall(self, task: Task) -> str:
        """What the phone's state lacks for the task to be solved, "" if nothing."""
        return tasks.shortfall(task.template, task.params, self.device.phone.state)

    def rehearse(self) -> SimBackend:
        """The same phone a second time: what is done on it leaves this one alone."""
        copy = SimDevice(*self.device.size)
        copy.phone.load(self.device.phone.dump())
        return SimBackend(copy)

    def wait(self) -> None:
        """Lets the phone's time pass, if something on it takes time."""
        self.device.phone.wait()

    def expert(self, task: Task) -> Action:
        """What the scripted expert does now."""
        return tasks.expert(task.template, task.params, self.device.phone)
