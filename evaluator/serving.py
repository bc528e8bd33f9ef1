"""The policy that is measured: servers that run already, those of a learner, or one started here."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distrl.configs.schema import Config, NetworkConfig
from distrl.core.checkpoints import MANIFEST, POINTERS, resolve, verify
from distrl.core.errors import CheckpointError, InferenceUnavailable, MissingDependency, NetworkError
from distrl.core.messages import Info, InfoRequest
from distrl.core.security import load_security
from distrl.core.sockets import Wire
from distrl.evaluator.evaluator import EvaluationStopped
from distrl.evaluator.suites import vocabulary
from distrl.workers.joining import REMIND_S

MODEL_FILE = "config.json"
"""What a directory holds that is a model of transformers."""

ASK_S = 1.0
"""How long a server may take to say what it serves before it is asked again."""

Endpoints = Callable[[], Sequence[str]]


def make_wire(network: NetworkConfig) -> Wire:
    """The sockets of this process, with keys if the configuration names a folder of them.

    Raises:
        SecurityError: If the keys cannot be used.
    """
    return Wire(load_security(network.keys_path, network.key_name))


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that `path` means: one itself, a pointer such as checkpoints/final, or a run's newest.

    Raises:
        CheckpointError: There is none, or a file of it is missing, truncated or damaged.
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
    if (path / MODEL_FILE).is_file():
        raise CheckpointError(
            f"{path} is a model of transformers, no checkpoint of a run.",
            f"Measure it by --agent model --set policy.model={path}, with policy.kind hub or autoui.",
        )
    if path.is_dir():
        raise CheckpointError(
            f"{path} holds no checkpoint ({MANIFEST} is missing).",
            "Pass one such as RUN/checkpoints/step_100.",
        )
    raise CheckpointError(f"There is no checkpoint {path}.", "Pass one such as RUN/checkpoints/step_100.")


def wait_for_policy(
    wire: Wire,
    endpoints: Endpoints,
    wait_s: float | None,
    stop: threading.Event,
    say: Callable[[str], None],
) -> Info:
    """Waits until an inference server has weights.

    Args:
        wire: Makes the connections.
        endpoints: Tells the servers that are known now.
        wait_s: How long to wait, in seconds; None for as long as it takes.
        stop: Ends the wait.
        say: Receives a line for each new reason to wait, and every `REMIND_S` seconds.

    Returns:
        What the first server that is ready says of itself.

    Raises:
        InferenceUnavailable: None was ready in time.
        EvaluationStopped: `stop` was set.
    """
    start = time.monotonic()
    deadline = start + (math.inf if wait_s is None else wait_s)
    reason, said, remind_s = "", "", REMIND_S
    while (now := time.monotonic()) < deadline:
        known = list(endpoints())
        reason = "no inference server is known"
        for endpoint in known:
            info = ask_info(wire, endpoint, min(ASK_S, max(0.0, deadline - time.monotonic())))
            if info is not None and info.weight_version >= 0:
                return info
            reason = f"{endpoint} has no weights yet" if info is not None else f"{endpoint} does not answer"
        if reason != said:
            said = reason
            say(f"waiting for a policy: {reason}")
        elif now - start >= remind_s:
            remind_s += REMIND_S
            say(f"still waiting for a policy ({now - start:.0f} s): {reason}")
        if stop.wait(min(ASK_S, max(0.0, deadline - time.monotonic()))):
            raise EvaluationStopped("Interrupted before anything was measured.")
    raise InferenceUnavailable(
        f"No policy to measure within {wait_s:g} s: {reason}.",
        "Is `distrl serve-inference` running at that address, and its learner with weights?",
    )


def ask_info(wire: Wire, endpoint: str, timeout_s: float) -> Info | None:
    """What the server at `endpoint` says of itself, None if it does not say it in time."""
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


@contextlib.contextmanager
def serve_here(config: Config, checkpoint: Path | None) -> Iterator[tuple[Wire, str]]:
    """An inference server in this process, on the loopback interface.

    Args:
        checkpoint: What it serves; None: the policy of the configuration as it begins.

    Returns:
        Sockets that reach it, and its endpoint.

    Raises:
        CheckpointError: The checkpoint is damaged or of another policy.
        MissingDependency: torch is not installed.
    """
    try:
        from distrl.workers.inference.serve import serve_checkpoint
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Policies need the package {error.name}.", "Install the extra: pip install 'distrl[train]'."
        ) from error
    words = vocabulary(config.tasks.suite)
    saved = None if checkpoint is None else checkpoint / "policy"
    with Wire() as wire, serve_checkpoint(config, words, saved, wire) as server:
        yield wire, server.endpoint
        server.check()
