"""The learner's process for APPO: the server, the loop of its main thread, and its checkpoints.

    workers ──► control ROUTER ── network thread: AppoServer ──► Master (applies, publishes) ──► ack
                                                                   ▲ polled: metrics, checkpoints, end
                                  main thread: AppoLearner.run ────┘

The main thread waits `POLL_S` at a time for the stop event, and at the end at most `learner.lease_ttl_s` for
the last measurement. Learning itself happens in the network thread: it is one addition per gradient.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import torch

from distrl.appo.master import Master, Measurement, Weights
from distrl.appo.policy import GaussianPolicy, PolicySpec
from distrl.configs.schema import Config
from distrl.core import checkpoints
from distrl.core.errors import CheckpointError, ProtocolError
from distrl.core.messages import Gradient, Measured, WorkAck, WorkGrant, WorkRequest
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL, MetricsWriter
from distrl.core.policies import weights_io
from distrl.core.rundir import RunDir
from distrl.core.security import SERVER, Security, load_security
from distrl.core.service import WEIGHTS_OF_TRAINING_WORKERS, Permits
from distrl.core.sockets import Received
from distrl.evaluator.run_state import is_complete
from distrl.learner.scheduler import DONE, TRAINING
from distrl.learner.server import Endpoints, ServerBase
from distrl.learner.trackers import open_trackers

POLL_S = 0.1
METRICS_S = 1.0
PEERS_S = 10.0
LINGER_S = 1.0
KEPT_VERSIONS = 16
"""Weights that stay available: a worker fetches a version after others have changed it already."""

_log = logging.getLogger(__name__)


class AppoServer(ServerBase):
    """The network side of a master, which must be set before `start`. Arguments as for `ServerBase`."""

    weight_permits: ClassVar[Permits] = WEIGHTS_OF_TRAINING_WORKERS
    master: Master

    def __init__(self, endpoints: Endpoints, security: Security | None, run_id: str) -> None:
        super().__init__(endpoints, security, run_id, keep_weights=KEPT_VERSIONS)

    def _handle(self, received: Received) -> None:
        message, peer = received.message, received.peer
        if isinstance(message, WorkRequest):
            unit = None if self._shutdown else self.master.work(message.worker, message.collected)
            self._service.reply(peer, self._shutdown or WorkGrant(unit=unit))
        elif isinstance(message, Gradient):
            try:
                is_new = self.master.take_gradient(message, received.blobs)
            except ProtocolError as error:
                self._service.reject(peer, error, ref=message.unit_id)
            else:
                self._service.reply(peer, WorkAck(unit_id=message.unit_id, duplicate=not is_new))
        elif isinstance(message, Measured):
            is_new = self.master.take_measured(message)
            self._service.reply(peer, WorkAck(unit_id=message.unit_id, duplicate=not is_new))
        else:
            super()._handle(received)


def resume(directory: Path, policy: GaussianPolicy, master: Master) -> None:
    """Loads the newest whole checkpoint, if there is one, and removes unfinished ones."""
    checkpoints.remove_unfinished(directory)
    path = checkpoints.to_resume_from(directory)
    if path is None:
        return
    policy.load(path / "policy")
    try:
        master.load_state_dict(json.loads((path / "state.json").read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path / 'state.json'} is missing, damaged or of a different version: {error!r}.",
            "Resume with the version of distrl that wrote it, or start a new run.",
        ) from error
    _log.info("resumed after %d gradients", master.progress.accepted)


def name_of(weights: Weights) -> str:
    return f"step_{weights.step}"


class AppoLearner:
    """Runs until the task is solved, the steps or the time are over, or `stop` is set.

    `policy` is one like the run's, which checkpoints overwrite.
    """

    def __init__(
        self,
        config: Config,
        run: RunDir,
        server: AppoServer,
        master: Master,
        policy: GaussianPolicy,
        metrics: MetricsWriter,
        stop: Event,
    ) -> None:
        self._config, self._run, self.server, self.master = config, run, server, master
        self._policy, self._metrics, self._stop = policy, metrics, stop
        self._directory = run.checkpoints
        self._written = {checkpoints.pointed(self._directory, "latest")}
        self._started = self._next_metrics = self._next_peers = time.monotonic()
        self._next_checkpoint = config.learner.checkpoint_every
        self._announced: dict[str, float] = {PHASE_TOTAL: float(config.goal.amount)}
        self._solved: tuple[str, float] | None = None  # a checkpoint, and its confirmed mean return
        self._open: list[Measurement] = []

    def run(self) -> None:
        """Trains, and names the result "final". A run that is complete already is announced as such."""
        if is_complete(self._run, self._config):
            self._end()
            return
        self.master.start()
        self._announce(TRAINING)
        while not self._stop.wait(POLL_S) and self._solved is None and not self._is_over():
            self._poll()
        self.master.close()
        if not self._stop.is_set() and self._solved is None:
            self._measure_last()
        self._write_numbers()
        name, mean = self._save(), None
        if self._stop.is_set():
            return
        if self._solved is not None:
            name, mean = self._solved
        elif self._config.learner.keep_best:
            name = checkpoints.pointed(self._directory, "best") or name
        env_steps, online_s = self.master.progress.env_steps, round(self.master.elapsed_s(), 1)
        note = {"env_steps": env_steps, "online_s": online_s, "return": mean}
        checkpoints.point(self._directory, "final", name, json.dumps(note, separators=(",", ":")))
        self._end()

    def _end(self) -> None:
        self._announce(DONE)
        self.server.shutdown("the run is complete")

    def _is_over(self) -> bool:
        """Whether all steps are made or the time is over, which also limits the wait for the first worker."""
        minutes = self._config.learner.max_minutes
        elapsed_s = self.master.elapsed_s() or time.monotonic() - self._started
        return self.master.is_over() or (minutes is not None and elapsed_s >= 60.0 * minutes)

    def _measure_last(self) -> None:
        """Measures the newest weights, within the time that a worker has for it."""
        self.master.measure_last()
        deadline = time.monotonic() + self._config.learner.lease_ttl_s
        while self.master.is_measuring and time.monotonic() < deadline and not self._stop.wait(POLL_S):
            self._poll()
        self._poll()

    def _poll(self) -> None:
        """Raises what ended the server; writes what is due."""
        self.server.check()
        begun, ended = self.master.take_measurements()
        self._open += begun
        for measurement in begun:
            self._checkpoint(measurement.weights, measurement.state)
        for measurement in ended:
            self._report(measurement)
            self._open.remove(measurement)
        now = time.monotonic()
        if now >= self._next_metrics:
            self._next_metrics = now + METRICS_S
            self._write_numbers()
        if now >= self._next_peers:
            self._next_peers = now + PEERS_S
            self._write(self.server.peer_metrics())
        if self.master.progress.accepted >= self._next_checkpoint:
            self._save()

    def _report(self, measurement: Measurement) -> None:
        """Writes a measurement's mean return, and moves the pointer "best"."""
        weights, mean, name = measurement.weights, measurement.mean, name_of(measurement.weights)
        _log.info(
            "%s of weights %d: mean return %.2f over %d episodes",
            measurement.kind, weights.info.version, mean, len(measurement.returns),
        )  # fmt: skip
        metric = "eval/confirmation" if measurement.kind == "confirmation" else "eval/return"
        at = {"env_steps": float(weights.env_steps), "elapsed_s": weights.elapsed_s}
        self._write({metric: mean, **{f"eval/{key}": value for key, value in at.items()}})
        if measurement.kind == "confirmation":
            target = self._config.learner.appo.stop_at_return
            if target is not None and mean >= target:
                self._solved = name, mean
                self._write({"solved/return": mean, **{f"solved/{key}": value for key, value in at.items()}})
            return
        best = checkpoints.note_of(self._directory, "best")
        if not best or mean >= float(best):
            checkpoints.point(self._directory, "best", name, note=f"{mean}")

    def _save(self) -> str:
        """Writes a checkpoint of the newest weights."""
        weights, state = self.master.snapshot()
        self._next_checkpoint = weights.step + self._config.learner.checkpoint_every
        return self._checkpoint(weights, state)

    def _checkpoint(self, weights: Weights, state: dict[str, Any]) -> str:
        """Writes step_N/ with policy/ and state.json, N being the gradients accepted; returns its name.

        Old checkpoints are deleted, except for those under measurement, a solution, and those that a pointer
        names. `latest` points to the newest, which one of weights under measurement may not be. Metrics are
        written first, because a resumed run keeps those up to its checkpoint.
        """
        self._write_numbers()
        name = name_of(weights)
        if name in self._written:
            return name

        def fill(path: Path) -> None:
            self._policy.load_published(weights_io.from_bytes(weights.data))
            self._policy.save(path / "policy")
            (path / "state.json").write_text(json.dumps(state))

        checkpoints.write_checkpoint(self._directory, name, fill)
        self._written.add(name)
        latest = checkpoints.step_of(checkpoints.pointed(self._directory, "latest") or "")
        if latest is None or latest < weights.step:
            checkpoints.point(self._directory, "latest", name)
        protected = {name, *(name_of(one.weights) for one in self._open)}
        if self._solved is not None:  # no pointer names it yet
            protected.add(self._solved[0])
        keep = self._config.learner.keep_checkpoints
        self._written -= set(checkpoints.remove_old(self._directory, keep, protected))
        return name

    def _write_numbers(self) -> None:
        if (row := self.master.take_row()) is not None:
            self._write(row[1], row[0])

    def _write(self, numbers: dict[str, float], accepted: int | None = None) -> None:
        """Writes metrics, by default of now; the next broadcasts carry the newest value of each."""
        progress = self.master.progress
        accepted = progress.accepted if accepted is None else accepted
        self._metrics.write(accepted, numbers)
        self._announced |= numbers
        self._announced["updates"] = float(accepted)
        self._announced[PHASE_DONE] = float(progress.env_steps)
        self._announced["time/online_s"] = self.master.elapsed_s()
        self.server.set_metrics(self._announced)

    def _announce(self, phase: str) -> None:
        self.server.set_phase(phase)
        _log.info("phase: %s", phase)


@contextlib.contextmanager
def open_learner(config: Config, run: RunDir, sizes: tuple[int, int], stop: Event) -> Iterator[AppoLearner]:
    """A learner whose sockets are bound and served; a run that has a checkpoint continues from it."""
    torch.set_num_threads(config.learner.threads)
    network, spec = config.network, PolicySpec.of(config, sizes)
    with contextlib.ExitStack() as stack:
        endpoints = Endpoints(network.control, network.broadcast, network.weights, network.rendezvous)
        server = AppoServer(endpoints, load_security(network.keys_path, SERVER), run.run_id())
        stack.callback(server.close)
        metrics = MetricsWriter(run.metrics, open_trackers(config, run))
        stack.callback(metrics.close)
        policy = GaussianPolicy(spec, config.seed)
        run.weights.mkdir(exist_ok=True)
        master = server.master = Master(config, policy, server, run.weights / "version")
        resume(run.checkpoints, policy, master)
        metrics.resume(master.progress.accepted)
        server.start()
        stack.enter_context(run.announced(server.endpoints.control))
        yield AppoLearner(config, run, server, master, GaussianPolicy(spec, config.seed), metrics, stop)
        if server.status.phase == "done":
            time.sleep(LINGER_S)  # late subscribers receive the shutdown
