"""AndroidWorld without emulators: the package's double, its tasks, and what happened on each emulator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from distrl.core.types import Task
from distrl.workers.envs.android_world import WorldProcess
from distrl.workers.envs.android_world_child import instance_seed

DOUBLE = Path(__file__).with_name("android_world_double")


class Emulators:
    """The double's emulators: a directory that says what happened on each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "running").touch()

    def events(self, console: int = 5554) -> list[str]:
        path = self.folder / f"events-{console}.txt"
        return path.read_text().splitlines() if path.exists() else []


def described(*names: str, seeds: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
    process = WorldProcess()
    try:
        return list(
            process.call("describe", family="android_world", names=list(names), seeds=list(seeds))["tasks"]
        )
    finally:
        process.close()


def task(name: str, goal: str = "", seed: int = 0, **changes: Any) -> Task:
    fields = {
        "id": f"androidworld/{name}/train/{seed}",
        "suite": "androidworld",
        "template": name,
        "split": "train",
        "goal": goal or "?",
        "params": {"task": name, "family": "android_world"},
        "seed": instance_seed(seed, name),
        "max_steps": 5,
    }
    return Task.model_validate({**fields, **changes})


def counter(seed: int = 0) -> Task:
    """A task to tap as often as the goal says; the goal as the double's parameters make it."""
    rng = random.Random(instance_seed(seed, "CounterReach"))
    times, who = rng.randint(1, 3), rng.choice(["Ann", "Ben", "Cleo", "Dan"])
    return task("CounterReach", f"Tap the counter {times} times for {who}.", seed)


def times(of: Task) -> int:
    return int(of.goal.split()[3])
