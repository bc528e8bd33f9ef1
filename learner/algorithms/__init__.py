"""Algorithms by name, as in `learner.algorithm` of the configuration."""

from __future__ import annotations

from collections.abc import Callable

from distrl.configs.schema import LearnerConfig
from distrl.learner.algorithms.aride import Aride
from distrl.learner.algorithms.base import Algorithm
from distrl.learner.algorithms.bc import Cloning
from distrl.learner.algorithms.digirl import Digirl
from distrl.learner.algorithms.gipo import Gipo
from distrl.learner.algorithms.grpo import Grpo
from distrl.learner.algorithms.ppo import Ppo
from distrl.learner.algorithms.vtrace import Vtrace

ALGORITHMS: dict[str, Callable[[LearnerConfig], Algorithm]] = {
    "aride": lambda config: Aride(
        config.aride, config.value_recompute, config.max_new_tokens, config.mismatch
    ),
    "digirl": lambda config: Digirl(config.digirl, config.value_recompute),
    "ppo": lambda config: Ppo(config.ppo, config.value_recompute, config.mismatch),
    "gipo": lambda config: Gipo(config.gipo, config.value_recompute, config.mismatch),
    "grpo": lambda config: Grpo(config.grpo, config.mismatch),
    "vtrace": lambda config: Vtrace(config.vtrace, config.value_recompute, config.mismatch),
    "bc": lambda config: Cloning(config.bc, is_filtered=False),
    "filtered-bc": lambda config: Cloning(config.bc, is_filtered=True),
}
