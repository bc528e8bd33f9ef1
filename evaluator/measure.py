"""From "whom" to numbers: finds or starts the policy that acts, then runs the evaluator."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, LearnerUnreachable
from distrl.core.sockets import Wire
from distrl.evaluator.evaluator import EvaluationStopped, Evaluator
from distrl.evaluator.progress import EvaluationProgress, make_progress
from distrl.evaluator.prompted import NAME, as_prompted, prompted_policies
from distrl.evaluator.results import Evaluation, Subject
from distrl.evaluator.serving import Endpoints, find_checkpoint, make_wire, serve_here, wait_for_policy
from distrl.workers.act_client import ActClient
from distrl.workers.client import LearnerLink
from distrl.workers.joining import wait_for_learner
from distrl.workers.worker import SlotPolicy

WEIGHTS_S = 600.0
"""How long a served policy may be without weights."""

PolicyOfSlot = Callable[[int], SlotPolicy]


@dataclass(frozen=True)
class Who:
    """Whom to measure: exactly one of these.

    Attributes:
        checkpoint: A checkpoint, or a run's directory; an inference server is started for it in this process.
        inference: Inference servers that run already.
        learner: A learner's control address; its inference servers are asked.
        agent: "expert" or "random", which need no policy, or "prompted": `evaluate.prompted`.
    """

    checkpoint: Path | None = None
    inference: tuple[str, ...] = ()
    learner: str | None = None
    agent: str | None = None

    def subject(self, model: str = "") -> Subject:
        """How results name it. A checkpoint is found and checked.

        Args:
            model: The name of the model that is prompted.

        Raises:
            ConfigError: Not exactly one is given, or there is no such agent.
            CheckpointError: There is no such checkpoint, or it is damaged.
        """
        given = [self.checkpoint, self.inference, self.learner, self.agent]
        if sum(bool(one) for one in given) != 1:
            raise ConfigError(
                "Whom to measure is not clear.",
                "Give exactly one of --checkpoint, --inference, --learner and --agent.",
            )
        if self.checkpoint is not None:
            return Subject(kind="checkpoint", name=str(find_checkpoint(self.checkpoint)))
        if self.agent == "expert":
            return Subject(kind="expert")
        if self.agent == "random":
            return Subject(kind="random")
        if self.agent == NAME:
            return Subject(kind="prompted", name=model)
        if self.agent:
            raise ConfigError(
                f"There is no baseline agent {self.agent!r}.", "Use expert, random or prompted."
            )
        return Subject(kind="served", name=self.learner or ", ".join(self.inference))


def measure(
    config: Config,
    who: Who,
    output: Path,
    splits: Sequence[str] | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
    wait_s: float = WEIGHTS_S,
    progress: EvaluationProgress | None = None,
) -> Evaluation:
    """Measures `who` on `splits` and writes the results to `output`.

    Args:
        config: The run's configuration.
        who: Whom to measure.
        output: A directory; see `distrl.evaluator.results`.
        splits: Which splits; None: `tasks.test`.
        resume: Go on with the evaluation in `output`.
        stop: Ends it early when set.
        wait_s: How long a served policy may be without weights.
        progress: Who is told; by default a bar on a terminal and lines in a log.

    Raises:
        EvaluationStopped: `stop` was set; `resume` goes on from here.
        DistrlError: Anything else that a user can mend.
    """
    stop, progress = stop or threading.Event(), progress or make_progress()
    if who.agent == NAME:
        config = as_prompted(config)
    subject = who.subject(config.evaluate.prompted.model)
    evaluator = Evaluator(config, output, subject, splits, resume, stop, progress)
    with acting(config, who, stop, progress, wait_s) as policy:
        return evaluator.run(policy)


@contextlib.contextmanager
def acting(
    config: Config, who: Who, stop: threading.Event, progress: EvaluationProgress, wait_s: float
) -> Iterator[PolicyOfSlot | None]:
    """What makes the policy client of each slot, ready to act; None for agents that need no policy."""
    if who.agent:
        yield prompted_policies(config, stop) if who.agent == NAME else None
        return
    with _servers(config, who, stop, progress) as (wire, endpoints):
        wait_for_policy(wire, endpoints, wait_s, stop, progress.say)

        def policy(slot: int) -> ActClient:
            timeout_s = config.worker.act_timeout_s
            return ActClient(wire, endpoints, stop.is_set, f"evaluate/{slot}", timeout_s)

        yield policy


@contextlib.contextmanager
def _servers(
    config: Config, who: Who, stop: threading.Event, progress: EvaluationProgress
) -> Iterator[tuple[Wire, Endpoints]]:
    """Sockets, and where the policy answers."""
    if who.checkpoint is not None:
        with serve_here(config, find_checkpoint(who.checkpoint)) as (wire, endpoint):
            yield wire, lambda: (endpoint,)
        return
    network = config.network
    with make_wire(network) as wire:
        if who.learner is None:
            yield wire, lambda: who.inference
            return
        link = LearnerLink(wire, who.learner, network.broadcast, "evaluate", f"evaluate-{os.getpid()}")
        link.start()
        try:
            _join(link, who.learner, network.connect_timeout_s, stop, progress)
            yield wire, lambda: link.status.act_endpoints if link.status else ()
        finally:
            link.close()


def _join(
    link: LearnerLink, address: str, timeout_s: float, stop: threading.Event, progress: EvaluationProgress
) -> None:
    """Waits for the learner.

    Raises:
        LearnerUnreachable: There was none within `timeout_s`, or its run is over.
        EvaluationStopped: `stop` was set.
    """
    is_there = wait_for_learner(link, address, "--learner", timeout_s, stop, progress.say)
    if link.shutdown.is_set():
        raise LearnerUnreachable(f"The run at {address} is over.", "Measure its result: --checkpoint RUN.")
    if not is_there:
        raise EvaluationStopped("Interrupted before anything was measured.")
