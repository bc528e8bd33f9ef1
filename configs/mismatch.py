"""The section `learner.mismatch`: servers and learner should give a token the same probability."""

from __future__ import annotations

from typing import Literal

from distrl.configs.section import Count, Positive, Section


class MismatchConfig(Section):
    """What the learner computes with the weights that a server named, against what the server computed.

    Measured every `every` updates. There is an alarm when the KL divergence of a token is above `alarm_kl`;
    with `on_alarm: stop` it ends the run.
    """

    every: Count = 5
    alarm_kl: Positive = 0.05
    on_alarm: Literal["warn", "stop"] = "warn"
