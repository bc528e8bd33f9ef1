"""A worker of APPO: rounds of local PPO, and greedy episodes when the master measures weights.

    main thread: unit ─► weights ─► collect ─► train ─► gradient ─► ack ─► next unit     (MasterClient)
                                └─► greedy episodes ─► returns ─┘
    learner-link thread: presence, news, shutdown                                        (LearnerLink)

It waits only for the master's answers, which it requests again every few seconds, and for its environments.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distrl.appo.envs import Collector, GymGroup, Round, run_episodes, space_of
from distrl.appo.policy import GaussianPolicy, PolicySpec, pack_moments
from distrl.appo.ppo import Eta, LocalPpo
from distrl.configs.schema import Config
from distrl.core.errors import EnvError, NetworkError, PolicyError, ProtocolError
from distrl.core.messages import (
    TRANSIENT,
    Gradient,
    Measured,
    Reject,
    Shutdown,
    WeightInfo,
    WorkAck,
    WorkGrant,
    WorkRequest,
    WorkUnit,
)
from distrl.core.policies import weights_io
from distrl.core.sockets import Blob, PeerError, Wire
from distrl.core.types import Record
from distrl.core.weights import WeightFetcher

POLL_S = 0.2
RESEND_S = 5.0
"""An answer takes milliseconds; after this long the message, or the answer, is lost."""

FETCH_S = 10.0
"""Without a new chunk. Weights that are gone by then are replaced by those of another unit."""

MEASURING_STEPS = 1024
"""Transitions of the run's first rounds, which only measure the scale of observations and rewards."""

MIN_RATE = 1e-12
"""η is divided by the rate, which may fall to 0."""

MAX_FAILURES = 10
"""Units in a row that the master may reject, or that may end by a fault of an environment."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The worker should stop, or the run is over."""


@dataclass
class _Tools:
    """Everything that training needs; replaced after a fault of an environment or the optimiser."""

    policy: GaussianPolicy
    ppo: LocalPpo
    collector: Collector
    rng: np.random.Generator


class AppoWorker:
    """Works until it is stopped or the run is over; `set_stats` takes the numbers that heartbeats carry."""

    def __init__(
        self,
        config: Config,
        name: str,
        master: MasterClient,
        is_stopping: Callable[[], bool],
        set_stats: Callable[[Mapping[str, float]], None] = lambda stats: None,
    ) -> None:
        self._config, self._name, self._master = config, name, master
        self._is_stopping, self._set_stats = is_stopping, set_stats
        self._tools: _Tools | None = None
        self._measuring: tuple[GymGroup, GaussianPolicy] | None = None
        self._num_failures = 0
        self._stats = {"episodes": 0.0, "steps": 0.0, "faults": 0.0}
        self._space = space_of(config.env.options)  # reports a wrong environment at once

    def run(self) -> None:
        """Does one unit after another, until too many in a row are rejected or fail."""
        with contextlib.suppress(Stopped):
            while True:
                unit = self._master.work()
                weights = self._master.fetch(unit.weights)
                if weights is None:
                    continue
                try:
                    self._train(unit, weights) if unit.kind == "train" else self._measure(unit, weights)
                except EnvError as error:  # the master hands out other units, to new environments
                    self._num_failures += 1
                    self._count(faults=1)
                    if self._num_failures >= MAX_FAILURES:
                        raise
                    _log.warning("%s Continuing with new environments.", error)
                    self._tools = self._measuring = None

    def _count(self, **numbers: float) -> None:
        for name, number in numbers.items():
            self._stats[name] += number
        self._set_stats(self._stats)

    def _train(self, unit: WorkUnit, weights: memoryview) -> None:
        appo, slots = self._config.learner.appo, self._config.worker.slots
        tools = self._tools = self._tools or self._make_tools(unit.weights.version)
        tools.policy.load_published(weights_io.from_bytes(weights))
        num_steps = appo.num_steps // slots
        is_first = tools.policy.observations.count == 0
        if is_first:
            num_steps = min(num_steps, -(-MEASURING_STEPS // slots))
        collected = tools.collector.collect(tools.policy, num_steps, self._is_stopping)
        if collected is None:
            raise Stopped
        lr = max(MIN_RATE, appo.local_lr * (1.0 - (1.0 - appo.final_lr_fraction) * unit.progress))
        numbers: dict[str, float] = {}
        eta = tools.policy.flat.views(tools.policy.flat.vector * 0.0)
        if not is_first:
            newest = self._renew(unit, tools.policy)
            eta, numbers = tools.ppo.train(collected, lr, tools.rng)
            numbers["off_policy/behaviour_lag"] = float(newest.weights.version - unit.weights.version)
            unit = newest
        self._deliver(unit, eta, collected, lr, numbers)
        self._count(steps=num_steps * slots, episodes=len(collected.episodes))

    def _renew(self, unit: WorkUnit, policy: GaussianPolicy) -> WorkUnit:
        """Loads the newest weights, which other workers have changed, so that training starts from them."""
        while True:
            newest = self._master.work(unit.id)
            if newest.weights == unit.weights:  # a resumed learner may use a version's number again
                return unit
            weights = self._master.fetch(newest.weights)
            if weights is not None:
                policy.load_published(weights_io.from_bytes(weights))
                return newest

    def _deliver(
        self, unit: WorkUnit, eta: Eta, collected: Round, lr: float, numbers: Mapping[str, float]
    ) -> None:
        payload = weights_io.to_bytes({**eta, **pack_moments(collected.seen, collected.returns)})
        gradient = Gradient(
            worker=self._name,
            unit_id=unit.id,
            base_version=unit.weights.version,
            digest=hashlib.sha256(payload).hexdigest(),
            lr=lr,
            num_steps=collected.rewards.size,
            episodes=tuple(collected.episodes),
            metrics={name: value for name, value in numbers.items() if np.isfinite(value)},
        )
        refused = self._master.send(gradient, [memoryview(payload)])
        if refused is None:
            self._num_failures = 0
            return
        _log.warning("the master rejected a round: %s", refused.reason)
        self._num_failures += 1
        if self._num_failures >= MAX_FAILURES:
            raise PolicyError(
                f"The master rejected {MAX_FAILURES} rounds in a row, the last because {refused.reason}.",
                "If numbers are not finite, lower learner.algorithm.local_lr. Use one configuration for all.",
            )
        self._tools = None  # the optimiser may hold what was wrong

    def _make_tools(self, version: int) -> _Tools:
        """Environments and optimiser. A single worker with the same seed draws the same numbers."""
        config, appo = self._config, self._config.learner.appo
        rng = np.random.default_rng([config.seed, zlib.crc32(self._name.encode()), version])
        policy = self._make_policy()
        group = GymGroup(config.env.options, config.worker.slots)
        return _Tools(policy, LocalPpo(policy, appo), Collector(group, appo.gamma, rng), rng)

    def _make_policy(self) -> GaussianPolicy:
        return GaussianPolicy(PolicySpec.of(self._config, self._space.sizes), self._config.seed)

    def _measure(self, unit: WorkUnit, weights: memoryview) -> None:
        if self._measuring is None:
            group = GymGroup(self._config.env.options, self._config.worker.slots)
            self._measuring = group, self._make_policy()
        group, policy = self._measuring
        policy.load_published(weights_io.from_bytes(weights))
        episodes = run_episodes(group, policy.act_greedily, unit.seeds, self._is_stopping)
        if episodes is None:
            raise Stopped
        measured = Measured(worker=self._name, unit_id=unit.id, episodes=tuple(episodes))
        if (refused := self._master.send(measured, [])) is not None:
            _log.warning("the master rejected a measurement: %s", refused.reason)


class MasterClient:
    """A worker's requests to the master: each is sent again until it is answered. For one thread.

    Requests carry ids, so that a resend changes nothing. `is_stopping` ends one by `Stopped`.
    """

    def __init__(
        self, wire: Wire, control: str, weights: str, name: str, is_stopping: Callable[[], bool]
    ) -> None:
        self._channel = wire.connect_dealer(control)
        self._fetcher = WeightFetcher(wire, weights)
        self._name, self._is_stopping = name, is_stopping

    def work(self, collected: str | None = None) -> WorkUnit:
        """The next unit, or the `collected` round with the newest weights; waits until there is one."""
        while True:
            with contextlib.suppress(PeerError):
                while self._channel.recv(0.0) is not None:
                    pass  # late answers to resent requests
            grant = self._ask(WorkRequest(worker=self._name, collected=collected))
            assert isinstance(grant, WorkGrant)
            if grant.unit is not None:
                return grant.unit
            self._pause(grant.retry_after_s)

    def send(self, message: Gradient | Measured, blobs: Sequence[Blob] = ()) -> Reject | None:
        """Delivers a result. Returns its rejection, None if it was accepted."""
        reply = self._ask(message, blobs, message.unit_id)
        return reply if isinstance(reply, Reject) else None

    def fetch(self, info: WeightInfo) -> memoryview | None:
        """The bytes of weights; None if the learner no longer keeps them, or was restarted."""
        try:
            return self._fetcher.fetch(info, FETCH_S, self._is_stopping)
        except NetworkError as error:
            if self._is_stopping():
                raise Stopped from error
            _log.warning("weights %d: %s", info.version, error)
            return None

    def close(self) -> None:
        """Closes the connections."""
        self._channel.close()
        self._fetcher.close()

    def _ask(self, message: Record, blobs: Sequence[Blob] = (), unit_id: str = "") -> Record:
        """The answer to `message`; answers to earlier messages are skipped."""
        while True:
            try:
                self._channel.send(message, blobs, timeout_s=POLL_S)
            except ProtocolError:
                raise  # larger than any message may be: it will not get smaller
            except NetworkError:
                _log.debug("no room for a %s now; it will be sent again", type(message).__name__)
            deadline = time.monotonic() + RESEND_S
            while time.monotonic() < deadline:
                reply = self._receive()
                if isinstance(reply, Reject) and reply.code in TRANSIENT:
                    self._pause(RESEND_S)
                    break
                if isinstance(reply, Reject) and not reply.ref:
                    raise ProtocolError(
                        reply.code.value,
                        f"The learner at {self._channel.endpoint} has no work for workers that train: "
                        f"{reply.reason}.",
                        "Use the same distrl version and configuration everywhere.",
                    )
                if isinstance(reply, WorkGrant) and not unit_id:
                    return reply
                if isinstance(reply, WorkAck) and reply.unit_id == unit_id:
                    return reply
                if isinstance(reply, Reject) and reply.ref == unit_id:
                    return reply

    def _receive(self) -> Record | None:
        """The next message; None if none arrived in time."""
        if self._is_stopping():
            raise Stopped
        try:
            received = self._channel.recv(POLL_S)
        except PeerError as error:
            _log.error("the learner sent an invalid message: %s", error)
            return None
        if received is not None and isinstance(received.message, Shutdown):
            raise Stopped
        return received.message if received is not None else None

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._is_stopping():
                raise Stopped
            time.sleep(min(POLL_S, seconds))
