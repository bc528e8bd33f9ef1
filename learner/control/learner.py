"""The loop of the master's main thread: metrics, checkpoints, and the end of the run.

    network thread: ControlServer ──► Master ◄── polled ── main thread: ControlLearner.run

The main thread waits `POLL_S` at a time for the stop event, and at the end for the last measurement for as
long as a worker may take for it, `learner.lease_ttl_s`. Learning itself goes on in the network thread: it is
one addition per gradient.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

from distrl.configs.schema import Config
from distrl.core import checkpoints
from distrl.core.metrics import MetricsWriter
from distrl.learner.control.checkpoint import ControlCheckpointer, name_of
from distrl.learner.control.master import Master
from distrl.learner.control.measuring import Measurement, Weights
from distrl.learner.control.server import ControlServer
from distrl.learner.scheduler import DONE, TRAINING

POLL_S = 0.1
METRICS_S = 1.0
PEERS_S = 10.0
_log = logging.getLogger(__name__)


@dataclass
class ControlParts:
    """What a master's process is made of."""

    config: Config
    server: ControlServer
    master: Master
    checkpointer: ControlCheckpointer
    metrics: MetricsWriter


class ControlLearner:
    """Runs until the task is solved, the steps or the time are over, or `stop` is set.

    Args:
        parts: What it is made of.
        stop: Set to end early; a checkpoint is written and `run` returns.
        clock: Monotonic seconds.
    """

    def __init__(self, parts: ControlParts, stop: Event, clock: Callable[[], float] = time.monotonic) -> None:
        self.parts, self.stop, self._clock = parts, stop, clock
        self._started = clock()
        self._next_metrics = self._next_peers = clock()
        self._next_checkpoint = parts.config.learner.checkpoint_every
        self._told: dict[str, float] = {}
        self._solved: tuple[str, str] | None = None  # a checkpoint, and its confirmed mean return
        self._open: list[Measurement] = []

    def run(self) -> None:
        """Trains, and names the result "final". A run that is complete already only says so."""
        if self._was_complete():
            self._announce(DONE)
            self.parts.server.shutdown("the run is complete")
            return
        self.parts.master.start()
        self._announce(TRAINING)
        while not self.stop.wait(POLL_S) and self._solved is None and not self._is_over():
            self._tend()
        if not self.stop.is_set() and self._solved is None:
            self._measure_last()
        self.parts.master.close()
        self._write_numbers()
        newest = self._save()
        if self.stop.is_set():
            return
        directory = self.parts.checkpointer.directory
        if self._solved is not None:
            checkpoints.point(directory, "final", *self._solved)
        else:
            best = checkpoints.pointed(directory, "best") if self.parts.config.learner.keep_best else None
            checkpoints.point(directory, "final", best or newest)
        self._announce(DONE)
        self.parts.server.shutdown("the run is complete")

    def _was_complete(self) -> bool:
        """Whether an earlier process named a result, and the configuration asks for no more than that."""
        directory = self.parts.checkpointer.directory
        if checkpoints.pointed(directory, "final") is None:
            return False
        target, mean = self.parts.config.learner.appo.stop_at_return, checkpoints.note_of(directory, "final")
        return (target is not None and mean != "" and float(mean) >= target) or self._is_over()

    def _is_over(self) -> bool:
        """Whether all steps are made, or the time is over. The first worker may take as long to come."""
        minutes = self.parts.config.learner.max_minutes
        limit_s = math.inf if minutes is None else 60.0 * minutes
        elapsed_s = self.parts.master.elapsed_s()
        waited_s = self._clock() - self._started if elapsed_s == 0.0 else 0.0
        return self.parts.master.is_over() or max(elapsed_s, waited_s) >= limit_s

    def _measure_last(self) -> None:
        """Measures the newest weights, for as long as a worker may take for it."""
        master = self.parts.master
        master.close()
        master.measure_last()
        deadline = self._clock() + self.parts.config.learner.lease_ttl_s
        while master.is_measuring and self._clock() < deadline and not self.stop.wait(POLL_S):
            self._tend()
        self._tend()

    def _tend(self) -> None:
        """Raises what ended the server; writes what is due."""
        self.parts.server.check()
        begun, ended = self.parts.master.take_measurements()
        self._open += begun
        for measurement in begun:
            self._checkpoint(measurement.weights, measurement.state)
        for measurement in ended:
            self._report(measurement)
        self._open = [one for one in self._open if not any(one is other for other in ended)]
        now = self._clock()
        if now >= self._next_metrics:
            self._next_metrics = now + METRICS_S
            self._write_numbers()
        if now >= self._next_peers:
            self._next_peers = now + PEERS_S
            self._write(self.parts.server.peer_metrics())
        if self.parts.master.progress.accepted >= self._next_checkpoint:
            self._save()

    def _report(self, measurement: Measurement) -> None:
        """Writes a measurement's mean return, and moves the pointer "best"."""
        weights, target = measurement.weights, self.parts.config.learner.appo.stop_at_return
        _log.info(
            "%s of weights %d: mean return %.2f over %d episodes",
            measurement.kind, weights.info.version, measurement.mean, len(measurement.returns),
        )  # fmt: skip
        where = {"eval/env_steps": float(weights.env_steps), "eval/elapsed_s": weights.elapsed_s}
        name = name_of(weights)
        if measurement.kind == "confirmation":
            self._write({"eval/confirmation": measurement.mean, **where})
            if target is not None and measurement.mean >= target:
                self._solved = name, f"{measurement.mean}"
                self._write(
                    {
                        "solved/elapsed_s": weights.elapsed_s,
                        "solved/env_steps": float(weights.env_steps),
                        "solved/return": measurement.mean,
                    }
                )
            return
        self._write({"eval/return": measurement.mean, **where})
        directory = self.parts.checkpointer.directory
        best = checkpoints.note_of(directory, "best")
        if not best or measurement.mean >= float(best):
            checkpoints.point(directory, "best", name, note=f"{measurement.mean}")

    def _save(self) -> str:
        """Writes a checkpoint of the newest weights."""
        weights, state = self.parts.master.snapshot()
        self._next_checkpoint = weights.step + self.parts.config.learner.checkpoint_every
        return self._checkpoint(weights, state)

    def _checkpoint(self, weights: Weights, state: dict[str, Any]) -> str:
        """Writes a checkpoint; what is being measured stays, and what was found to be a solution.

        The metrics up to it are written before, for a resumed run takes them as they are.
        """
        self._write_numbers()
        protected = {name_of(one.weights) for one in self._open}
        if self._solved is not None:  # no pointer names it yet
            protected.add(self._solved[0])
        return self.parts.checkpointer.save(weights, state, protected)

    def _write_numbers(self) -> None:
        for accepted, numbers in self.parts.master.take_rows():
            self._write(numbers, accepted)

    def _write(self, numbers: dict[str, float], accepted: int | None = None) -> None:
        """Writes metrics, by default of now; the next broadcasts carry the newest value of each."""
        accepted = self.parts.master.progress.accepted if accepted is None else accepted
        self.parts.metrics.write(accepted, numbers)
        self._told |= numbers | {"updates": float(accepted)}
        self.parts.server.set_metrics(self._told)

    def _announce(self, phase: str) -> None:
        self.parts.server.set_phase(phase)
        _log.info("phase: %s", phase)
