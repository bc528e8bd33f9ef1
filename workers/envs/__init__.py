"""The environments by name. A new one is a file in this folder and a line here, or an `import_path`."""

from __future__ import annotations

import inspect
from typing import Any

from distrl.configs.schema import EnvConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import choose
from distrl.workers.building import build
from distrl.workers.devices.base import Device
from distrl.workers.envs.base import Env

ENVS = {
    "phone": "distrl.workers.envs.phone:PhoneEnv",
    "browser": "distrl.workers.envs.browser:BrowserEnv",
}


def build_env(config: EnvConfig, device: Device | None = None) -> Env:
    """The environment that `config` names, made with its options.

    Args:
        config: Which one.
        device: A device of the pool that it shall act on; None: it makes its own.

    Raises:
        ConfigError: If there is no such environment, it does not take these options, or takes no device.
        MissingDependency: If it needs a package or program that is not installed.
        EnvError: If it cannot start.
    """
    make = choose(ENVS, config.kind, config.import_path)
    options = config.options if device is None else {**config.options, **_on(device, make, config)}
    env: Env = build(make, options, "env")
    return env


def _on(device: Device, make: Any, config: EnvConfig) -> dict[str, object]:
    """The option that puts an environment on `device`: its `device`, or a `backend` of tasks on it."""
    takes = inspect.signature(make).parameters
    if "device" in takes:
        return {"device": device}
    if "backend" in takes:
        from distrl.workers.envs.pool_backends import backend_for

        return {"backend": backend_for(device)}
    name = config.import_path or config.kind
    raise ConfigError(
        f"env {name!r} takes no device, but devices.pool is not empty.",
        "Empty the pool, or choose another env.",
    )
