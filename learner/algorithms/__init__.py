"""Algorithms by name, as in `learner.algorithm` of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distrl.configs.algorithms import CustomConfig
from distrl.configs.schema import LearnerConfig
from distrl.core.importing import import_object
from distrl.learner.algorithms.aride import Aride
from distrl.learner.algorithms.base import Algorithm
from distrl.learner.algorithms.bc import Cloning
from distrl.learner.algorithms.digirl import Digirl
from distrl.learner.algorithms.gipo import Gipo
from distrl.learner.algorithms.grpo import Grpo
from distrl.learner.algorithms.ppo import Ppo
from distrl.learner.algorithms.vtrace import Vtrace

ALGORITHMS: dict[str, Callable[[Any, LearnerConfig], Algorithm]] = {
    "aride": lambda own, config: Aride(own, config.value_recompute, config.max_new_tokens, config.mismatch),
    "digirl": lambda own, config: Digirl(own, config.value_recompute),
    "ppo": lambda own, config: Ppo(own, config.value_recompute, config.mismatch),
    "gipo": lambda own, config: Gipo(own, config.value_recompute, config.mismatch),
    "grpo": lambda own, config: Grpo(own, config.mismatch),
    "vtrace": lambda own, config: Vtrace(own, config.value_recompute, config.mismatch),
    "bc": lambda own, config: Cloning(own, is_filtered=False),
    "filtered-bc": lambda own, config: Cloning(own, is_filtered=True),
}


def build_algorithm(config: LearnerConfig) -> Algorithm:
    """The objective that `config.algorithm` names."""
    own = config.algorithm
    if isinstance(own, CustomConfig):
        made: Algorithm = import_object(own.import_path)(**own.options)
        return made
    return ALGORITHMS[own.kind](own, config)
