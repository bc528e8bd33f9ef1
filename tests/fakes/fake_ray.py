"""Ray as the manager of a launched run sees it: actors are objects of this process, and answer at once."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from distrl.cli.backends.backend import ProcessState
from distrl.cli.backends.roles import Role


class RayError(Exception):
    pass


class ActorDiedError(RayError):
    pass


class FakeProcess:
    """An actor that supervises nothing; what it answers is set by the test.

    Attributes:
        has_room: A node has taken it; if not, it does not answer.
        error: Raised by its calls.
        meeting: What it was told last; of a learner, what it tells.
    """

    def __init__(self, role: Role) -> None:
        self.role, self.state, self.meeting = role, "running", b""
        self.has_room, self.error, self.metrics = True, None, dict[str, float]()
        self.beat = SimpleNamespace(remote=lambda *given: (self, self._beat, given))
        self.log = SimpleNamespace(remote=lambda *given: (self, self._log, given))
        self.stop = SimpleNamespace(remote=self._stop)

    def _beat(self, meeting: bytes) -> tuple[ProcessState, bytes, dict[str, float]]:
        if self.role.kind != "learner":
            self.meeting = meeting
        state = ProcessState(name=self.role.name, state=self.state, where="node")  # type: ignore[arg-type]
        return state, self.meeting, self.metrics

    def _stop(self) -> None:
        self.state = "stopped"

    def _log(self, since: int) -> tuple[str, int]:
        return f"the log of {self.role.name}\n", 10


class FakeRay(types.ModuleType):
    """The module; `processes` are the actors by the names of their roles, with those that were killed."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError, ActorDiedError=ActorDiedError)
        self.processes: dict[str, FakeProcess] = {}
        self.killed: list[str] = []
        self.full = False  # no node has room for further actors
        self.is_restarted = False
        self.util = SimpleNamespace(
            list_named_actors=lambda all_namespaces: [{"name": f"run/{name}"} for name in self.processes],
            get_node_ip_address=lambda: "10.0.0.5",
        )

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(was_current_actor_reconstructed=self.is_restarted)

    def remote(self, kind: type) -> Any:
        def make(folder: object, role: Role, *_: object) -> FakeProcess:
            if role.name not in self.processes or role.name in self.killed:
                self.processes[role.name] = FakeProcess(role)
                self.processes[role.name].has_room = not self.full
            return self.processes[role.name]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=make))

    def wait(self, calls: Sequence[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return [call for call in calls if call[0].has_room], []

    def get(self, call: tuple[FakeProcess, Callable[..., Any], Sequence[Any]], timeout: float = 0.0) -> Any:
        process, function, given = call
        if process.error is not None:
            raise process.error
        return function(*given)

    def kill(self, process: FakeProcess) -> None:
        self.killed.append(process.role.name)
