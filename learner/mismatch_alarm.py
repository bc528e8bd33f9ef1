"""When the train–inference mismatch is too large, or much larger than is usual in this run."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from distrl.configs.mismatch import MismatchConfig
from distrl.configs.schema import Config
from distrl.core.policies.base import Policy

RECENT = 3
"""Measurements whose median is judged: a single token may be far off by chance, two measurements not."""

NUM_USUAL = 5
"""Measurements after which it is known what is usual."""

FORGETTING = 0.01
"""The weight of a new measurement in what is usual."""

FLOOR = 1e-6
"""A KL divergence below is rounding in float32, whatever is usual."""

REMIND_EVERY = 20  # measurements

CAUSES = (
    "Usual causes: a server that acts with other weights than it says; another model, template or precision "
    "there than in the learner; pictures changed on the way; truncated sampling."
)
REMEDY = (
    "Compare policy, dtype and package versions of the servers with the learner's, and restart servers that "
    "differ; learner.mismatch.bound limits what such tokens do (docs/models.md)."
)

_log = logging.getLogger(__name__)


def sources(config: Config, policy: Policy) -> dict[str, Any]:
    """What gives tokens their probabilities, on both sides; JSON-able.

    That is the policy, the engine and the precision of the servers, as far as the configuration says, and
    where and in which types the learner has its parameters.
    """
    inference = config.inference
    found = {f"policy.{name}": value for name, value in config.policy.model_dump(mode="json").items()}
    found["inference.engine"] = inference.engine.kind
    if inference.engine.kind == "vllm":
        vllm = inference.vllm.model_dump(mode="json")
        found |= {f"inference.engine.{name}": value for name, value in vllm.items()}
    found["learner.temperature"] = config.learner.temperature
    found["the learner's device"] = policy.device.type
    found["the learner's types"] = sorted({str(parameter.dtype) for parameter in policy.parameters()})
    return found


@dataclass
class Usual:
    """What is usual in a run; a checkpoint keeps it.

    Attributes:
        kl: A moving average of quiet measurements.
        count: How many there were.
        sources: What they were measured with, as `sources` gives it.
    """

    kl: float = 0.0
    count: int = 0
    sources: dict[str, Any] = field(default_factory=dict)

    def note(self, kl: float) -> None:
        """Takes a quiet measurement: a plain mean at first, then an exponential one."""
        self.count += 1
        self.kl += (kl - self.kl) * max(1.0 / self.count, FORGETTING)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what was usual; nothing is, if it was measured with other sources than these."""
        before = state.get("sources", {})
        if before == self.sources:
            self.kl, self.count = float(state.get("kl", 0.0)), int(state.get("count", 0))
            return
        self.kl, self.count = 0.0, 0
        if before:
            names = sorted(before.keys() | self.sources.keys())
            changed = [name for name in names if before.get(name) != self.sources.get(name)]
            _log.info(
                "train-inference mismatch: other than before are %s; what is usual is learnt anew",
                ", ".join(changed),
            )


class Alarm:
    """Judges the median of the last three measurements; what is usual is learnt from quiet ones only.

    Attributes:
        finding: What was found, in a sentence; "" without an alarm.
    """

    def __init__(self, config: MismatchConfig, usual: Usual) -> None:
        self._config, self._usual = config, usual
        self._kls: deque[float] = deque(maxlen=RECENT)
        self._shares: deque[float] = deque(maxlen=RECENT)
        self._num_on = 0
        self.finding = ""

    @property
    def is_on(self) -> bool:
        """Whether there is an alarm."""
        return self._num_on > 0

    @property
    def limit(self) -> float:
        """The KL divergence above which there is an alarm."""
        if self._usual.count < NUM_USUAL:
            return self._config.alarm_kl
        return min(self._config.alarm_kl, max(FLOOR, self._config.alarm_drift * self._usual.kl))

    def note(self, kl: float, outside: float, version: int, worst: str) -> dict[str, float]:
        """Takes a measurement, tells the log when an alarm begins, lasts, or is over. Returns metrics.

        Args:
            kl: Mean over its tokens.
            outside: The share of ratios outside [0.9, 1.1].
            version: Of the weights.
            worst: Where the worst token is from: its trajectory, and the server that wrote it.
        """
        self._kls.append(kl)
        self._shares.append(outside)
        recent, share, limit = median_low(self._kls), median_low(self._shares), self.limit
        if recent > limit or share > self._config.alarm_share:
            self._raise(recent, share, limit, version, worst)
        else:
            if self.is_on:
                _log.warning("train-inference mismatch: the alarm is over, KL %.3g", recent)
            self._num_on, self.finding = 0, ""
            self._usual.note(recent)
        return {"mismatch/kl_recent": recent, **self.state()}

    def state(self) -> dict[str, float]:
        """The metrics that need no measurement."""
        return {"mismatch/kl_limit": self.limit, "mismatch/alarm": float(self.is_on)}

    def _raise(self, kl: float, share: float, limit: float, version: int, worst: str) -> None:
        usual = f"; usual is {self._usual.kl:.2g}" if self._usual.count >= NUM_USUAL else ""
        self.finding = (
            f"Train-inference mismatch: tokens that came as sampled by weights {version} have KL {kl:.3g} "
            f"(limit {limit:.3g}{usual}) to what the learner computes with these weights, and {share:.0%} of "
            f"the ratios lie outside [0.9, 1.1] (limit {self._config.alarm_share:.0%}); worst in trajectory "
            f"{worst}."
        )
        if self._num_on % REMIND_EVERY == 0:
            _log.warning("%s %s %s", self.finding, CAUSES, REMEDY)
        self._num_on += 1
