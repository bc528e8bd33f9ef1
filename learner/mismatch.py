"""Train–inference mismatch: log-probabilities that the learner computes with the weights that a server named,
against the log-probabilities that the server sent.

    d = log π_v − log μ     of a token that was sampled with weight version v, which the learner has as π_v

docs/algorithms.md has what moves it and how it is measured. Used by the training thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from statistics import median_low

import numpy as np

from distrl.core.errors import MismatchError
from distrl.core.policies import weights_io
from distrl.learner.context import Context
from distrl.learner.episodes import Episode, StepData
from distrl.learner.off_policy import Floats

NUM_EPISODES, STEPS_EACH = 4, 4
"""What is measured at a time: the newest episodes, and of each its last steps."""

CLAMP = 20.0
"""Log-ratios are clamped to ± this: a token that the learner considers impossible has none."""

RECENT = 3
"""Measurements whose median is compared with the limit: a single token may be far off by chance."""

REMEDY = (
    "Usual causes: a server that acts with other weights than it names; another model, template or precision "
    "there than in the learner; changed pictures; truncated sampling. Compare policy, dtype and package "
    "versions of the servers with the learner's, and restart servers that differ (docs/models.md)."
)

_log = logging.getLogger(__name__)


def kl_of_tokens(log_ratios: Floats) -> Floats:
    """[n] exp(d) − 1 − d, which estimates KL(μ‖π_v) and is never negative (Schulman 2020, "k3").

    By expm1, since d is often as small as rounding. What is not finite counts as a ratio of almost 0.
    """
    d = np.clip(np.nan_to_num(log_ratios, nan=-CLAMP), -CLAMP, CLAMP)
    k3: Floats = np.maximum(np.expm1(d) - d, 0.0)
    return k3


def choose(
    episodes: Sequence[Episode], versions: Sequence[int]
) -> tuple[int, list[tuple[str, StepData]]] | None:
    """The last steps of the newest episodes, of the version in `versions` that most of them have.

    An answer in which the weights were replaced is left out: its last tokens were sampled with keys and
    values of both.

    Returns:
        The version, and its steps, each with the id of its episode.
    """
    samples = []
    for version in versions:
        found = [
            (episode.id, [step for step in episode.steps if set(step.versions) == {version}][-STEPS_EACH:])
            for episode in reversed(episodes)
        ]
        newest = [(name, steps) for name, steps in found if steps][:NUM_EPISODES]
        samples.append((version, [(name, step) for name, steps in newest for step in steps]))
    version, steps = max(samples, key=lambda sample: (len(sample[1]), sample[0]), default=(-1, []))
    return (version, steps) if steps else None


class MismatchProbe:
    """Measures every `learner.mismatch.every` updates, before the update, and raises the alarm.

    With truncated sampling (`learner.top_p`, `top_k`) nothing is measured: log μ is then that of the
    truncated distribution, on purpose.
    """

    def __init__(self, context: Context) -> None:
        learner = context.config.learner
        self._context, self._config = context, learner.mismatch
        self._is_possible = learner.top_p >= 1.0 and learner.top_k == 0
        self._kls: deque[float] = deque(maxlen=RECENT)
        self._has_alarm = False

    @property
    def is_due(self) -> bool:
        return self._is_possible and self._context.progress.updates % self._config.every == 0

    def measure(self, arrived: Sequence[Episode]) -> dict[str, float]:
        """The `mismatch/*` metrics.

        Raises:
            MismatchError: There is an alarm, and `on_alarm` is "stop".
        """
        limit = {"mismatch/kl_limit": self._config.alarm_kl}
        publisher = self._context.publisher
        own = {publisher.version} if self._context.is_published else set()
        sample = choose(arrived, sorted(own | publisher.recent.keys()))
        if sample is None:
            return {"mismatch/tokens": 0.0, **limit, "mismatch/alarm": float(self._has_alarm)}
        version, steps = sample
        log_ratios, origins = self._log_ratios(version, steps)
        kl = kl_of_tokens(log_ratios)
        self._kls.append(float(kl.mean()))
        recent = median_low(self._kls)
        finding = self._judge(recent, version, origins[int(np.argmax(kl))])
        metrics = {
            "mismatch/tokens": float(len(kl)),
            "mismatch/kl": float(kl.mean()),
            "mismatch/kl_max": float(kl.max()),
            "mismatch/kl_recent": recent,
            **limit,
            "mismatch/outside": float((np.abs(np.expm1(np.clip(log_ratios, -CLAMP, CLAMP))) > 0.1).mean()),
            "mismatch/alarm": float(bool(finding)),
        }
        if finding and self._config.on_alarm == "stop":
            self._context.report.write(metrics)
            raise MismatchError(
                f"{finding} learner.mismatch.on_alarm is 'stop'.",
                "See docs/models.md for the causes. Fix it, then use --resume.",
            )
        return metrics

    def _log_ratios(self, version: int, steps: Sequence[tuple[str, StepData]]) -> tuple[Floats, list[str]]:
        """[n] d of the tokens of `version` in `steps`, and the origin of each."""
        context = self._context
        batch = context.batcher.steps([step for _, step in steps])
        behaviour = batch.behaviour_logprobs
        is_newest = version == context.publisher.version and context.is_published
        weights = None if is_newest else weights_io.from_bytes(context.publisher.recent[version])
        d = (context.train_step.logprobs(batch, weights).double() - behaviour.double()).numpy()
        pairs = [
            (d[row, place], f"{name}, written by server {step.server}" if step.server else name)
            for row, (name, step) in enumerate(steps)
            for place in range(len(step.versions))
        ]
        return np.array([value for value, _ in pairs]), [origin for _, origin in pairs]

    def _judge(self, kl: float, version: int, worst: str) -> str:
        """What is wrong, in a sentence; "" if nothing is. The log says when that changes."""
        had_alarm, self._has_alarm = self._has_alarm, kl > self._config.alarm_kl
        if not self._has_alarm:
            if had_alarm:
                _log.warning("train-inference mismatch: the alarm is over, KL %.3g", kl)
            return ""
        finding = (
            f"Train-inference mismatch: tokens sampled with weights {version}, as their server says, have KL "
            f"{kl:.3g} (limit {self._config.alarm_kl:g}) to what the learner computes with these weights; "
            f"worst in trajectory {worst}."
        )
        if not had_alarm:
            _log.warning("%s %s", finding, REMEDY)
        return finding
