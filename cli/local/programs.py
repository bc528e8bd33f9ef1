"""The addresses of a local run, and the processes that measure its result."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from distrl.cli.backends.roles import distrl
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import ConfigError
from distrl.core.rundir import RunDir
from distrl.core.security import load_security
from distrl.core.sockets import Wire, is_local
from distrl.core.supervisor import Program

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


def assignments(network: NetworkConfig) -> dict[str, str]:
    """The addresses as settings."""
    return {f"network.{name}": getattr(network, name) for name in _ADDRESSES}


def evaluation(config: Config, run: RunDir, checkpoint: Path) -> tuple[Program, Path]:
    """The evaluation of a checkpoint on the test splits, and the directory of its results."""
    directory = run.evaluations / checkpoint.name
    options = ("--checkpoint", str(checkpoint), "--output", str(directory), "--resume")
    command = distrl("evaluate", str(run.config), *options)
    patience_s = Program.patience_s + (config.devices.close_s if config.devices.pool else 0.0)
    return Program(f"evaluate-{checkpoint.name}", command, ends=True, patience_s=patience_s), directory
