"""What a learner is made of, and where it stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from distrl.configs.schema import Config
from distrl.core.errors import CheckpointError, NothingCameIn
from distrl.core.messages import WeightInfo
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL, MetricsWriter
from distrl.core.policies import weights_io
from distrl.core.store import TrajectoryStore
from distrl.core.weights import Buffer
from distrl.learner import old_values
from distrl.learner.batching import Batcher
from distrl.learner.checkpoint import Checkpointer
from distrl.learner.engine import Engine
from distrl.learner.ingest import Ingest
from distrl.learner.mismatch_alarm import Usual, sources
from distrl.learner.publish import Publisher
from distrl.learner.renaming import Renaming
from distrl.learner.replay import Replay
from distrl.learner.scheduler import TaskScheduler

PEERS_S = 10.0  # how often the metrics of workers and inference servers are written
SILENCE_S = 3600.0
"""How long the learner waits for an episode without which it cannot begin."""


class Server(Protocol):
    """What the training thread needs of `LearnerServer`."""

    def check(self) -> None:
        """Raises what ended the network thread."""
        ...

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers new weights."""
        ...

    def set_phase(self, phase: str) -> None:
        """Announces a phase."""
        ...

    def peer_metrics(self) -> dict[str, float]:
        """Numbers of the workers and inference servers; rates are means since the last call."""
        ...

    def set_metrics(self, metrics: dict[str, float]) -> None:
        """Sets the metrics of the next broadcast."""
        ...

    def shutdown(self, reason: str) -> None:
        """Tells everybody to stop."""
        ...


@dataclass
class Progress:
    """Counters that a checkpoint keeps.

    Attributes:
        updates: Policy updates made.
        is_warm: Whether the warm start (cloning) is done.
        critic_is_warm: Whether the critic's warm-up is done.
        elapsed_s: Seconds that earlier processes spent on this run.
        online_s: Those of them that count towards `learner.max_minutes`.
    """

    updates: int = 0
    is_warm: bool = False
    critic_is_warm: bool = False
    elapsed_s: float = 0.0
    online_s: float = 0.0


@dataclass
class Parts:
    """Everything that the learner is made of.

    Attributes:
        usual_mismatch: The train–inference mismatch that is usual in this run.
        has_arrivals: Whether a trajectory has come in since this process began.
    """

    config: Config
    server: Server
    store: TrajectoryStore
    scheduler: TaskScheduler
    replay: Replay
    ingest: Ingest
    batcher: Batcher
    engine: Engine
    publisher: Publisher
    checkpointer: Checkpointer
    metrics: MetricsWriter
    rng: np.random.Generator
    renaming: Renaming
    progress: Progress = field(default_factory=Progress)
    clock: Callable[[], float] = time.monotonic
    usual_mismatch: Usual = field(init=False)
    _at_work_since: float | None = field(init=False, default=None)
    _online_since: float | None = field(init=False, default=None)
    has_arrivals: bool = field(init=False, default=False)
    _arrived_at: float = field(init=False)
    _peers_due: float = field(init=False)
    _newest: dict[str, float] = field(init=False, default_factory=dict)
    _published_at: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self._arrived_at = self.clock()
        self._peers_due = self._arrived_at + PEERS_S
        self.usual_mismatch = Usual(sources=sources(self.config, self.engine.policy))

    def start_clock(self) -> None:
        """The run's time begins, or goes on after a restart. Again is harmless."""
        if self._at_work_since is None:
            self._at_work_since = self.clock()
            self._peers_due = self._at_work_since + PEERS_S
            self.server.peer_metrics()  # rates count from here, not from the start of the process

    def elapsed_s(self) -> float:
        """Seconds spent on the run, restarts included; without the wait for the first trajectory of each."""
        at_work_s = self.clock() - self._at_work_since if self._at_work_since is not None else 0.0
        return self.progress.elapsed_s + at_work_s

    def start_online(self) -> None:
        """From now on time counts towards `learner.max_minutes`. Again is harmless.

        Nothing counts before the first trajectory of this process: a resumed run has to wait for its workers.
        """
        if self._online_since is None and self._at_work_since is not None:
            self._online_since = self.clock()

    def stop_online(self) -> None:
        """Time does not count until `start_online`."""
        self.progress.online_s, self._online_since = self.online_s(), None

    def online_s(self) -> float:
        """Seconds that count towards `learner.max_minutes`, restarts included."""
        running_s = self.clock() - self._online_since if self._online_since is not None else 0.0
        return self.progress.online_s + running_s

    def time_share(self) -> float:
        """The share of `learner.max_minutes` that is over; 0 without such a limit."""
        minutes = self.config.learner.max_minutes
        return 0.0 if minutes is None else self.online_s() / (60.0 * minutes)

    def drain(self, timeout_s: float) -> int:
        """Takes all that has come in, as `Ingest.drain`; the first trajectory starts the clock."""
        count = self.ingest.drain(timeout_s)
        if count:
            self._arrived_at, self.has_arrivals = self.clock(), True
            self.start_clock()
        return count

    def expect_episodes(self, so_far: str) -> None:
        """Bounds the wait for episodes.

        Args:
            so_far: What is there, for the error.

        Raises:
            NothingCameIn: For `SILENCE_S` no episode came in.
        """
        if self.clock() - self._arrived_at >= SILENCE_S:
            raise NothingCameIn(
                f"No episode came in for {SILENCE_S / 60:.0f} minutes ({so_far}).",
                "If workers run, their logs say what fails; otherwise start some.",
            )

    def tend(self) -> None:
        """For every loop: raises what ended the server, and writes its peers' metrics when it is time.

        Before the run's time begins, they are broadcast and not written: they say what is waited for.
        """
        self.server.check()
        self.engine.tend()
        self.scheduler.set_elapsed(self.time_share())
        if self.clock() >= self._peers_due:
            self._peers_due = self.clock() + PEERS_S
            metrics = self.server.peer_metrics()
            (self.tell if self._at_work_since is None else self.write_metrics)(metrics)

    def publish(self, catch_up: bool = False) -> WeightInfo:
        """Publishes the policy's weights, as `Publisher.publish`."""
        self._published_at = self.engine.num_updates
        with self.engine.gathered(is_full=self.engine.policy.published_kind() == "full"):
            return self.publisher.publish(catch_up)

    @property
    def is_published(self) -> bool:
        """Whether the newest version has the policy's present weights."""
        return self._published_at == self.engine.num_updates

    def lendable(self, version: int) -> dict[str, Tensor] | None:
        """The weights of one of `publisher.recent`; None if they are those that the policy has now."""
        if version == self.publisher.version and self.is_published:
            return None
        return weights_io.from_bytes(self.publisher.recent[version])

    def write_metrics(self, metrics: dict[str, float]) -> None:
        """Writes metrics; the next broadcasts carry the newest value of each."""
        self.metrics.write(self.progress.updates, metrics)
        self.tell(metrics)

    def tell(self, metrics: dict[str, float]) -> None:
        """Lets the next broadcasts carry these values besides the newest of all others."""
        self._newest |= {name: value for name, value in metrics.items() if np.isfinite(value)}
        self._newest["updates"] = float(self.progress.updates)
        self.server.set_metrics(self._newest)

    def show(self, done: float, total: float) -> None:
        """Lets the next broadcasts carry how much of the present phase is done."""
        self.tell({PHASE_DONE: float(done), PHASE_TOTAL: float(total), "time/online_s": self.online_s()})

    def state_dict(self) -> dict[str, Any]:
        """The JSON part of a checkpoint."""
        progress = asdict(self.progress) | {"elapsed_s": self.elapsed_s(), "online_s": self.online_s()}
        return {
            "progress": progress,
            "replay": self.replay.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "ingest": self.ingest.state_dict(),
            "rng": self.rng.bit_generator.state,
            "usual_mismatch": asdict(self.usual_mismatch),
            "values": old_values.saved(self.ingest.episodes),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`; then everything that came in after it is taken from the store.

        Raises:
            CheckpointError: Something is missing or of another form; another version wrote it.
        """
        try:
            self.progress = Progress(**state["progress"])
            self.replay.load_state_dict(state["replay"])
            self.replay.forget_draws()
            self.scheduler.load_state_dict(state["scheduler"])
            self.rng.bit_generator.state = state["rng"]
            ingest = state["ingest"]
            kept = (ingest["last_id"], ingest["rolling"], ingest["groups"], ingest)
        except (KeyError, TypeError, ValueError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
            raise CheckpointError(
                f"The checkpoint's state.json {what}.",
                "Resume with the version of distrl that wrote it, or start a new run.",
            ) from error
        self.scheduler.set_updates(self.progress.updates)
        self.ingest.restore(*kept)
        old_values.restore(self.ingest.episodes, state.get("values", {}))
        self.usual_mismatch.load_state_dict(state.get("usual_mismatch", {}))
