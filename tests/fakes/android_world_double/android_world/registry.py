"""A registry of a few tasks: some to solve, some that fail in each of the ways a task can fail."""

from __future__ import annotations

import random
from typing import Any

from android_world.task_evals.task_eval import TaskEval


class CounterReach(TaskEval):
    """Solved by as many clicks as the goal says."""

    template = "Tap the counter {times} times for {who}."
    complexity = 1.25

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        return {"times": random.randint(1, 3), "who": random.choice(sorted({"Ann", "Ben", "Cleo", "Dan"}))}

    def initialize_task(self, env: Any) -> None:
        super().initialize_task(env)
        env.controller.env.phone = {"app": "counter", "count": 0}

    def is_successful(self, env: Any) -> float:
        super().is_successful(env)
        return 1.0 if env.controller.env.phone["count"] == self.params["times"] else 0.0

    def tear_down(self, env: Any) -> None:
        super().tear_down(env)
        env.controller.env.phone = {"app": "launcher", "count": 0}


class AskDay(TaskEval):
    """As the information-retrieval tasks: words its date when initialized, and is solved by an answer."""

    template = "What is on {day}?"
    complexity = 0.55
    start_on_home_screen = False

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        return {"day": f"October {random.randint(16, 21)} 2023"}

    def initialize_task(self, env: Any) -> None:
        super().initialize_task(env)
        self.params["day"] = random.choice(["tomorrow", "the day after tomorrow"])

    def is_successful(self, env: Any) -> float:
        super().is_successful(env)
        return float(env.interaction_cache == "Dentist")


class Wordless(TaskEval):
    """As MiniWoB's: has no goal before it is initialized."""

    @property
    def goal(self) -> str:
        if not self.initialized:
            raise ValueError("must be initialized before the goal can be retrieved.")
        return "Follow the screen."

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        return {}


class FailsToStart(CounterReach):
    def initialize_task(self, env: Any) -> None:
        super().initialize_task(env)
        raise RuntimeError("the app is not installed")


class FailsToScore(CounterReach):
    def is_successful(self, env: Any) -> float:
        raise KeyError("no such table")


class FailsToEnd(CounterReach):
    def tear_down(self, env: Any) -> None:
        super().tear_down(env)
        raise RuntimeError("the snapshot is gone")


class TaskRegistry:
    ANDROID_WORLD_FAMILY = "android_world"
    _TASKS = (CounterReach, AskDay, Wordless, FailsToStart, FailsToScore, FailsToEnd)

    def get_registry(self, family: str) -> dict[str, type[TaskEval]]:
        if family != self.ANDROID_WORLD_FAMILY:
            raise ValueError(f"Unsupported family: {family}")
        return {task.__name__: task for task in self._TASKS}
