"""The environments by name. A new one is a file in this folder and a line here, or an `import_path`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from distrl.configs.schema import EnvConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import choose
from distrl.core.user_errors import build, check_methods
from distrl.workers.devices.device import Device
from distrl.workers.envs.base import Env

ENVS = {
    "phone": "distrl.workers.envs.phone:PhoneEnv",
    "browser": "distrl.workers.envs.browser:BrowserEnv",
    "android_world": "distrl.workers.envs.android_world:AndroidWorldEnv",
    "two_screens": "distrl.workers.envs.two_screens:TwoScreensEnv",
    "metaworld": "distrl.workers.envs.metaworld:MetaWorldEnv",
    "libero": "distrl.workers.envs.libero:LiberoEnv",
}


def build_env(
    config: EnvConfig, device: Device | None = None, options: Mapping[str, Any] | None = None
) -> Env:
    """The environment that `config` names, on `device` of the pool if one is given, made with its options.

    `options` are those of the device, such as a snapshot or a recipe. Raises ConfigError, MissingDependency,
    or EnvError if it cannot start.
    """
    make = choose(ENVS, config.kind, config.import_path)
    name = config.import_path or config.kind
    takes = inspect.signature(make).parameters
    on: dict[str, Any] = {}
    if device is not None and "device" in takes:
        on = {"device": device, **{key: value for key, value in (options or {}).items() if key in takes}}
    elif device is not None and "backend" in takes:
        from distrl.workers.envs.backends import backend_for

        on = {"backend": backend_for(device, **(options or {}))}
    elif device is not None:
        raise ConfigError(
            f"env {name!r} takes no device, but devices.pool is not empty.",
            "Empty the pool, or choose another env.",
        )
    env: Env = build(make, {**on, **config.options}, "env")
    check_methods(env, Env, name)
    return env


def simulator_of(config: EnvConfig) -> str:
    """The packages and versions that results depend on, as the environment says; "" if it does not."""
    simulator = getattr(choose(ENVS, config.kind, config.import_path), "simulator", None)
    return "" if simulator is None else str(simulator())


def seed_is_instance(config: EnvConfig) -> bool:
    """Whether a task's seed chooses what is asked for, and not only how it starts, as its class says."""
    return bool(getattr(choose(ENVS, config.kind, config.import_path), "seed_is_instance", False))
