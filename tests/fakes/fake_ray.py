"""Ray as the actors of a launched run see it: they are objects of this process, made when they are placed."""

from __future__ import annotations

import types
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class FakeRay(types.ModuleType):
    """The module.

    Attributes:
        placed: By name the actors that were made, with what they were given, unless they were killed.
        run: The actor by the name of the run; calls of it answer at once, or fail while it is None.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.placed: dict[str, tuple[Any, ...]] = {}
        self.run: Any = None
        self.is_restarted = False
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.5")

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(was_current_actor_reconstructed=self.is_restarted)

    def remote(self, kind: type) -> Any:
        def options(name: str, **_: Any) -> Any:
            def make(*given: Any) -> str:
                self.placed.setdefault(name, given)
                return name

            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def get_actor(self, name: str, namespace: str) -> Any:
        return SimpleNamespace(report=SimpleNamespace(remote=lambda *given: given))

    def get(self, given: tuple[Any, ...], timeout: float) -> Any:
        if self.run is None:
            raise RayError("unavailable")
        return self.run.report(*given)

    def kill(self, name: str) -> None:
        del self.placed[name]
