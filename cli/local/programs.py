"""The processes of a local run: which commands, at which addresses, with which environment."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from distrl.cli.run_learner import GRACE_S
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import ConfigError, NoUpdates
from distrl.core.rundir import RunDir
from distrl.core.security import load_security
from distrl.core.sockets import Wire, is_local
from distrl.core.supervisor import Program

CHECKPOINT_S = GRACE_S + 5.0
"""How long a learner has to write its checkpoint after the signal to stop; usually it ends sooner."""

LEAVE_STEP_S = 3.0
"""How long a worker on a pool of devices may take to leave a step, before it closes the pool."""

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""Lets glibc keep the buffers of a learner that computes on a CPU: each pass needs tens of megabytes again,
and memory that comes from the system is faulted in page by page."""

_ADDRESSES = ("control", "broadcast", "weights")


def free_addresses(network: NetworkConfig) -> NetworkConfig:
    """`network` with free loopback ports in place of default addresses, so that runs can stand side by side.

    Addresses that the user chose stay: other machines may count on them.
    """
    update: dict[str, str] = {}
    with contextlib.ExitStack() as held:  # all at once, or two could get the same port
        for name in _ADDRESSES:
            if getattr(network, name) == NetworkConfig.model_fields[name].default:
                listener = held.enter_context(socket.socket())
                listener.bind(("127.0.0.1", 0))
                update[name] = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    return network.model_copy(update=update)


def free_port() -> int:
    """A port of the loopback interface that nothing uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def check_addresses(network: NetworkConfig, inference_servers: int = 1) -> None:
    """Binds each address and lets it go, so that one in use is reported before anything is started."""
    if inference_servers > 1 and not network.act.endswith("*"):
        raise ConfigError(
            f"Only one of {inference_servers} inference servers can bind network.act, {network.act}.",
            "Let each choose its port, as in tcp://127.0.0.1:*, or set local.inference_servers=1.",
        )
    with Wire(load_security(network.keys_path, network.key_name)) as wire:
        for name in (*_ADDRESSES, "act"):
            wire.bind_router(getattr(network, name)).close()


def unreachable_servers(network: NetworkConfig) -> str | None:
    """A warning if workers on other machines would get addresses that only this machine can reach."""
    act = network.advertise or network.act
    if is_local(network.control) or not is_local(act):
        return None
    return (
        f"network.control {network.control} can be reached from other machines, but their workers would get "
        f"{act} as the address of inference servers. Set network.act=tcp://0.0.0.0:* and network.advertise=tcp://HOST:*."
    )


def distrl(*arguments: str) -> tuple[str, ...]:
    """The command line that runs `distrl ARGUMENTS` with this interpreter."""
    return (sys.executable, "-m", "distrl", *arguments)


def assignments(network: NetworkConfig) -> list[str]:
    """The addresses as `--set` options."""
    return [f"--set=network.{name}={getattr(network, name)}" for name in _ADDRESSES]


def learner(run: RunDir, network: NetworkConfig, is_on_cpu: bool = False) -> Program:
    """The learner; its run directory exists already, so it always resumes, at first from nothing."""
    command = distrl("run-learner", str(run.config), "--resume", *assignments(network))
    env = allocator() if is_on_cpu else {}
    done = frozenset({0, NoUpdates.exit_code})  # its warm start is measured all the same
    return Program("learner", command, ends=True, patience_s=CHECKPOINT_S, env=env, done=done)


def allocator(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`ALLOCATOR`, unless the user has settings for the allocator."""
    is_users = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in inherited)
    return {} if is_users else dict(ALLOCATOR)


def servers_and_workers(config: Config, run: RunDir, network: NetworkConfig) -> list[Program]:
    """The inference servers and the workers."""

    settings = assignments(network)

    def program(command: str, name: str, *options: str, more_s: float = 0.0) -> Program:
        line = distrl(command, str(run.config), "--name", name, *options, *settings)
        return Program(name, line, patience_s=Program.patience_s + more_s)

    servers = [program("serve-inference", f"inference-{i}") for i in range(config.num_servers)]
    spool = ("--spool", str(run.spool))
    # Killed too early, a worker would leave emulators behind.
    more_s = LEAVE_STEP_S + config.devices.close_s if config.devices.pool else 0.0
    workers = [
        program("run-worker", f"worker-{i}", *spool, more_s=more_s) for i in range(config.local.workers)
    ]
    return servers + workers


def evaluation(config: Config, run: RunDir, checkpoint: Path) -> tuple[Program, Path]:
    """The evaluation of a checkpoint on the test splits, and the directory of its results."""
    directory = run.evaluations / checkpoint.name
    options = ("--checkpoint", str(checkpoint), "--output", str(directory), "--resume")
    command = distrl("evaluate", str(run.config), *options)
    patience_s = Program.patience_s + (config.devices.close_s if config.devices.pool else 0.0)
    return Program(f"evaluate-{checkpoint.name}", command, ends=True, patience_s=patience_s), directory


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for every child: one thread per maths library, because the processes share the cores."""
    wanted = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in wanted.items() if name not in inherited}
