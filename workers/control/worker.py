"""The worker that trains: rounds of local PPO, and greedy episodes when the master wants weights measured.

    main thread: unit ─► weights ─► collect ─► train ─► gradient ─► ack ─► next unit     (MasterClient)
                                └─► greedy episodes ─► returns ─┘
    learner-link thread: presence, news, shutdown                                        (LearnerLink)

It waits only for the master's answers, asking again every few seconds, and for its environments.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from distrl.configs.schema import Config
from distrl.core.errors import EnvError, PolicyError
from distrl.core.messages import EpisodeReturn, Gradient, Measured, Reject, WeightInfo, WorkUnit
from distrl.core.sockets import Blob
from distrl.workers.control.collector import Collector, Counted
from distrl.workers.control.episodes import run_episodes
from distrl.workers.envs.gym import GymGroup

if TYPE_CHECKING:
    from distrl.core.policies.gaussian import GaussianPolicy
    from distrl.core.policies.local_ppo import Eta, LocalPpo

MEASURING_STEPS = 1024
"""Transitions of the run's first rounds, which only tell what observations and rewards are like."""

MIN_RATE = 1e-12
"""η is divided by the rate, which may fall to 0."""

MAX_REFUSED = 10
"""Rounds in a row that the master may refuse."""

MAX_FAILURES = 5
"""Units in a row that may end by a fault of an environment."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The worker should stop, or the run is over."""


class Master(Protocol):
    """What a worker needs of its `distrl.workers.control.master_client.MasterClient`."""

    def work(self, collected: str | None = None) -> WorkUnit:
        """What to do next, or that round with the newest weights. Raises Stopped."""
        ...

    def fetch(self, info: WeightInfo) -> memoryview | None:
        """The bytes of weights, None if they are gone. Raises Stopped."""
        ...

    def send(self, message: Gradient | Measured, blobs: list[Blob]) -> Reject | None:
        """Delivers a result; why it was refused, or None. Raises Stopped."""
        ...


@dataclass
class _Tools:
    """What training needs; made anew when an environment or the optimiser has gone wrong."""

    policy: GaussianPolicy
    ppo: LocalPpo
    collector: Collector


class ControlWorker:
    """Works until it is stopped or the run is over.

    Args:
        config: The run.
        name: The worker's.
        master: Hands out units and takes results.
        is_stopping: Polled between steps.
        set_stats: Takes the numbers that heartbeats carry.

    Raises:
        MissingDependency: The environment needs a package.
        ConfigError: There is no such environment.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        master: Master,
        is_stopping: Callable[[], bool],
        set_stats: Callable[[Mapping[str, float]], None] = lambda stats: None,
    ) -> None:
        self._config, self._name, self._master = config, name, master
        self._is_stopping, self._set_stats = is_stopping, set_stats
        self._rng: np.random.Generator | None = None
        self._tools: _Tools | None = None
        self._measuring: tuple[GymGroup, GaussianPolicy] | None = None
        self._num_refused = self._num_failures = 0
        self._stats = {"episodes": 0.0, "steps": 0.0, "faults": 0.0}
        self._space = GymGroup(config.env.options, 1).space  # a wrong environment is told at once

    def run(self) -> None:
        """Does one unit after another.

        Raises:
            PolicyError: The master refused `MAX_REFUSED` rounds in a row.
            EnvError: Environments failed `MAX_FAILURES` times in a row.
        """
        with contextlib.suppress(Stopped):
            while True:
                unit = self._master.work()
                weights = self._master.fetch(unit.weights)
                if weights is None:
                    continue
                try:
                    self._train(unit, weights) if unit.kind == "train" else self._measure(unit, weights)
                    self._num_failures = 0
                except EnvError as error:
                    self._failed(error)

    def _failed(self, error: EnvError) -> None:
        """Environments are made anew after a fault; the unit is given up, the master has others.

        Raises:
            EnvError: It is one too many.
        """
        self._num_failures += 1
        self._stats["faults"] += 1
        self._set_stats(self._stats)
        if self._num_failures >= MAX_FAILURES:
            raise error
        _log.warning("%s Going on with new environments.", error)
        self._tools = self._measuring = None

    def _train(self, unit: WorkUnit, weights: memoryview) -> None:
        from distrl.core.policies import weights_io

        appo, slots = self._config.learner.appo, self._config.worker.slots
        tools = self._tools = self._tools or self._make_tools(unit.weights.version)
        tools.policy.load_published(weights_io.from_bytes(weights))
        num_steps = appo.num_steps // slots
        is_first = tools.policy.observations.count == 0
        if is_first:
            num_steps = min(num_steps, -(-MEASURING_STEPS // slots))
        found = tools.collector.collect(tools.policy, num_steps, self._is_stopping)
        if found is None:
            raise Stopped
        data, counted = found
        lr = max(MIN_RATE, appo.local_lr * (1.0 - (1.0 - appo.final_lr_fraction) * unit.progress))
        numbers: dict[str, float] = {}
        eta = tools.policy.flat.views(tools.policy.flat.vector * 0.0)
        if not is_first:
            assert self._rng is not None
            newest = self._renew(unit, tools.policy)
            eta, numbers = tools.ppo.train(data, lr, self._rng)
            numbers["off_policy/behaviour_lag"] = float(newest.weights.version - unit.weights.version)
            unit = newest
        self._deliver(unit, eta, counted, lr, num_steps * slots, numbers)
        self._stats["steps"] += num_steps * slots
        self._stats["episodes"] += len(counted.episodes)
        self._set_stats(self._stats)

    def _renew(self, unit: WorkUnit, policy: GaussianPolicy) -> WorkUnit:
        """Loads what other workers have made of the weights meanwhile, so that training begins with it."""
        from distrl.core.policies import weights_io

        while True:
            newest = self._master.work(unit.id)
            if newest.weights == unit.weights:  # a resumed learner may use a version's number again
                return unit
            weights = self._master.fetch(newest.weights)
            if weights is not None:
                policy.load_published(weights_io.from_bytes(weights))
                return newest

    def _deliver(
        self,
        unit: WorkUnit,
        eta: Eta,
        counted: Counted,
        lr: float,
        num_steps: int,
        numbers: Mapping[str, float],
    ) -> None:
        """Sends a gradient.

        Raises:
            PolicyError: It was refused, and those before it too.
        """
        from distrl.core.policies import weights_io
        from distrl.core.policies.gaussian import pack_moments

        payload = weights_io.to_bytes({**eta, **pack_moments(counted.observations, counted.returns)})
        gradient = Gradient(
            worker=self._name,
            unit_id=unit.id,
            base_version=unit.weights.version,
            digest=hashlib.sha256(payload).hexdigest(),
            lr=lr,
            num_steps=num_steps,
            episodes=tuple(EpisodeReturn(total=total, length=length) for total, length in counted.episodes),
            metrics={name: value for name, value in numbers.items() if np.isfinite(value)},
        )
        refused = self._master.send(gradient, [memoryview(payload)])
        if refused is None:
            self._num_refused = 0
            return
        _log.warning("the master refused a round: %s", refused.reason)
        self._num_refused += 1
        if self._num_refused >= MAX_REFUSED:
            raise PolicyError(
                f"The master refused {MAX_REFUSED} rounds in a row, the last time because {refused.reason}.",
                "If numbers are not finite, lower learner.appo.local_lr; else use the same configuration "
                "everywhere.",
            )
        self._tools = None  # the optimiser may hold what was wrong

    def _make_tools(self, version: int) -> _Tools:
        """Environments and optimiser. One worker alone draws the same in every run with the same seed."""
        from distrl.core.policies.local_ppo import LocalPpo

        config, appo = self._config, self._config.learner.appo
        self._rng = np.random.default_rng([config.seed, zlib.crc32(self._name.encode()), version])
        policy = self._make_policy()
        group = GymGroup(config.env.options, config.worker.slots)
        collector = Collector(group, appo.gamma, appo.scale_rewards, self._rng)
        return _Tools(policy, LocalPpo(policy, appo), collector)

    def _make_policy(self) -> GaussianPolicy:
        from distrl.core.policies.gaussian import ControlSpec, GaussianPolicy

        config = self._config
        normalise = config.learner.appo.normalise_observations
        env_id = str(config.env.options["id"])
        spec = ControlSpec.of(config.policy.gaussian, env_id, self._space.sizes, normalise)
        return GaussianPolicy(spec, config.seed)

    def _measure(self, unit: WorkUnit, weights: memoryview) -> None:
        from distrl.core.policies import weights_io

        if self._measuring is None:
            group = GymGroup(self._config.env.options, self._config.worker.slots)
            self._measuring = group, self._make_policy()
        group, policy = self._measuring
        policy.load_published(weights_io.from_bytes(weights))
        episodes = run_episodes(group, policy.act_greedily, unit.seeds, self._is_stopping)
        if episodes is None:
            raise Stopped
        refused = self._master.send(
            Measured(worker=self._name, unit_id=unit.id, episodes=tuple(episodes)), []
        )
        if refused is not None:
            _log.warning("the master refused a measurement: %s", refused.reason)
