"""Roles as real processes: addresses, starting, and what they have come to."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from waiting import until

from distrl.configs.load import load_config
from distrl.core import checkpoints
from distrl.core.process import Child, stop_all
from distrl.core.sockets import Wire
from distrl.evaluator.suites import vocabulary


def free_endpoints(count: int) -> list[str]:
    """Loopback addresses that were free a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    endpoints = [f"tcp://127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return endpoints


def start(folder: Path, name: str, *arguments: str) -> Child:
    command = [sys.executable, "-m", "distrl", *arguments]
    return Child(name, command, folder / f"{name}.log")


def start_node(folder: Path, node: int, address: str, *arguments: str) -> Child:
    """The ranks of one of two hosts, one rank each, by torchrun; `address` is where they meet."""
    from distrl.learner.ranks import loopback

    host, _, port = address.removeprefix("tcp://").rpartition(":")
    launcher = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
        *(f"--node-rank={node}", f"--master-addr={host}", f"--master-port={port}", "-m", "distrl"),
    ]
    return Child(f"node-{node}", [*launcher, *arguments], folder / f"node-{node}.log", loopback())


@contextlib.contextmanager
def served(file: Path) -> Iterator[list[Child]]:
    """The run's inference server, in this process: another one would take seconds to load torch.

    Gives a list for the run's processes, which are stopped at the end.
    """
    from distrl.workers.inference.serve import serve_beside_learner

    config = load_config(str(file))
    words, children = vocabulary(config.tasks), list[Child]()
    with Wire() as wire, serve_beside_learner(config, words, "inference-0", wire):
        try:
            yield children
        finally:
            stop_all((child, 5.0) for child in children)


def check_alive(children: list[Child]) -> None:
    for child in children:
        assert child.poll() is None, f"{child.name} ended: {child.log_file.read_text()[-2000:]}"


def wait_for(children: list[Child], holds: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Waits until `holds`, while all children live."""
    until(
        holds,
        what,
        deadline_s,
        meanwhile=lambda: check_alive(children),
        details=lambda: "\n".join(child.log_file.read_text()[-2000:] for child in children),
    )


def small_run(folder: Path, env: dict[str, Any], **learner: Any) -> Path:
    """The configuration file of runs/run in `folder`: few episodes of counting, at free addresses.

    Args:
        folder: Where.
        env: The section env.
        learner: Further keys of the section learner.
    """
    control, broadcast, weights = free_endpoints(3)
    small: dict[str, Any] = {
        "name": "run",
        "runs_dir": str(folder / "runs"),
        "tasks": {"suite": "counting_suite:tasks"},
        "env": env,
        "policy": {
            "d_model": 32, "num_layers": 1, "num_heads": 2, "d_ff": 64,
            "image_size": [36, 72], "grid": [2, 2],
        },
        "network": {"control": control, "broadcast": broadcast, "weights": weights},
        "worker": {"slots": 2},
        "learner": {
            "batch_trajectories": 2,
            "min_replay": 4,
            "updates_per_episode": 0.5,
            "publish_every": 1,
            "checkpoint_every": 3,
            "eval_every": 8,
            "eval_episodes": 2,
            "replay": {"capacity": 16},
            "demonstrations": {"episodes": 4, "updates": 4, "batch_size": 8, "critic_updates": 2},
            **learner,
        },
    }  # fmt: skip
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(small))
    return file


def step_of_latest(directory: Path) -> int:
    return checkpoints.step_of(checkpoints.pointed(directory, "latest") or "") or 0
