"""A learner that only schedules a list of leases, and an inference server that counts, on real sockets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from counting_env import COMPLETE, TAP

from distrl.configs.schema import Config
from distrl.core.messages import ActReply, ActRequest, Lease
from distrl.core.security import Client
from distrl.core.service import Service
from distrl.core.sockets import Poller, Received, Waker, Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Completion, Trajectory
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.client import LearnerLink

ANY = Endpoints("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")


class ListScheduler:
    """Grants a list of leases in order; one that ended by a fault or was given back is granted again."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        self._open = list(leases)
        self._all = {lease.id: lease for lease in leases}
        self.finished: list[Trajectory] = []

    def grant(self, worker: str, count: int, limit: int, client: Client | None) -> Sequence[Lease]:
        granted, self._open = self._open[:count], self._open[count:]
        return granted

    def renew(self, worker: str, lease_ids: Sequence[str]) -> None:
        pass

    def release(self, worker: str, lease_ids: Sequence[str]) -> None:
        self._open += [self._all[one] for one in lease_ids if one in self._all]

    def check(self, trajectory: Trajectory) -> str:
        return ""

    def finish(self, trajectory: Trajectory) -> None:
        self.finished.append(trajectory)
        if trajectory.fault.value != "none":
            self._open.append(self._all[trajectory.lease_id])

    def lose(self, trajectory: Trajectory) -> None:
        pass

    def tick(self) -> None:
        pass


class SmallLearner:
    """A real LearnerServer with a store in `directory`."""

    def __init__(self, leases: Sequence[Lease], directory: Path, endpoints: Endpoints = ANY) -> None:
        self.store = TrajectoryStore(directory / "store.sqlite3")
        self.scheduler = ListScheduler(leases)
        self.ingested: queue.Queue[Trajectory] = queue.Queue(1000)
        self.server = LearnerServer(
            endpoints, None, self.store, self.scheduler, self.ingested, run_id="run-1", heartbeat_s=0.5
        )
        self.endpoints = self.server.endpoints

    def __enter__(self) -> SmallLearner:
        self.server.start()
        self.server.set_phase("training")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.close()
        self.store.close()

    def collect(self, count: int, timeout_s: float = 60.0) -> list[Trajectory]:
        """The next `count` trajectories."""
        return [self.ingested.get(timeout=timeout_s) for _ in range(count)]

    def config(self, **sections: object) -> Config:
        """A configuration that finds this learner."""
        network = {"control": self.endpoints.control, "broadcast": self.endpoints.broadcast}
        env = {"import_path": "counting_env:CountingEnv"}
        return Config.model_validate({"network": network, "env": env, **sections})


class CountingServer:
    """Answers act requests rightly, by the step that the prompt names, and says so to the learner."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._wire = Wire()
        channel = self._wire.bind_router("tcp://127.0.0.1:*")
        self.num_answers = 0
        self._service = Service(channel, self._answer)
        self._waker, self._stopping = Waker(), threading.Event()
        self._link = LearnerLink(
            self._wire,
            endpoints.control,
            endpoints.broadcast,
            "inference",
            "counting",
            act_endpoint=channel.endpoint,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        agent = AutoUIAgent()
        self._texts = [agent.format(action) for action in (TAP, TAP, TAP, COMPLETE)]

    def __enter__(self) -> CountingServer:
        self._link.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._waker.wake()
        self._thread.join(5.0)
        self._link.close()
        self._wire.close()
        self._waker.close()

    def _run(self) -> None:
        poller = Poller([self._service.channel], self._waker)
        while not self._stopping.is_set():
            poller.wait(0.2)
            self._service.pump()

    def _answer(self, received: Received) -> None:
        request = received.message
        assert isinstance(request, ActRequest)
        step = int(request.messages[0].parts[1].model_dump()["text"].split()[1])
        completion = Completion(
            text=self._texts[min(step, 3)], token_ids=(1,), logprobs=(-0.5,), weight_versions=(4,)
        )
        self.num_answers += 1
        self._service.reply(received.peer, ActReply(id=request.id, completion=completion))
