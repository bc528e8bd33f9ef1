"""Where a run's own modules are: the classes that `import_path` names, and suites as "module:name"."""

from __future__ import annotations

from pathlib import Path

from distrl.configs.schema import Config
from distrl.core.importing import look_in


def find_modules(config: Config, directory: Path) -> Config:
    """Lets the run's own modules be imported, and writes down where they are.

    The run's copy of the configuration thus finds them from wherever its processes are started.

    Args:
        config: Its `modules_dir` is taken if it is set, a relative one as seen from `directory`.
        directory: Where they are otherwise, such as that of the configuration file.

    Returns:
        `config` with an absolute `modules_dir`; as it is if it names no module.
    """
    if not names_modules(config):
        return config
    place = directory / Path(config.modules_dir or ".").expanduser()
    look_in(place.resolve())
    return config.model_copy(update={"modules_dir": str(place.resolve())})


def names_modules(config: Config) -> bool:
    """Whether anything in it is from a module outside of distrl."""
    sections = (config.env, config.agent, config.policy, config.judge, config.learner.algorithm)
    return ":" in config.tasks.suite or any(getattr(one, "import_path", None) for one in sections)
