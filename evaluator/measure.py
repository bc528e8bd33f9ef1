"""From the command's choice of subject to numbers: finds or starts the policy that acts, and measures it."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from distrl.configs.schema import Config
from distrl.core.checkpoints import MANIFEST, POINTERS, resolve, verify
from distrl.core.errors import (
    CheckpointError,
    ConfigError,
    InferenceUnavailable,
    LearnerUnreachable,
    MissingDependency,
    NetworkError,
    RunDirectoryError,
)
from distrl.core.files import write_atomically
from distrl.core.messages import Info, InfoRequest
from distrl.core.rundir import is_free
from distrl.core.security import load_security
from distrl.core.sockets import Wire
from distrl.evaluator.evaluator import Evaluator
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.prompted import NAME, as_prompted, prompted_policies
from distrl.evaluator.results import (
    EPISODES_FILE,
    RESULTS_FILE,
    SPEC_FILE,
    Evaluation,
    LoadedEvaluation,
    Subject,
    evaluation_of,
    load_evaluation,
    read_episodes,
)
from distrl.evaluator.runner import EvaluationStopped, can_run_instantly, run_instantly
from distrl.evaluator.suites import vocabulary
from distrl.workers.act_client import ActClient
from distrl.workers.client import LearnerLink, wait_for_learner
from distrl.workers.episode import PolicyClient

MODEL = "model"

PolicyOfSlot = Callable[[int], PolicyClient]


@dataclass(frozen=True)
class Measured:
    """What to measure: exactly one of these.

    Attributes:
        checkpoint: A checkpoint, or a run's directory; an inference server is started for it in this process.
        learner: A learner's control address; its inference servers act.
        agent: "expert" or "random", which need no policy, "model", the untrained policy of the configuration,
            or "prompted": `evaluate.prompted`.
    """

    checkpoint: Path | None = None
    inference: tuple[str, ...] = ()
    learner: str | None = None
    agent: str | None = None

    def subject(self, model: str = "") -> Subject:
        """The subject as results name it; `model` names an untrained or prompted model, see `model_of`.

        Raises:
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
        if not self.agent:
            return Subject(kind="served", name=self.learner or ", ".join(self.inference))
        if self.agent not in ("expert", "random", MODEL, NAME):
            raise ConfigError(
                f"There is no baseline agent {self.agent!r}.", "Use expert, random, model or prompted."
            )
        return Subject(kind=self.agent, name=model if self.agent in (MODEL, NAME) else "")


def model_of(config: Config, who: Measured) -> str:
    """The name of the model in results, for agents that are a model."""
    return config.evaluate.prompted.model if who.agent == NAME else config.policy.title


def measure(
    config: Config,
    who: Measured,
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
        splits: Which splits; None: `tasks.test`.
        wait_s: How long to wait for the learner and for a server with weights; None: without a limit.
        seeds: Repeat it with each of these, into output/seed-S; a policy is started once. None: measure once.

    Raises:
        EvaluationStopped: `stop` was set; `resume` continues from here.
    """
    stop = stop or threading.Event()
    if who.agent == NAME:
        config = as_prompted(config)
    subject = who.subject(model_of(config, who))
    places = {0: output}
    if seeds is not None:
        if len(set(seeds)) < len(seeds) or not seeds:
            raise ConfigError(f"The seeds {', '.join(map(str, seeds))} are not distinct.", "Give each once.")
        places = {seed: seed_directory(output, seed) for seed in seeds}
        if not is_free(output, resume) and ((output / SPEC_FILE).exists() or not output.is_dir()):
            raise RunDirectoryError(
                f"{output} holds an evaluation without repetitions.",
                "Leave --seeds out, or name another directory with --output.",
            )
    display = progress or EvaluationProgress()
    evaluators = {
        seed: Evaluator(config, place, subject, splits, resume, stop, display, seed)
        for seed, place in places.items()
    }
    with contextlib.ExitStack() as held:
        if who.checkpoint is not None and can_run_instantly(config):
            serve, words, saved = _serving(config, who.checkpoint)
            engine = held.enter_context(
                contextlib.closing(serve.build_engine(config, words, "checkpoint", saved))
            )
            run = partial(Evaluator.run, play=partial(run_instantly, engine))
        else:
            run = partial(
                Evaluator.run, policy=held.enter_context(acting(config, who, stop, display, wait_s))
            )
        measured: list[Evaluation] = []
        for seed, evaluator in evaluators.items():
            if seeds is not None:
                display.say(f"seed {seed} ({len(measured) + 1} of {len(seeds)})")
            measured.append(run(evaluator))
    return measured[0] if seeds is None else pool(output, seeds)


@contextlib.contextmanager
def acting(
    config: Config,
    who: Measured,
    stop: threading.Event,
    progress: EvaluationProgress,
    wait_s: float | None,
) -> Iterator[PolicyOfSlot | None]:
    """A factory of each slot's policy client, ready to act; None for agents without a policy."""
    if who.agent and who.agent != MODEL:
        yield prompted_policies(config, stop) if who.agent == NAME else None
        return
    network, endpoint, link = config.network, "", None
    is_here = who.checkpoint is not None or who.agent == MODEL

    def endpoints() -> Sequence[str]:
        if link is not None:
            return link.status.act_endpoints if link.status else ()
        return (endpoint,) if endpoint else who.inference

    with contextlib.ExitStack() as held:
        security = None if is_here else load_security(network.keys_path, network.key_name)
        wire = held.enter_context(Wire(security))
        if is_here:
            endpoint = held.enter_context(_serve_here(config, who.checkpoint, wire))
        elif who.learner is not None:
            name = wire.full_name(f"evaluate-{os.getpid()}")
            link = LearnerLink(wire, who.learner, network.learner.broadcast, "evaluate", name)
            link.start()
            held.callback(link.close)
            is_there = wait_for_learner(link, "--learner", wait_s, stop, progress.say)
            if link.shutdown.is_set():
                raise LearnerUnreachable(
                    f"The run at {who.learner} is over.", "Measure its result: --checkpoint RUN."
                )
            if not is_there:
                raise EvaluationStopped("Interrupted before anything was measured.")
        wait_for_policy(wire, endpoints, wait_s, stop, progress.say)
        timeout_s, slots = config.worker.act_timeout_s, {"evaluate": config.evaluate.slots}
        yield lambda slot: ActClient(
            wire, endpoints, stop.is_set, f"evaluate/{slot}", timeout_s, lambda: slots
        )


def seed_directory(directory: Path, seed: int) -> Path:
    """The directory of the repetition with this seed."""
    return directory / f"seed-{seed}"


def pool(directory: Path, seeds: Sequence[int]) -> Evaluation:
    """Writes results.json over the complete repetitions in `directory`, and returns it."""
    parts = [load_evaluation(seed_directory(directory, seed)) for seed in seeds]
    evaluation = pooled(parts, seeds)
    write_atomically(directory / RESULTS_FILE, evaluation.model_dump_json(indent=2))
    return evaluation


def pooled(parts: Sequence[LoadedEvaluation], seeds: Sequence[int]) -> Evaluation:
    """The numbers over all repetitions."""
    durations = [part.evaluation.duration_s for part in parts]
    return evaluation_of(
        parts[0].evaluation.spec,
        [episode for part in parts for episode in read_episodes(part.directory / EPISODES_FILE)],
        min(part.evaluation.started_at for part in parts),
        sum(durations) if all(durations) else 0.0,
        seeds,
    )


ASK_S = 1.0
"""How long a server may take to describe itself before it is asked again."""


def find_checkpoint(path: Path) -> Path:
    """The checkpoint at `path`: itself one, a pointer such as checkpoints/final, or the newest of a run.

    Raises:
        CheckpointError: There is none, or one of its files is missing, truncated or damaged.
    """
    if (path / MANIFEST).is_file():
        verify(path)
        return path
    if path.name in POINTERS and not path.is_dir():
        return resolve(path.parent, path.name)
    for directory in (path / "checkpoints", path):
        for pointer in ("final", "latest"):
            if (directory / pointer).is_file():
                return resolve(directory, pointer)
    problem = f"There is no checkpoint {path}."
    if path.is_dir():
        problem = f"{path} holds no checkpoint ({MANIFEST} is missing)."
    raise CheckpointError(
        problem,
        "Pass one such as RUN/checkpoints/step_100; a transformers model is measured with "
        "`distrl evaluate --agent model`.",
    )


def wait_for_policy(
    wire: Wire,
    endpoints: Callable[[], Sequence[str]],
    wait_s: float | None,
    stop: threading.Event,
    say: Callable[[str], None],
) -> None:
    """Waits until one of the inference servers that are known now has weights.

    Args:
        wait_s: How long to wait, in seconds; None: without a limit.
        say: Receives a line for each new reason to wait.

    Raises:
        EvaluationStopped: `stop` was set.
    """
    deadline = time.monotonic() + (math.inf if wait_s is None else wait_s)
    reason = ""
    while (left_s := deadline - time.monotonic()) > 0.0:
        said, reason = reason, "no inference server is known"
        for endpoint in list(endpoints()):
            info = ask_info(wire, endpoint, min(ASK_S, left_s))
            if info is not None and info.weight_version >= 0:
                return
            reason = f"{endpoint} has no weights yet" if info is not None else f"{endpoint} does not answer"
        if reason != said:
            say(f"waiting for a policy: {reason}")
        if stop.wait(min(ASK_S, max(0.0, deadline - time.monotonic()))):
            raise EvaluationStopped("Interrupted before anything was measured.")
    raise InferenceUnavailable(
        f"No policy to measure within {wait_s:g} s: {reason}.",
        "Is `distrl serve-inference` running at that address, and its learner with weights?",
    )


def ask_info(wire: Wire, endpoint: str, timeout_s: float) -> Info | None:
    """The description of the server at `endpoint`; None if it does not answer in time."""
    channel = wire.connect_dealer(endpoint)
    deadline = time.monotonic() + timeout_s
    try:
        channel.send(InfoRequest(), timeout_s=timeout_s)
        while (left := deadline - time.monotonic()) > 0:
            received = channel.recv(left)
            if received is not None and isinstance(received.message, Info):
                return received.message
    except NetworkError:
        return None  # not reachable now; the caller asks again until its deadline
    finally:
        channel.close()
    return None


def _serving(config: Config, checkpoint: Path | None) -> tuple[ModuleType, Sequence[str], Path | None]:
    """What serves policies in this process, the vocabulary, and the saved policy; None: the untrained one."""
    try:
        from distrl.workers.inference import serve
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Policies need the package {error.name}.", "Install the extra: pip install 'distrl[train]'."
        ) from error
    saved = None if checkpoint is None else find_checkpoint(checkpoint) / "policy"
    return serve, vocabulary(config.tasks, config.policy.kind), saved


@contextlib.contextmanager
def _serve_here(config: Config, checkpoint: Path | None, wire: Wire) -> Iterator[str]:
    """The endpoint of an inference server in this process."""
    serve, words, saved = _serving(config, checkpoint)
    with serve.serve_checkpoint(config, words, saved, wire) as server:
        yield server.endpoint
        server.check()
