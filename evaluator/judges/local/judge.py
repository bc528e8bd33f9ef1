"""The judge `local`: a network that `distrl train-judge` has fitted, run in this process."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path

import torch

from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import ConfigError, JudgeError, PolicyError
from distrl.core.policies import use_threads
from distrl.core.types import Trajectory, Verdict
from distrl.evaluator.judges.local.data import Example
from distrl.evaluator.judges.local.model import read_judge


class LocalJudge:
    """A trained network. Thread-safe; calls take turns.

    Args:
        config: Where it is, and the least confidence.

    Raises:
        ConfigError: No directory is named.
        JudgeError: It holds no judge.
    """

    name = "local"

    def __init__(self, config: LocalJudgeConfig) -> None:
        if not config.path:
            raise ConfigError("judge.path is empty.", "Set it to the output directory of distrl train-judge.")
        self._path, self._config = Path(config.path).expanduser(), config
        self._model, self._card = read_judge(self._path)
        self._lock = threading.Lock()
        use_threads(1)

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The network's verdict; `score` is its calibrated probability of success.

        Undecided if the elements of the last screen were not recorded, its screenshot is not a valid image,
        or the confidence is below `min_confidence`.
        """
        try:
            with self._lock, torch.inference_mode():
                return self.verdict(self._model([Example.of(trajectory, images)]).item())
        except (PolicyError, JudgeError) as error:
            return Verdict.none(self.name, str(error))

    def verdict(self, logit: float, step: int = 0) -> Verdict:
        """The verdict for an output of the network; `step` as in `Verdict`."""
        score = probability(logit, self._card.temperature)
        success = score >= self._card.threshold
        sure = score if success else 1.0 - score
        return Verdict(
            success=success,
            score=score,
            reason=f"The trained judge gives success a probability of {100 * score:.1f}%.",
            is_decided=max(sure, 0.5) >= self._config.min_confidence,
            judge=self.name,
            model=str(self._path),
            step=step,
        )


def probability(logit: float, temperature: float) -> float:
    """σ(logit / temperature)."""
    return 0.5 * (1.0 + math.tanh(0.5 * logit / temperature))
