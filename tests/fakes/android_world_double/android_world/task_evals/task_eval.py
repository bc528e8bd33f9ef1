"""TaskEval with the real one's order: initialized once, scored only then, torn down at the end."""

from __future__ import annotations

import random
from typing import Any


class TaskEval:
    template = ""
    complexity: float = 1.0
    start_on_home_screen = True

    def __init__(self, params: dict[str, Any]) -> None:
        self.initialized = False
        self._params = params

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def params(self) -> dict[str, Any]:
        return self._params

    @property
    def goal(self) -> str:
        return self.template.format(**self.params)

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def set_device_time(cls, env: Any) -> None:
        del env

    def initialize_task(self, env: Any) -> None:
        env.interaction_cache = ""
        env.controller.env.log(f"initialize {self.name}")
        if self.initialized:
            raise RuntimeError(f"{self.name}.initialize_task() is already called.")
        self.initialized = True
        if self.params.get("seed") is not None:
            random.seed(self.params["seed"])

    def is_successful(self, env: Any) -> float:
        env.controller.env.log(f"is_successful {self.name}")
        if not self.initialized:
            raise RuntimeError(
                f"{self.name}.initialize_task() must be called before {self.name}.is_successful()."
            )
        return 1.0

    def tear_down(self, env: Any) -> None:
        env.controller.env.log(f"tear_down {self.name}")
        self.initialized = False
