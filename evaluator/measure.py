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
from distrl.evaluator.repeats import check_repeated_output, check_seeds, pool, seed_directory
from distrl.evaluator.results import Evaluation, Subject
from distrl.evaluator.serving import Endpoints, find_checkpoint, make_wire, serve_here, wait_for_policy
from distrl.workers.act_client import ActClient
from distrl.workers.client import LearnerLink
from distrl.workers.joining import wait_for_learner
from distrl.workers.worker import SlotPolicy

MODEL = "model"
"""The agent that is the policy of the configuration before any training."""

PolicyOfSlot = Callable[[int], SlotPolicy]


@dataclass(frozen=True)
class Who:
    """Whom to measure: exactly one of these.

    Attributes:
        checkpoint: A checkpoint, or a run's directory; an inference server is started for it in this process.
        inference: Inference servers that run already.
        learner: A learner's control address; its inference servers are asked.
        agent: "expert" or "random", which need no policy, "model": the policy of the configuration as it is
            before any training, of `policy.model` that is, or "prompted": `evaluate.prompted`.
    """

    checkpoint: Path | None = None
    inference: tuple[str, ...] = ()
    learner: str | None = None
    agent: str | None = None

    def subject(self, model: str = "") -> Subject:
        """How results name it. A checkpoint is found and checked.

        Args:
            model: The name of the model that is measured untrained or prompted, see `model_of`.

        Raises:
            ConfigError: Not exactly one is given, or there is no such agent.
            CheckpointError: There is no such checkpoint, or it is damaged.
        """
        given = [self.checkpoint, self.inference, self.learner, self.agent]
        if sum(bool(one) for one in given) != 1:
            raise ConfigError(
                "Choose what to evaluate.",
                "Pass exactly one of --checkpoint, --inference, --learner and --agent.",
            )
        if self.checkpoint is not None:
            return Subject(kind="checkpoint", name=str(find_checkpoint(self.checkpoint)))
        if self.agent == "expert":
            return Subject(kind="expert")
        if self.agent == "random":
            return Subject(kind="random")
        if self.agent in (MODEL, NAME):
            return Subject(kind="model" if self.agent == MODEL else "prompted", name=model)
        if self.agent:
            raise ConfigError(
                f"There is no baseline agent {self.agent!r}.", "Use expert, random, model or prompted."
            )
        return Subject(kind="served", name=self.learner or ", ".join(self.inference))


def model_of(config: Config, who: Who) -> str:
    """What results call the model that an agent is, for agents that are one."""
    return config.evaluate.prompted.model if who.agent == NAME else config.policy.model or config.policy.kind


def measure(
    config: Config,
    who: Who,
    output: Path,
    splits: Sequence[str] | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
    wait_s: float | None = None,
    progress: EvaluationProgress | None = None,
    seeds: Sequence[int] | None = None,
) -> Evaluation:
    """Measures `who` on `splits` and writes the results to `output`.

    Args:
        config: The run's configuration.
        who: Whom to measure.
        output: A directory; see `distrl.evaluator.results`.
        splits: Which splits; None: `tasks.test`.
        resume: Go on with the evaluation in `output`.
        stop: Ends it early when set.
        wait_s: How long to wait for the learner, and for a server with weights; None for as long as it takes.
        progress: Who is told; by default a bar on a terminal and lines in a log.
        seeds: Repeat it with each of these, into output/seed-S; a policy is started once. None: measure once.

    Raises:
        EvaluationStopped: `stop` was set; `resume` goes on from here.
        DistrlError: Anything else that a user can mend.
    """
    stop = stop or threading.Event()
    if who.agent == NAME:
        config = as_prompted(config)
    subject = who.subject(model_of(config, who))
    places = {0: output}
    if seeds is not None:
        places = {seed: seed_directory(output, seed) for seed in check_seeds(seeds)}
        check_repeated_output(output, resume)
    told = [progress or make_progress() for _ in places]
    evaluators = [
        Evaluator(config, place, subject, splits, resume, stop, teller, seed)
        for (seed, place), teller in zip(places.items(), told, strict=True)
    ]
    with acting(config, who, stop, told[0], wait_s) as policy:
        measured: list[Evaluation] = []
        for seed, evaluator, teller in zip(places, evaluators, told, strict=True):
            if seeds is not None:
                teller.say(f"seed {seed} ({len(measured) + 1} of {len(places)})")
            measured.append(evaluator.run(policy))
    return measured[0] if seeds is None else pool(output, seeds)


@contextlib.contextmanager
def acting(
    config: Config, who: Who, stop: threading.Event, progress: EvaluationProgress, wait_s: float | None
) -> Iterator[PolicyOfSlot | None]:
    """What makes the policy client of each slot, ready to act; None for agents that need no policy."""
    if who.agent and who.agent != MODEL:
        yield prompted_policies(config, stop) if who.agent == NAME else None
        return
    with _servers(config, who, stop, progress, wait_s) as (wire, endpoints):
        wait_for_policy(wire, endpoints, wait_s, stop, progress.say)

        def policy(slot: int) -> ActClient:
            timeout_s = config.worker.act_timeout_s
            return ActClient(wire, endpoints, stop.is_set, f"evaluate/{slot}", timeout_s)

        yield policy


@contextlib.contextmanager
def _servers(
    config: Config, who: Who, stop: threading.Event, progress: EvaluationProgress, wait_s: float | None
) -> Iterator[tuple[Wire, Endpoints]]:
    """Sockets, and where the policy answers."""
    if who.checkpoint is not None or who.agent == MODEL:
        checkpoint = None if who.checkpoint is None else find_checkpoint(who.checkpoint)
        with serve_here(config, checkpoint) as (wire, endpoint):
            yield wire, lambda: (endpoint,)
        return
    network = config.network
    with make_wire(network) as wire:
        if who.learner is None:
            yield wire, lambda: who.inference
            return
        link = LearnerLink(
            wire, who.learner, network.broadcast, "evaluate", wire.full_name(f"evaluate-{os.getpid()}")
        )
        link.start()
        try:
            _join(link, who.learner, wait_s, stop, progress)
            yield wire, lambda: link.status.act_endpoints if link.status else ()
        finally:
            link.close()


def _join(
    link: LearnerLink, address: str, wait_s: float | None, stop: threading.Event, progress: EvaluationProgress
) -> None:
    """Waits for the learner.

    Raises:
        LearnerUnreachable: There was none within `wait_s`, or its run is over.
        EvaluationStopped: `stop` was set.
    """
    is_there = wait_for_learner(link, address, "--learner", wait_s, stop, progress.say)
    if link.shutdown.is_set():
        raise LearnerUnreachable(f"The run at {address} is over.", "Measure its result: --checkpoint RUN.")
    if not is_there:
        raise EvaluationStopped("Interrupted before anything was measured.")
