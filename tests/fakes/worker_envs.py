"""Environments that misbehave on purpose. What they do is set, and seen, on the classes."""

from __future__ import annotations

import threading

from counting_env import CountingEnv

from distrl.core.actions import Action
from distrl.core.errors import EnvError
from distrl.core.types import Task
from distrl.workers.envs.base import Frame, StepResult

DEADLINE_S = 20.0


class GatedEnv(CountingEnv):
    """Tasks that end in "/0" do not start before `gate` is set."""

    gate = threading.Event()

    def reset(self, task: Task) -> Frame:
        if task.id.endswith("/0"):
            assert self.gate.wait(DEADLINE_S), "the gate was never opened"
        return super().reset(task)


class FlakyEnv(CountingEnv):
    """The first one does not start, the second one breaks in its second step, the third one works."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        type(self).made += 1
        if self.made == 1:
            raise EnvError("the emulator is not there.")
        super().__init__(fail_at=2 if self.made == 2 else None)

    def close(self) -> None:
        type(self).closed += 1


class StuckEnv(CountingEnv):
    """A step takes until `release` is set; `entered` tells that one began."""

    entered = threading.Event()
    release = threading.Event()

    def step(self, action: Action) -> StepResult:
        self.entered.set()
        assert self.release.wait(DEADLINE_S), "never released"
        return super().step(action)


class BrokenEnv(CountingEnv):
    """Has a bug."""

    def step(self, action: Action) -> StepResult:
        raise ZeroDivisionError("a bug")


class SlowEnv(CountingEnv):
    """Notes, in place of a wait, how long each action should take."""

    waited: list[float] = []

    def __init__(self, latency: float = 0.0) -> None:
        super().__init__()
        self.latency = latency

    def step(self, action: Action) -> StepResult:
        self.waited.append(self.latency)
        return super().step(action)
