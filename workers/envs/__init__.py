"""The environments by name. A new one is a file in this folder and a line here, or an `import_path`."""

from __future__ import annotations

from distrl.configs.schema import EnvConfig
from distrl.core.importing import choose
from distrl.workers.building import build
from distrl.workers.envs.base import Env

ENVS = {
    "phone": "distrl.workers.envs.phone:PhoneEnv",
    "browser": "distrl.workers.envs.browser:BrowserEnv",
}


def build_env(config: EnvConfig) -> Env:
    """The environment that `config` names, made with its options.

    Raises:
        ConfigError: If there is no such environment, or it does not take these options.
        MissingDependency: If it needs a package or program that is not installed.
        EnvError: If it cannot start.
    """
    env: Env = build(choose(ENVS, config.kind, config.import_path), config.options, "env")
    return env
