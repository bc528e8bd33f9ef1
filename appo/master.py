"""The master of APPO: global parameters, statistics and counters, and the next unit of work for each worker.

    network thread:  work · take_gradient · take_measured · keep_only
    main thread:     start · take_rows · take_measurements · snapshot · close · measure_last

One lock guards all of it; no method waits. (APPO paper, Algorithm 1.) Weights are measured by workers, too:

    validation, periodically ─┐ mean ≥ R                         mean ≥ R: solved
    mean of training ≥ R ─────┴──────────► confirmation, 100 episodes ──► else continue, with a pause
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from distrl.appo.envs import Moments
from distrl.appo.policy import GaussianPolicy, unpack_moments
from distrl.appo.ppo import Eta, apply_eta
from distrl.configs.appo import CONFIRMATION_SEEDS, VALIDATION_SEEDS, AppoConfig
from distrl.configs.schema import Config
from distrl.core.errors import PolicyError, ProtocolError
from distrl.core.messages import EpisodeReturn, Gradient, Measured, RejectCode, WeightInfo, WorkUnit
from distrl.core.metrics import VERSIONS
from distrl.core.policies import weights_io
from distrl.core.sockets import Blob
from distrl.core.weights import Buffer
from distrl.learner.publish import Announcer, Publisher

RECENT = 100
"""Training episodes whose mean return is the metric `train/return`, and may start a confirmation."""

KEPT_IDS = 1024
"""Units of which a resend is recognised."""

UNIT_EPISODES = 20
"""Episodes in one unit of measuring: a few seconds of a worker's time."""

CONFIRMATION_EPISODES = 100
PAUSE_ROUNDS = 10
"""Rounds between two confirmations without validations, which would set the interval."""

RATIOS = {"kl": "off_policy/kl", "silenced_fraction": "off_policy/silenced_fraction"}
"""Metrics by staleness of a round's ratios π/π_old, and their names in a gradient's metrics."""

_RATE_SLACK = 1.0 + 1e-6
Kind = Literal["validation", "confirmation"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weights:
    """Published weights, and the state of the run at that moment.

    Attributes:
        step: Gradients accepted.
        env_steps: Transitions accepted.
        elapsed_s: Seconds of the run.
    """

    info: WeightInfo
    data: Buffer
    step: int
    env_steps: int
    elapsed_s: float


@dataclass
class _Part:
    """The seeds of a unit; its `episodes` when done; the worker that has it, and its deadline."""

    seeds: tuple[int, ...]
    episodes: tuple[EpisodeReturn, ...] | None = None
    worker: str = ""
    deadline: float = 0.0


@dataclass
class Measurement:
    """One set of weights, measured over greedy episodes.

    Attributes:
        state: The JSON part of a checkpoint of these weights.
    """

    kind: Kind
    weights: Weights
    state: dict[str, Any]
    parts: dict[str, _Part] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all episodes are there."""
        return all(part.episodes is not None for part in self.parts.values())

    @property
    def returns(self) -> list[float]:
        """Of the episodes so far."""
        return [episode.total for part in self.parts.values() for episode in part.episodes or ()]

    @property
    def mean(self) -> float:
        """The mean return of the episodes so far."""
        returns = self.returns
        return sum(returns) / len(returns)


class Measuring:
    """At most one measurement at a time: greedy episodes in units, handed out, expired and put together.

    Not thread-safe: the master holds its lock around every call.

    Args:
        ttl_s: How long a worker has for a unit.
        prefix: Of the ids of units; unique to this process.
        clock: Monotonic seconds.

    Attributes:
        current: The one under way.
        begun, ended: Started and completed ones; the reader empties the lists.
        attempts: The number of confirmations so far; each has seeds of its own.
    """

    def __init__(self, ttl_s: float, prefix: str, clock: Callable[[], float]) -> None:
        self._ttl_s, self._prefix, self._clock = ttl_s, prefix, clock
        self._num_parts = 0
        self.current: Measurement | None = None
        self.begun: list[Measurement] = []
        self.ended: list[Measurement] = []
        self.attempts = 0

    def start(self, kind: Kind, weights: Weights, episodes: int, state: dict[str, Any]) -> None:
        """Starts to measure `weights`; a measurement under way is dropped."""
        first = VALIDATION_SEEDS
        if kind == "confirmation":
            first = CONFIRMATION_SEEDS + self.attempts * CONFIRMATION_EPISODES
            self.attempts += 1
        seeds = range(first, first + episodes)
        parts = {}
        for start in range(0, episodes, UNIT_EPISODES):
            self._num_parts += 1
            parts[f"{self._prefix}-e{self._num_parts}"] = _Part(tuple(seeds[start : start + UNIT_EPISODES]))
        self.current = Measurement(kind, weights, state | {"attempts": self.attempts}, parts)
        self.begun.append(self.current)

    def grant(self, worker: str, progress: float) -> WorkUnit | None:
        """A unit of the measurement under way that no live worker has."""
        now = self._clock()
        for unit_id, part in self._open():
            if not part.worker or now >= part.deadline or part.worker == worker:
                part.worker, part.deadline = worker, now + self._ttl_s
                assert self.current is not None
                return WorkUnit(
                    id=unit_id,
                    kind="evaluate",
                    weights=self.current.weights.info,
                    progress=progress,
                    seeds=part.seeds,
                    ttl_s=self._ttl_s,
                )
        return None

    def keep_only(self, workers: Collection[str]) -> None:
        """Only these are alive: units of other workers become free at once."""
        for _, part in self._open():
            if part.worker not in workers:
                part.worker = ""

    def take(self, unit_id: str, episodes: tuple[EpisodeReturn, ...]) -> bool:
        """Takes the episodes of a unit. False if it is done already, or dropped."""
        part = self.current.parts.get(unit_id) if self.current is not None else None
        if part is None or part.episodes is not None or len(episodes) != len(part.seeds):
            return False
        part.episodes = episodes
        assert self.current is not None
        if self.current.is_complete:
            self.ended.append(self.current)
            self.current = None
        return True

    def _open(self) -> Iterator[tuple[str, _Part]]:
        parts = self.current.parts if self.current is not None else {}
        return ((unit_id, part) for unit_id, part in parts.items() if part.episodes is None)


@dataclass
class Progress:
    """The counters of a run, which checkpoints keep besides weights and statistics.

    Attributes:
        accepted, rejected: Gradients.
        env_steps, episodes: Of accepted gradients.
        recent: Returns of the newest training episodes.
        done: Units whose gradient was applied, the oldest first.
        next_validation, next_confirmation: Environment steps before which there is none.
        earlier_s: Seconds that earlier processes spent on this run.
    """

    accepted: int = 0
    rejected: int = 0
    env_steps: int = 0
    episodes: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    done: dict[str, None] = field(default_factory=dict)
    next_validation: int = 0
    next_confirmation: int = 0
    earlier_s: float = 0.0

    def account(self, gradient: Gradient) -> None:
        """Counts an accepted gradient."""
        self.accepted += 1
        self.env_steps += gradient.num_steps
        self.episodes += len(gradient.episodes)
        self.recent.extend(episode.total for episode in gradient.episodes)
        self.done[gradient.unit_id] = None
        if len(self.done) > KEPT_IDS:
            del self.done[next(iter(self.done))]

    def looks_solved(self, target: float) -> bool:
        """Whether the mean return of the newest episodes is at `target`, and a confirmation allowed."""
        is_allowed = len(self.recent) == RECENT and self.env_steps >= self.next_confirmation
        return is_allowed and sum(self.recent) / RECENT >= target

    def numbers(self) -> dict[str, float]:
        """The counters as metrics."""
        numbers = {
            "env_steps": float(self.env_steps),
            "train/episodes": float(self.episodes),
            "gradients/accepted": float(self.accepted),
            "gradients/rejected": float(self.rejected),
        }
        if self.recent:
            numbers["train/return"] = sum(self.recent) / len(self.recent)
        return numbers

    def state_dict(self, elapsed_s: float) -> dict[str, Any]:
        """JSON-able; `elapsed_s` of the run so far."""
        return asdict(self) | {"recent": list(self.recent), "done": list(self.done), "earlier_s": elapsed_s}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Progress:
        """Reads what `state_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: It has a different form.
        """
        progress = cls(**{**state, "recent": deque(state["recent"], maxlen=RECENT)})
        progress.done = dict.fromkeys(state["done"])
        return progress


class Window:
    """Means over the gradients since the last row of metrics.

    Args:
        since: Seconds of the run when it begins.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self._taken: list[tuple[Gradient, int]] = []  # with their staleness

    def add(self, gradient: Gradient, staleness: int) -> None:
        """Counts an accepted gradient."""
        self._taken.append((gradient, staleness))

    def take(self, elapsed_s: float) -> dict[str, float]:
        """The means, which are then reset; empty without gradients."""
        taken, self._taken = self._taken, []
        if not taken:
            return {}
        values: dict[str, list[float]] = {}
        trained: dict[int, list[Gradient]] = {}  # by the bucket of their staleness
        for gradient, staleness in taken:
            for name, value in gradient.metrics.items():
                values.setdefault(name, []).append(value)
            if all(name in gradient.metrics for name in RATIOS.values()):
                trained.setdefault(int(VERSIONS.index(staleness)), []).append(gradient)
        numbers = {name: sum(found) / len(found) for name, found in values.items()}
        numbers["off_policy/staleness_mean"] = sum(staleness for _, staleness in taken) / len(taken)
        numbers["off_policy/staleness_max"] = float(max(staleness for _, staleness in taken))
        for bucket, gradients in trained.items():
            prefix = f"staleness/{VERSIONS.labels[bucket]}"
            numbers |= {f"{prefix}/{name}": value for name, value in _by_staleness(gradients).items()}
        if elapsed_s > self._since:
            env_steps = sum(gradient.num_steps for gradient, _ in taken)
            numbers["throughput/env_steps_per_s"] = env_steps / (elapsed_s - self._since)
        self._since = elapsed_s
        return numbers


def _by_staleness(gradients: Sequence[Gradient]) -> dict[str, float]:
    """Counts, the mean return of the episodes that ended, and the ratios' numbers, means over steps."""
    steps = sum(gradient.num_steps for gradient in gradients)
    totals = [episode.total for gradient in gradients for episode in gradient.episodes]
    return {
        "gradients": float(len(gradients)),
        "steps": float(steps),
        "episodes": float(len(totals)),
        **({"return": sum(totals) / len(totals)} if totals else {}),
        **{
            short: sum(gradient.num_steps * gradient.metrics[name] for gradient in gradients) / steps
            for short, name in RATIOS.items()
        },
    }


@dataclass(frozen=True)
class Change:
    """The payload of a gradient.

    Attributes:
        eta: η by parameter.
        observations, returns: Moments of the new ones.
    """

    eta: Eta
    observations: Moments
    returns: Moments


def read_change(
    gradient: Gradient, blobs: Sequence[Blob], policy: GaussianPolicy, config: AppoConfig
) -> Change:
    """The payload of `gradient`, checked as a whole before any of it is used.

    Raises:
        ProtocolError: The bytes have a different SHA-256 ("digest"), or do not fit this policy: a
            tensor is missing, unknown or has a different shape, a number is not finite, or a count or the
            rate is impossible.
    """
    if len(blobs) != 1:
        raise _malformed(f"a gradient has one frame, not {len(blobs)}")
    if hashlib.sha256(blobs[0]).hexdigest() != gradient.digest:
        raise ProtocolError(RejectCode.DIGEST.value, "the gradient's bytes do not match its SHA-256")
    try:
        state = weights_io.from_bytes(bytearray(blobs[0]))
    except PolicyError as error:
        raise _malformed(error.message) from error
    own = policy.published_state()
    for name in own.keys() | state.keys():
        if name not in state or name not in own:
            raise _malformed(f"the tensor {name!r:.100} is {'missing' if name in own else 'unknown'}")
        if state[name].shape != own[name].shape or state[name].dtype != own[name].dtype:
            raise _malformed(
                f"{name} is {tuple(state[name].shape)} {state[name].dtype}, "
                f"expected {tuple(own[name].shape)} {own[name].dtype}"
            )
        if not bool(torch.isfinite(state[name]).all()):
            raise _malformed(f"{name} holds numbers that are not finite")
    observations, returns = unpack_moments(state)
    for moments in (observations, returns):
        if moments.count != gradient.num_steps or not np.all(moments.m2 >= 0.0):
            raise _malformed(f"its statistics do not cover {gradient.num_steps} steps")
    if not 0 < gradient.num_steps <= config.num_steps:
        raise _malformed(f"{gradient.num_steps} steps are more than a round has, at most {config.num_steps}")
    if len(gradient.episodes) > gradient.num_steps:
        raise _malformed(f"{len(gradient.episodes)} episodes ended in {gradient.num_steps} steps")
    if gradient.lr > config.local_lr * _RATE_SLACK:
        raise _malformed(f"its rate {gradient.lr:g} is above learner.algorithm.local_lr={config.local_lr:g}")
    names = dict(policy.named_parameters())
    return Change({name: state[name] for name in names}, observations, returns)


def global_rate(config: AppoConfig, lr: float, staleness: int) -> float:
    """α_g for a change that was divided by α_l = `lr` and is `staleness` versions behind.

    Without `global_lr` it is α_l: the change of a single worker is applied as it is. A `global_lr` falls over
    the run as α_l does. `inverse` divides by 1 + staleness.
    """
    rate = lr if config.global_lr is None else config.global_lr * lr / config.local_lr
    return rate / (1.0 + staleness) if config.staleness_weight == "inverse" else rate


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(RejectCode.MALFORMED.value, reason)


class WeightServer(Announcer, Protocol):
    """What the master uses of `distrl.appo.learner.AppoServer`."""

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Makes older weights available again."""
        ...


class Master:
    """Owns θ_g, ω_g and the statistics.

    Args:
        config: The run.
        policy: Its parameters and statistics are the run's.
        server: Where weights are published.
        version_file: Remembers the newest version, see `Publisher`.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        policy: GaussianPolicy,
        server: WeightServer,
        version_file: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._policy, self._server, self._clock = config, policy, server, clock
        self._lock = threading.Lock()
        self._prefix = uuid.uuid4().hex[:12]
        self._publisher = Publisher(policy, self, version_file, level=logging.DEBUG)
        self._measuring = Measuring(config.learner.lease_ttl_s, self._prefix, clock)
        self._num_rounds = 0
        self._started_at: float | None = None
        self._is_closed = False
        self._newest: Weights | None = None
        self._window = Window()
        self._rows: list[tuple[int, dict[str, float]]] = []
        self.progress = Progress()

    @property
    def _appo(self) -> AppoConfig:
        return self._config.learner.appo

    def start(self) -> None:
        """Publishes the first weights, or those of a checkpoint."""
        with self._lock:
            self._publisher.publish()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """For the publisher: notes the state of the run, and passes the weights on."""
        progress = self.progress
        self._newest = Weights(info, data, progress.accepted, progress.env_steps, self._elapsed_s())
        self._server.publish_weights(info, data)

    # ---- network thread ----

    def work(self, worker: str, collected: str | None = None) -> WorkUnit | None:
        """The next unit of `worker`: episodes of a measurement, else a round; None if there is no work now.

        Args:
            collected: A round whose transitions are collected: returned again with the newest weights.
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
        """Applies a worker's change and publishes the result. False if it was applied before.

        Raises:
            ProtocolError: It is not valid. It is counted and logged; nothing has changed.
        """
        with self._lock:
            if gradient.unit_id in self.progress.done:
                return False
            try:
                staleness = self._staleness(gradient)
                change = read_change(gradient, blobs, self._policy, self._appo)
            except ProtocolError as error:
                self.progress.rejected += 1
                _log.warning("rejected a gradient of %s: %s", gradient.worker, error)
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
        """Takes measured episodes. False if they are no longer needed."""
        with self._lock:
            is_new = self._measuring.take(measured.unit_id, measured.episodes)
            if is_new and self._measuring.current is None:
                self._follow(self._measuring.ended[-1])
            return is_new

    def keep_only(self, workers: Collection[str]) -> None:
        """Only these are alive: the measurements of others are handed out again."""
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
                f"its base is version {gradient.base_version}, but the newest weights are {version}",
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
        """Continues after a complete measurement."""
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
        """Hands out no more rounds. Those under way are still accepted."""
        with self._lock:
            self._is_closed = True

    def measure_last(self) -> None:
        """Measures the newest weights once more, if there are validations."""
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
        """Those started and those completed since the last call."""
        with self._lock:
            begun, ended = self._measuring.begun, self._measuring.ended
            self._measuring.begun, self._measuring.ended = [], []
            return begun, ended

    def take_rows(self) -> list[tuple[int, dict[str, float]]]:
        """Rows of metrics since the last call: gradients accepted so far, and the numbers.

        A row ends at each checkpoint, so that a resumed run does not count any gradient twice.
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
            KeyError, TypeError, ValueError: It has a different form.
        """
        with self._lock:
            self._measuring.attempts = int(state["attempts"])
            self.progress = Progress.of(state["progress"])
            self._window = Window(self.progress.earlier_s)

    def _end_window(self) -> None:
        """Makes a row of the gradients since the last one, if there are any."""
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
        """The completed share of the run: of `max_env_steps` or of `max_minutes`, the larger one."""
        steps, minutes = self.progress.env_steps / self._appo.max_env_steps, self._config.learner.max_minutes
        time_ = self._elapsed_s() / (60.0 * minutes) if minutes is not None else 0.0
        return min(1.0, max(steps, time_))
