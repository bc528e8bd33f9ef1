"""Algorithms by name, as in `learner.algorithm` of the configuration."""

from __future__ import annotations

from collections.abc import Callable

from distrl.configs.schema import LearnerConfig
from distrl.learner.algorithms.aride import Aride
from distrl.learner.algorithms.base import Algorithm

ALGORITHMS: dict[str, Callable[[LearnerConfig], Algorithm]] = {
    "aride": lambda config: Aride(config.aride),
}
