"""The master of APPO: global parameters, statistics and counters, and what each worker does next.

    network thread:  work · take_gradient · take_measured · keep_only
    main thread:     start · take_rows · take_measurements · snapshot · close · measure_last

One lock is around all of it; nothing in it waits for anything. (APPO paper, Algorithm 1.)
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from distrl.configs.control import AppoConfig
from distrl.configs.schema import Config
from distrl.core.errors import ProtocolError
from distrl.core.messages import Gradient, Measured, RejectCode, WeightInfo, WorkUnit
from distrl.core.policies.gaussian import GaussianPolicy
from distrl.core.policies.local_ppo import apply_eta
from distrl.core.weights import Buffer
from distrl.learner.control.gradients import Blob, global_rate, read_change
from distrl.learner.control.measuring import CONFIRMATION_EPISODES, Kind, Measurement, Measuring, Weights
from distrl.learner.control.progress import ControlProgress, Window
from distrl.learner.publish import Publisher

PAUSE_ROUNDS = 10
"""Rounds between two confirmations, where there are no validations to say how many."""

_log = logging.getLogger(__name__)


class WeightServer(Protocol):
    """What the master needs of `ControlServer`."""

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers and announces new weights."""
        ...

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Makes older weights available again."""
        ...


class Master:
    """Owns θ_g, ω_g and the statistics.

    Args:
        config: The run.
        policy: Its parameters and statistics are the run's.
        server: Where weights are published.
        make_publisher: Makes the publisher of `policy`, given where it announces.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        policy: GaussianPolicy,
        server: WeightServer,
        make_publisher: Callable[[Master], Publisher],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._policy, self._server, self._clock = config, policy, server, clock
        self._lock = threading.Lock()
        self._prefix = uuid.uuid4().hex[:12]
        self._publisher = make_publisher(self)
        self._measuring = Measuring(config.learner.lease_ttl_s, self._prefix, clock)
        self._num_rounds = 0
        self._started_at: float | None = None
        self._is_closed = False
        self._newest: Weights | None = None
        self._window = Window()
        self._rows: list[tuple[int, dict[str, float]]] = []
        self.progress = ControlProgress()

    @property
    def _appo(self) -> AppoConfig:
        return self._config.learner.appo

    def start(self) -> None:
        """Publishes the first weights, or those of a checkpoint."""
        with self._lock:
            self._publisher.publish()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """For the publisher: notes where the run stands, and passes the weights on."""
        progress = self.progress
        self._newest = Weights(info, data, progress.accepted, progress.env_steps, self._elapsed_s())
        self._server.publish_weights(info, data)

    # ---- network thread ----

    def work(self, worker: str, collected: str | None = None) -> WorkUnit | None:
        """What `worker` does next: episodes of a measurement, else a round; None if there is nothing now.

        Args:
            collected: A round whose transitions are there: it goes on with the newest weights.
        """
        with self._lock:
            if collected is not None and self._newest is not None:
                return self._round(collected, self._newest)
            unit = self._measuring.grant(worker, self._share())
            if unit is not None:
                measured = self._measuring.current
                assert measured is not None
                weights = measured.weights
                self._server.offer_weights(weights.info, weights.data)
                return unit
            if self._is_closed or self._newest is None or self._is_over():
                return None
            if self._started_at is None:
                self._started_at = self._clock()
            self._num_rounds += 1
            return self._round(f"{self._prefix}-r{self._num_rounds}", self._newest)

    def take_gradient(self, gradient: Gradient, blobs: Sequence[Blob]) -> bool:
        """Applies a worker's change, and publishes what comes of it. False if it was applied before.

        Raises:
            ProtocolError: It cannot be used. It is counted and logged; nothing has changed.
        """
        with self._lock:
            if gradient.unit_id in self.progress.done:
                return False
            try:
                staleness = self._staleness(gradient)
                change = read_change(gradient, blobs, self._policy, self._appo)
            except ProtocolError as error:
                self.progress.rejected += 1
                _log.warning("a gradient of %s is refused: %s", gradient.worker, error)
                raise
            apply_eta(self._policy, change.eta, global_rate(self._appo, gradient.lr, staleness))
            self._policy.observations.merge(change.observations)
            self._policy.returns.merge(change.returns)
            self.progress.account(gradient)
            self._window.add(gradient, staleness)
            self._publisher.publish()
            self._measure_if_due()
            return True

    def take_measured(self, measured: Measured) -> bool:
        """Takes measured episodes. False if they are not wanted any more."""
        with self._lock:
            is_new = self._measuring.take(measured.unit_id, measured.episodes)
            if is_new and self._measuring.current is None:
                self._follow(self._measuring.ended[-1])
            return is_new

    def keep_only(self, workers: Collection[str]) -> None:
        """Only these are alive: what others were measuring may be handed out again."""
        with self._lock:
            self._measuring.keep_only(workers)

    def _round(self, unit_id: str, weights: Weights) -> WorkUnit:
        return WorkUnit(id=unit_id, kind="train", weights=weights.info, progress=self._share())

    def _staleness(self, gradient: Gradient) -> int:
        """Versions between a gradient's base and the newest weights."""
        version = self._publisher.version
        if not 1 <= gradient.base_version <= version:
            raise ProtocolError(
                RejectCode.UNEXPECTED.value,
                f"its base is version {gradient.base_version}, and the newest weights are {version}",
            )
        return version - gradient.base_version

    def _measure_if_due(self) -> None:
        """Starts a validation every `eval_every` steps, and a confirmation when training looks solved."""
        progress, appo = self.progress, self._appo
        is_due = bool(appo.eval_every) and progress.env_steps >= progress.next_validation
        if is_due:
            progress.next_validation = progress.env_steps + appo.eval_every
        if self._measuring.current is not None or self._is_closed:
            return
        target = appo.stop_at_return
        if target is not None and progress.looks_solved(target):
            self._start("confirmation")
        elif is_due:
            self._start("validation")

    def _follow(self, ended: Measurement) -> None:
        """What a complete measurement leads to."""
        target, progress = self._appo.stop_at_return, self.progress
        if ended.kind == "confirmation":
            if target is not None and ended.mean >= target:
                self._is_closed = True
            else:
                pause = self._appo.eval_every or PAUSE_ROUNDS * self._appo.num_steps
                progress.next_confirmation = progress.env_steps + pause
        elif target is not None and ended.mean >= target:
            self._start("confirmation")

    def _start(self, kind: Kind) -> None:
        episodes = CONFIRMATION_EPISODES if kind == "confirmation" else self._config.learner.eval_episodes
        assert self._newest is not None
        self._measuring.start(kind, self._newest, episodes, self._state_dict())

    # ---- main thread ----

    def close(self) -> None:
        """No more rounds are handed out. Those under way are still taken."""
        with self._lock:
            self._is_closed = True

    def measure_last(self) -> None:
        """Measures the newest weights once more, if that is asked for at all."""
        with self._lock:
            if self._appo.eval_every:
                self._start("validation")

    @property
    def is_measuring(self) -> bool:
        """Whether a measurement is under way."""
        with self._lock:
            return self._measuring.current is not None

    def is_over(self) -> bool:
        """Whether `max_env_steps` have been made."""
        with self._lock:
            return self._is_over()

    def take_measurements(self) -> tuple[list[Measurement], list[Measurement]]:
        """Those that began, and those that were completed, since the last call."""
        with self._lock:
            begun, ended = self._measuring.begun, self._measuring.ended
            self._measuring.begun, self._measuring.ended = [], []
            return begun, ended

    def take_rows(self) -> list[tuple[int, dict[str, float]]]:
        """What happened since the last call, as rows of metrics: gradients accepted so far, and the numbers.

        There is a row up to each checkpoint's moment, so that what a resumed run does again has its own.
        """
        with self._lock:
            self._end_window()
            rows, self._rows = self._rows, []
            return rows

    def elapsed_s(self) -> float:
        """Seconds since the first round was handed out, over all processes of the run."""
        with self._lock:
            return self._elapsed_s()

    def snapshot(self) -> tuple[Weights, dict[str, Any]]:
        """The newest weights and the JSON part of a checkpoint, of one moment."""
        with self._lock:
            assert self._newest is not None
            return self._newest, self._state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the JSON part of a checkpoint; the policy was loaded before.

        Raises:
            KeyError, TypeError, ValueError: It is of another form.
        """
        with self._lock:
            self._measuring.attempts = int(state["attempts"])
            self.progress = ControlProgress.of(state["progress"])
            self._window = Window(self.progress.earlier_s)

    def _end_window(self) -> None:
        """Makes a row of what came in since the last one, if anything did."""
        elapsed_s = self._elapsed_s()
        numbers = self._window.take(elapsed_s)
        if numbers:
            numbers = self.progress.numbers() | {"time/elapsed_s": elapsed_s} | numbers
            self._rows.append((self.progress.accepted, numbers))

    def _state_dict(self) -> dict[str, Any]:
        """The JSON part of a checkpoint of this moment, which also ends a row of metrics."""
        self._end_window()
        return {
            "progress": self.progress.state_dict(self._elapsed_s()),
            "attempts": self._measuring.attempts,
        }

    def _elapsed_s(self) -> float:
        at_work_s = self._clock() - self._started_at if self._started_at is not None else 0.0
        return self.progress.earlier_s + at_work_s

    def _is_over(self) -> bool:
        return self.progress.env_steps >= self._appo.max_env_steps

    def _share(self) -> float:
        """The share of the run that is over: of `max_env_steps` or of `max_minutes`, the larger one."""
        steps, minutes = self.progress.env_steps / self._appo.max_env_steps, self._config.learner.max_minutes
        time_ = self._elapsed_s() / (60.0 * minutes) if minutes is not None else 0.0
        return min(1.0, max(steps, time_))
