"""The master of APPO: global parameters, statistics and counters, and the next unit of work for each worker.

    network thread:  work · take_gradient · take_measured
    main thread:     start · take_row · take_measurements · snapshot · close · measure_last

One lock guards what changes; no method waits. (APPO paper, Algorithm 1.) Workers measure weights, too:

    validation, periodically ─┐ mean ≥ R                         mean ≥ R: solved
    mean of training ≥ R ─────┴──────────► confirmation, 100 episodes ──► else continue, with a pause
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from distrl.appo.envs import Moments
from distrl.appo.policy import GaussianPolicy, unpack_moments
from distrl.appo.ppo import METRICS, Eta, apply_eta
from distrl.configs.appo import CONFIRMATION_SEEDS, VALIDATION_SEEDS, AppoConfig
from distrl.configs.schema import Config
from distrl.core.errors import PolicyError, ProtocolError
from distrl.core.messages import EpisodeReturn, Gradient, Measured, RejectCode, WeightInfo, WorkUnit
from distrl.core.policies import weights_io
from distrl.core.sockets import Blob
from distrl.core.weights import Buffer
from distrl.learner.publish import Publisher
from distrl.learner.server import ServerBase

RECENT = 100
"""Training episodes whose mean return is the metric `train/return`, and may start a confirmation."""

KEPT_IDS = 1024
"""Units of which a resend is recognised."""

UNIT_EPISODES = 20
"""Episodes in one unit of measuring: a few seconds of a worker's time."""

CONFIRMATION_EPISODES = 100
PAUSE_ROUNDS = 10
"""Rounds between two confirmations without validations, which would set the interval."""

_RATE_SLACK = 1.0 + 1e-6
Kind = Literal["validation", "confirmation"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weights:
    """Published weights; gradients, transitions and seconds of the run at that moment."""

    info: WeightInfo
    data: Buffer
    step: int
    env_steps: int
    elapsed_s: float


@dataclass
class _Part:
    """A unit's seeds, its `episodes` when done, the worker that has it, and its deadline."""

    seeds: Sequence[int]
    episodes: tuple[EpisodeReturn, ...] | None = None
    worker: str = ""
    deadline: float = 0.0


@dataclass(eq=False)
class Measurement:
    """One set of weights, measured over greedy episodes in units by id; `state`: as `snapshot` returns it."""

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
        return sum(self.returns) / len(self.returns)


@dataclass
class Progress:
    """The counters of a run, which checkpoints keep besides weights and statistics."""

    accepted: int = 0  # gradients
    rejected: int = 0
    env_steps: int = 0  # of accepted gradients
    episodes: int = 0
    recent: list[float] = field(default_factory=list)  # returns of the newest training episodes
    done: list[str] = field(default_factory=list)  # units whose gradient was applied, the oldest first
    attempts: int = 0  # confirmations so far; each has seeds of its own
    next_validation: int = 0  # environment steps before which there is none
    next_confirmation: int = 0
    earlier_s: float = 0.0  # that earlier processes spent on this run

    def account(self, gradient: Gradient) -> None:
        """Counts an accepted gradient."""
        self.accepted += 1
        self.env_steps += gradient.num_steps
        self.episodes += len(gradient.episodes)
        self.recent = [*self.recent, *(episode.total for episode in gradient.episodes)][-RECENT:]
        self.done = [*self.done, gradient.unit_id][-KEPT_IDS:]

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


def read_change(
    gradient: Gradient, blobs: Sequence[Blob], policy: GaussianPolicy, config: AppoConfig
) -> tuple[Eta, Moments, Moments]:
    """η by parameter, and moments of new observations and returns, checked before any of it is used.

    Raises:
        ProtocolError: The bytes have a different SHA-256 ("digest"), or do not fit this policy and round.
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
    if unknown := gradient.metrics.keys() - set(METRICS):  # they are broadcast, and would pile up
        raise _malformed(f"the metric {min(unknown)!r} is unknown")
    return {name: state[name] for name, _ in policy.named_parameters()}, observations, returns


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(RejectCode.MALFORMED.value, reason)


class Master:
    """Owns θ_g, ω_g and the statistics, which are those of `policy`; publishes them by `server`."""

    def __init__(
        self,
        config: Config,
        policy: GaussianPolicy,
        server: ServerBase,
        version_file: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._policy, self._server, self._clock = config, policy, server, clock
        self._appo = config.learner.appo
        self._lock = threading.Lock()
        self._prefix = uuid.uuid4().hex[:12]
        self._publisher = Publisher(policy, server, version_file, level=logging.DEBUG)
        self._num_units = 0
        self._started_at: float | None = None
        self._is_closed = False
        self._newest: Weights | None = None
        self._current: Measurement | None = None  # at most one at a time
        self._begun: list[Measurement] = []
        self._ended: list[Measurement] = []
        self._taken: list[tuple[Gradient, int]] = []  # since the last row of metrics, with their staleness
        self._row_began_s = 0.0
        self.progress = Progress()

    def start(self) -> None:
        """Publishes the first weights, or those of a checkpoint."""
        with self._lock:
            self._publish()

    def _publish(self) -> None:
        info, progress = self._publisher.publish(), self.progress
        data = self._publisher.recent[info.version]
        self._newest = Weights(info, data, progress.accepted, progress.env_steps, self.elapsed_s())

    # ---- network thread ----

    def work(self, worker: str, collected: str | None = None) -> WorkUnit | None:
        """The next unit of `worker`: episodes of a measurement, else a round; None if there is no work now.

        A round whose transitions are `collected` is returned again with the newest weights.
        """
        with self._lock:
            newest = self._newest
            if collected is not None and newest is not None:
                return self._round(collected, newest)
            unit = self._measuring_unit(worker)
            if unit is not None or self._is_closed or newest is None or self.is_over():
                return unit
            if self._started_at is None:
                self._started_at = self._clock()
            return self._round(self._unit_id("r"), newest)

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
                eta, observations, returns = read_change(gradient, blobs, self._policy, self._appo)
            except ProtocolError as error:
                self.progress.rejected += 1
                _log.warning("rejected a gradient of %s: %s", gradient.worker, error)
                raise
            rate = gradient.lr
            if self._appo.global_lr is not None:  # falls over the run as the local one does
                rate *= self._appo.global_lr / self._appo.local_lr
            apply_eta(self._policy, eta, rate)
            self._policy.observations.merge(observations)
            self._policy.returns.merge(returns)
            self.progress.account(gradient)
            self._taken.append((gradient, staleness))
            self._publish()
            self._measure_if_due()
            return True

    def take_measured(self, measured: Measured) -> bool:
        """Takes measured episodes. False if they are no longer needed."""
        with self._lock:
            current = self._current
            if current is None:
                return False
            part = current.parts.get(measured.unit_id)
            if part is None or part.episodes is not None or len(measured.episodes) != len(part.seeds):
                return False
            part.episodes = measured.episodes
            if current.is_complete:
                self._ended.append(current)
                self._current = None
                self._follow(current)
            return True

    def _measuring_unit(self, worker: str) -> WorkUnit | None:
        """A unit of the measurement under way that no other worker has."""
        now, ttl_s, current = self._clock(), self._config.learner.lease_ttl_s, self._current
        if current is None:
            return None
        for unit_id, part in current.parts.items():
            if part.episodes is None and (now >= part.deadline or part.worker == worker):
                part.worker, part.deadline = worker, now + ttl_s
                info = current.weights.info
                self._server.offer_weights(info, current.weights.data)
                return WorkUnit(
                    id=unit_id,
                    kind="evaluate",
                    weights=info,
                    progress=self._share(),
                    seeds=tuple(part.seeds),
                    ttl_s=ttl_s,
                )
        return None

    def _round(self, unit_id: str, weights: Weights) -> WorkUnit:
        return WorkUnit(id=unit_id, kind="train", weights=weights.info, progress=self._share())

    def _unit_id(self, kind: str) -> str:
        self._num_units += 1
        return f"{self._prefix}-{kind}{self._num_units}"

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
        if self._current is not None or self._is_closed:
            return
        if appo.stop_at_return is not None and progress.looks_solved(appo.stop_at_return):
            self._measure("confirmation")
        elif is_due:
            self._measure("validation")

    def _follow(self, ended: Measurement) -> None:
        """Continues after a complete measurement."""
        target, progress = self._appo.stop_at_return, self.progress
        is_good = target is not None and ended.mean >= target
        if ended.kind == "validation":
            if is_good:
                self._measure("confirmation")
        elif is_good:
            self._is_closed = True
        else:
            pause = self._appo.eval_every or PAUSE_ROUNDS * self._appo.num_steps
            progress.next_confirmation = progress.env_steps + pause

    def _measure(self, kind: Kind) -> None:
        """Starts to measure the newest weights; a measurement under way is dropped."""
        first, episodes = VALIDATION_SEEDS, self._config.learner.eval_episodes
        if kind == "confirmation":
            episodes = CONFIRMATION_EPISODES
            first = CONFIRMATION_SEEDS + self.progress.attempts * episodes
            self.progress.attempts += 1
        assert self._newest is not None
        self._current = Measurement(kind, self._newest, self._state_dict())
        for start in range(first, first + episodes, UNIT_EPISODES):
            seeds = range(start, min(start + UNIT_EPISODES, first + episodes))
            self._current.parts[self._unit_id("e")] = _Part(seeds)
        self._begun.append(self._current)

    # ---- main thread ----

    def close(self) -> None:
        """Hands out no more rounds. Those under way are still accepted."""
        with self._lock:
            self._is_closed = True

    def measure_last(self) -> None:
        """Measures the newest weights once more, if there are validations."""
        with self._lock:
            if self._appo.eval_every:
                self._measure("validation")

    @property
    def is_measuring(self) -> bool:
        """Whether a measurement is under way."""
        return self._current is not None

    def is_over(self) -> bool:
        """Whether `max_env_steps` have been made."""
        return self.progress.env_steps >= self._appo.max_env_steps

    def take_measurements(self) -> tuple[list[Measurement], list[Measurement]]:
        """Those started and those completed since the last call."""
        with self._lock:
            begun, ended, self._begun, self._ended = self._begun, self._ended, [], []
            return begun, ended

    def take_row(self) -> tuple[int, dict[str, float]] | None:
        """Gradients accepted so far, and means over those since the last call; None if there are none."""
        with self._lock:
            taken, self._taken = self._taken, []
            if not taken:
                return None
            elapsed_s, values = self.elapsed_s(), defaultdict(list)
            for gradient, _ in taken:
                for name, value in gradient.metrics.items():
                    values[name].append(value)
            numbers = self.progress.numbers() | {"time/elapsed_s": elapsed_s}
            numbers |= {name: sum(found) / len(found) for name, found in values.items()}
            staleness = [float(versions) for _, versions in taken]
            numbers["off_policy/staleness_mean"] = sum(staleness) / len(staleness)
            numbers["off_policy/staleness_max"] = max(staleness)
            if elapsed_s > self._row_began_s:
                env_steps = sum(gradient.num_steps for gradient, _ in taken)
                numbers["throughput/env_steps_per_s"] = env_steps / (elapsed_s - self._row_began_s)
            self._row_began_s = elapsed_s
            return self.progress.accepted, numbers

    def elapsed_s(self) -> float:
        """Seconds since the first round was handed out, over all processes of the run."""
        at_work_s = self._clock() - self._started_at if self._started_at is not None else 0.0
        return self.progress.earlier_s + at_work_s

    def snapshot(self) -> tuple[Weights, dict[str, Any]]:
        """The newest weights and the JSON part of a checkpoint, of one moment."""
        with self._lock:
            assert self._newest is not None
            return self._newest, self._state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the JSON part of a checkpoint; the policy was loaded before."""
        with self._lock:
            self.progress = Progress(**state["progress"])
            self._row_began_s = self.progress.earlier_s

    def _state_dict(self) -> dict[str, Any]:
        return {"progress": asdict(self.progress) | {"earlier_s": self.elapsed_s()}}

    def _share(self) -> float:
        """The completed share of the run: of `max_env_steps` or of `max_minutes`, the larger one."""
        steps, minutes = self.progress.env_steps / self._appo.max_env_steps, self._config.learner.max_minutes
        time_ = self.elapsed_s() / (60.0 * minutes) if minutes is not None else 0.0
        return min(1.0, max(steps, time_))
