"""The processes of a run: which commands, what each needs, with which environment and files.

`distrl train` starts them here, `distrl launch` hands them to a backend. Nothing else says how a process of a
run is started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from distrl.cli.run_learner import GRACE_S
from distrl.configs.placement import RolePlacement
from distrl.configs.schema import Config
from distrl.core.errors import NoUpdates
from distrl.core.supervisor import Program
from distrl.core.types import Record

CHECKPOINT_S = GRACE_S + 5.0
"""How long a learner has to write its checkpoint after the signal to stop; usually it ends sooner."""

LEAVE_STEP_S = 3.0
"""How long a worker on a pool of devices may take to leave a step, before it closes the pool."""

PATIENCE_S = 2.0

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""Lets glibc keep the buffers of a learner that computes on a CPU: each pass needs tens of megabytes again,
and memory that comes from the system is faulted in page by page."""

KEYS = "launch/keys"
"""The keys directory of a launched run, in its run directory."""

Kind = Literal["learner", "inference", "worker"]


class Role(Record):
    """A process of a run.

    Attributes:
        needs: What a backend reserves for it.
        arguments: Those of `distrl`. Paths in them begin with the `folder` that `roles` was given.
        env: Variables on top of the environment.
        files: What it reads, seen from the run directory. Those that end with `.key` are secret.
        patience_s: How long after SIGTERM it may be killed.
        done: The exit codes with which its work is done.
    """

    kind: Kind
    name: str
    arguments: tuple[str, ...]
    needs: RolePlacement
    env: Mapping[str, str] = {}
    files: tuple[str, ...] = ()
    patience_s: float = PATIENCE_S
    done: tuple[int, ...] = (0,)

    def program(self, env: Mapping[str, str], ends: bool = True) -> Program:
        """The process as a child of this one. Without `ends` it is started again whenever it ends."""
        command, every = distrl(*self.arguments), {**self.env, **env}
        return Program(self.name, command, ends, self.patience_s, every, frozenset(self.done))


def distrl(*arguments: str) -> tuple[str, ...]:
    """The command line that runs `distrl ARGUMENTS` with this interpreter."""
    return (sys.executable, "-m", "distrl", *arguments)


def roles(
    config: Config,
    folder: Path,
    settings: Mapping[str, str],
    num_servers: int,
    num_workers: int,
    has_keys: bool = False,
) -> list[Role]:
    """The learner, the inference servers and the workers of a run, in this order.

    Args:
        folder: The run directory, as the processes see it. It exists already, with the configuration, so the
            learner always resumes, at first from nothing.
        settings: Values by key, on top of the configuration: the addresses.
        has_keys: Each process has a key of its own name in `KEYS`.
    """
    placed = config.placement
    shared = [f"--set={key}={value}" for key, value in settings.items()]

    def role(
        kind: Kind, name: str, given: RolePlacement, *command: str, patience_s: float = PATIENCE_S
    ) -> Role:
        own, files = [], ["config.yaml"]
        if has_keys:
            own = [f"--set=network.keys_dir={folder / KEYS}", f"--set=network.key_name={name}"]
            files += [f"{KEYS}/server.pub"]
            files += [f"{KEYS}/{name}.key"] if kind != "learner" else []
            files += [f"{KEYS}/server.key", f"{KEYS}/allowed"] if kind != "worker" else []
        return Role(
            kind=kind,
            name=name,
            arguments=(command[0], str(folder / "config.yaml"), *command[1:], *shared, *own),
            needs=given,
            files=tuple(files),
            patience_s=patience_s,
        )

    # A run without updates is done, too: its warm start is measured all the same.
    lasting = {"patience_s": CHECKPOINT_S, "done": (0, NoUpdates.exit_code)}
    learner = role("learner", "learner", placed.learner, "run-learner", "--resume")
    found = [learner.model_copy(update=lasting)]
    for name in (f"inference-{i}" for i in range(num_servers)):
        found.append(role("inference", name, placed.inference, "serve-inference", "--name", name))
    # Killed too early, a worker would leave emulators behind.
    patience_s = PATIENCE_S + (LEAVE_STEP_S + config.devices.close_s if config.devices.pool else 0.0)
    for name in (f"worker-{i}" for i in range(num_workers)):
        call = ("run-worker", "--name", name, "--spool", str(folder / "spool"))
        found.append(role("worker", name, placed.workers, *call, patience_s=patience_s))
    return found


def allocator(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`ALLOCATOR`, unless the user has settings for the allocator."""
    is_users = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in inherited)
    return {} if is_users else dict(ALLOCATOR)


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for every process: one thread per maths library, because the processes share the cores."""
    wanted = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in wanted.items() if name not in inherited}
