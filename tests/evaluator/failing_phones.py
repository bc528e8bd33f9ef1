"""Phones that are not there, or not for long. What they do is counted on the classes; `begin` counts anew."""

from __future__ import annotations

import threading
from typing import ClassVar

from counting_phone import CountingEnv

from distrl.core.errors import EnvError
from distrl.core.types import Task
from distrl.workers.envs.base import Frame

DEADLINE_S = 20.0


class OnePhone(CountingEnv):
    """Whoever comes first has it; its first episode waits until another slot has been refused three times."""

    made: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()
    refused: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def begin(cls) -> None:
        cls.made, cls.refused = 0, threading.Event()

    def __init__(self) -> None:
        with self.lock:
            OnePhone.made += 1
            is_first, is_enough = self.made == 1, self.made == 4
        if is_enough:
            self.refused.set()
        if not is_first:
            raise EnvError("the only phone is in use", fault="device")
        super().__init__()

    def reset(self, task: Task) -> Frame:
        assert self.refused.wait(DEADLINE_S), "nobody else wanted the phone"
        return super().reset(task)


class DyingPhone(CountingEnv):
    """The first of two breaks as its episode starts and is never seen again; the other waits for that."""

    made: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()
    died: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def begin(cls) -> None:
        cls.made, cls.died = 0, threading.Event()

    def __init__(self) -> None:
        with self.lock:
            DyingPhone.made += 1
            self.number = self.made
        if self.number > 2:
            raise EnvError("the phone cannot be attached to", fault="device")
        super().__init__()

    def reset(self, task: Task) -> Frame:
        if self.number == 1:
            self.died.set()
            raise EnvError("the phone is gone", fault="device")
        assert self.died.wait(DEADLINE_S), "the other phone did not die"
        return super().reset(task)


class LatePhone(CountingEnv):
    """Starts the third time."""

    made: ClassVar[int] = 0

    @classmethod
    def begin(cls) -> None:
        cls.made = 0

    def __init__(self) -> None:
        LatePhone.made += 1
        if self.made < 3:
            raise EnvError("the phone still boots", fault="device")
        super().__init__()
