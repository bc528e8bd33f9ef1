"""Train–inference mismatch: what the learner computes of sampled tokens, with the very weights that are said
to have sampled them, against the log-probabilities that came with them.

    d = log π_v − log μ     of a token that came with the weight version v, which the learner has as π_v

Where both sides compute alike d is 0, up to rounding. It is not when kernels or precision differ, or when a
server acts with other weights than it says, with another template, or with truncated sampling. Policy lag is
no part of it, since both sides are of one version: that is what `off_policy/*` has besides.

The learner's weights have moved on when tokens of version v come in, so the newest published versions are
kept (the buffers that the server offers anyway), and now and then one of them is lent to the policy for a
pass over a few tokens. Used by the training thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from distrl.configs.schema import LearnerConfig
from distrl.core.errors import MismatchError
from distrl.learner.episodes import Episode, StepData
from distrl.learner.mismatch_alarm import Alarm
from distrl.learner.off_policy import Floats
from distrl.learner.parts import Parts

NUM_EPISODES, STEPS_EACH = 4, 4
"""What is measured at a time: the newest episodes, and of each its last steps."""

LOWEST, HIGHEST = 0.9, 1.1
"""Ratios outside are counted."""

CLAMP = 20.0
"""Log-ratios are clamped to ± this: a token that the learner thinks impossible has none."""

LONG_WITHOUT = 20
"""After so many measurements without a token that could be measured, the log says why."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mismatch:
    """Of n tokens that one version is said to have sampled.

    Attributes:
        tokens: n.
        kl: Mean of exp(d) − 1 − d, which estimates KL(μ‖π_v) and is never negative (Schulman 2020, "k3").
        kl_k1: Mean of −d, which estimates the same without bias and may be negative.
        kl_max: The largest exp(d) − 1 − d of a token.
        log_ratio_max: The largest |d|.
        outside: The share of ratios exp(d) outside [0.9, 1.1].
    """

    tokens: int
    kl: float
    kl_k1: float
    kl_max: float
    log_ratio_max: float
    outside: float

    @classmethod
    def of(cls, log_ratios: Floats) -> Mismatch:
        """From [n] d, at least one; what is not finite counts as a ratio of almost 0."""
        d = clamped(log_ratios)
        ratio, k3 = np.exp(d), kl_of_tokens(d)
        return cls(
            tokens=len(d),
            kl=float(k3.mean()),
            kl_k1=float(-d.mean()),
            kl_max=float(k3.max()),
            log_ratio_max=float(np.abs(d).max()),
            outside=float(((ratio < LOWEST) | (ratio > HIGHEST)).mean()),
        )


def clamped(log_ratios: Floats) -> Floats:
    """[n] d within ± `CLAMP`."""
    d: Floats = np.clip(np.nan_to_num(log_ratios, nan=-CLAMP), -CLAMP, CLAMP)
    return d


def kl_of_tokens(d: Floats) -> Floats:
    """[n] exp(d) − 1 − d; by expm1, since d is often as small as rounding."""
    k3: Floats = np.maximum(np.expm1(d) - d, 0.0)
    return k3


@dataclass(frozen=True)
class Sample:
    """What is measured at a time: steps of episodes that came in, all with tokens of one version."""

    version: int
    steps: list[StepData]
    episodes: list[str]


Origin = tuple[str, str]
"""Of a token: the id of its episode, and the server that wrote its step."""


def worst(log_ratios: Floats, origins: Sequence[Origin]) -> str:
    """Where the worst of the tokens is from, in words; of several servers also the mean KL of each.

    Args:
        log_ratios: [n] d.
        origins: [n].
    """
    kl = kl_of_tokens(clamped(log_ratios))
    name, server = origins[int(np.argmax(kl))]
    told = f"{name}, written by server {server}" if server else name
    by_server: dict[str, list[float]] = {}
    for value, (_, its_server) in zip(kl, origins, strict=True):
        by_server.setdefault(its_server, []).append(float(value))
    if len(by_server) < 2:
        return told
    means = {its: sum(values) / len(values) for its, values in by_server.items()}
    ranked = sorted(means, key=lambda its: -means[its])
    parts = ", ".join(f"{its or 'unknown'} {means[its]:.3g}" for its in ranked)
    return f"{told}; KL by server: {parts}"


def choose(episodes: Iterable[Episode], versions: Sequence[int]) -> Sample | None:
    """The last steps of the newest episodes, of the version in `versions` that most of them have.

    Args:
        episodes: As they came in, the newest last.
        versions: Those that can be measured, oldest first; of equals the newest is taken.
    """
    best: Sample | None = None
    newest_first = list(episodes)[::-1]
    for version in versions:
        steps: list[StepData] = []
        names: list[str] = []
        for episode in newest_first:
            found = [step for step in episode.steps if version in step.versions][-STEPS_EACH:]
            if found and len(set(names)) < NUM_EPISODES:
                steps += found
                names += [episode.id] * len(found)
        if steps and (best is None or len(steps) >= len(best.steps)):
            best = Sample(version, steps, names)
    return best


class MismatchProbe:
    """Measures every `learner.mismatch.every` updates, before the update, and raises the alarm.

    With truncated sampling (`learner.top_p`, `top_k`) nothing is measured: log μ is then that of the
    truncated distribution, on purpose.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        learner: LearnerConfig = parts.config.learner
        self._every = learner.mismatch.every
        self._is_stopping = learner.mismatch.on_alarm == "stop"
        self._is_possible = learner.top_p >= 1.0 and learner.top_k == 0
        self._alarm = Alarm(learner.mismatch, parts.usual_mismatch)
        self._num_without = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to measure."""
        return self._is_possible and self._parts.progress.updates % self._every == 0

    def measure(self, arrived: Sequence[Episode]) -> dict[str, float]:
        """The `mismatch/*` metrics.

        Args:
            arrived: The newest episodes since the last time.

        Raises:
            MismatchError: There is an alarm, and the run is to stop then.
        """
        start = time.perf_counter()
        sample = choose(arrived, list(self._parts.publisher.recent))
        if sample is None:
            return {"mismatch/tokens": 0.0, **self._without()}
        self._num_without = 0
        log_ratios, origins = self._log_ratios(sample)
        numbers = Mismatch.of(log_ratios)
        metrics = {
            **{f"mismatch/{name}": float(value) for name, value in asdict(numbers).items()},
            **self._alarm.note(numbers.kl, numbers.outside, sample.version, worst(log_ratios, origins)),
            "mismatch/measure_s": time.perf_counter() - start,
        }
        if self._is_stopping and self._alarm.is_on:
            self._parts.write_metrics(metrics)
            raise MismatchError(
                f"{self._alarm.finding} learner.mismatch.on_alarm is 'stop'.",
                "See docs/models.md for what causes it; --resume goes on when it is mended.",
            )
        return metrics

    def _log_ratios(self, sample: Sample) -> tuple[Floats, list[Origin]]:
        """[n] d of the sample's tokens of its version, and where each is from."""
        parts, batch = self._parts, self._parts.batcher.steps(sample.steps)
        behaviour = batch.behaviour_logprobs
        logprobs = parts.engine.logprobs(batch, parts.lendable(sample.version))
        d = (logprobs.double() - behaviour.double()).numpy()
        pairs = [
            (d[row, place], (name, step.server))
            for row, (step, name) in enumerate(zip(sample.steps, sample.episodes, strict=True))
            for place, version in enumerate(step.versions)
            if version == sample.version
        ]
        return np.array([value for value, _ in pairs]), [origin for _, origin in pairs]

    def _without(self) -> Mapping[str, float]:
        """Says once, if it lasts, that nothing can be measured; an alarm stays as it was."""
        self._num_without += 1
        if self._num_without == LONG_WITHOUT:
            _log.warning(
                "train-inference mismatch: for %d updates no token came in of weights that the learner still "
                "has (versions %s), so nothing is measured; publish less often (learner.publish_every)",
                LONG_WITHOUT * self._every,
                ", ".join(map(str, self._parts.publisher.recent)) or "none",
            )
        return self._alarm.state()
