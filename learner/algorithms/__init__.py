"""Objectives by the `kind` of `learner.algorithm`; a class of your own is named by its import path."""

from __future__ import annotations

from typing import Any

from distrl.configs.algorithms import CustomConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import import_object
from distrl.core.user_errors import read_fields
from distrl.learner.algorithms.base import Algorithm

ALGORITHMS = {
    "aride": "distrl.learner.algorithms.aride:Aride",
    "digirl": "distrl.learner.algorithms.digirl:Digirl",
    "ppo": "distrl.learner.algorithms.ppo:Ppo",
    "gipo": "distrl.learner.algorithms.gipo:Gipo",
    "grpo": "distrl.learner.algorithms.grpo:Grpo",
    "vtrace": "distrl.learner.algorithms.vtrace:Vtrace",
    "bc": "distrl.learner.algorithms.bc:Cloning",
    "filtered-bc": "distrl.learner.algorithms.bc:FilteredCloning",
}


def build_algorithm(learner: LearnerConfig) -> Algorithm[Any]:
    """The objective that `learner.algorithm` names.

    Raises:
        ConfigError: `import_path` does not name an objective, or `options` do not fit it.
    """
    section = learner.algorithm
    if not isinstance(section, CustomConfig):
        built: Algorithm[Any] = import_object(ALGORITHMS[section.kind])(section, learner)
        return built
    objective = import_object(section.import_path)
    if not (isinstance(objective, type) and issubclass(objective, Algorithm)):
        raise ConfigError(
            f"learner.algorithm.import_path: {section.import_path} is not an objective.",
            "Name a subclass of distrl.learner.algorithms.base.Algorithm.",
        )
    options = read_fields(objective.options, section.options, "learner.algorithm.options")
    return objective(options, learner)
