"""The counting environment, one of whose episodes can be held until its process is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from counting_env import CountingEnv

from distrl.core.errors import EnvError
from distrl.core.types import Task
from distrl.workers.envs.base import Frame

LIMIT_S = 300.0


class HeldEnv(CountingEnv):
    """While `directory` has a file "armed", the first training task to start removes it, writes "held" (its
    process and its task), and does not go on.

    Args:
        directory: Of these files.
    """

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = Path(directory)

    def reset(self, task: Task) -> Frame:
        if task.split == "train" and self._takes_the_hold():
            text = f"{os.getpid()} {task.id}"
            (self._directory / "held.new").write_text(text)
            (self._directory / "held.new").replace(self._directory / "held")
            time.sleep(LIMIT_S)  # the test kills this process; nothing else ends the wait before its limit
            raise EnvError("nobody killed this process.")
        return super().reset(task)

    def _takes_the_hold(self) -> bool:
        try:
            (self._directory / "armed").unlink()
        except FileNotFoundError:
            return False
        return True
