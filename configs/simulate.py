"""The section `simulate`: how long things take in virtual time."""

from __future__ import annotations

from distrl.configs.section import Fraction, NonNegative, Positive, Section


class LatencyConfig(Section):
    """How long an action takes.

    It is lognormal with the median `median_s` and the shape `sigma`, at most `max_s`.
    """

    median_s: NonNegative = 1.0
    sigma: NonNegative = 0.5
    max_s: NonNegative = 60.0


class SimulateConfig(Section):
    """The durations that `distrl simulate` calculates with, in seconds; of other commands only the plan of
    `distrl train` reads `latency`.

    `latency` is how long a device takes for an action, from the action to the next screen; null means
    `env.options.latency`, or the defaults of `latency` where there is none. `slot_sigma` is the spread of the
    devices: each is slower by a factor drawn from a lognormal distribution with this shape and the median 1.
    `stragglers` is the share of devices that are slower still, by `straggler_factor`. `app_factors` maps apps
    to the factor by which actions in them take longer. `reset_s` is the time that a device needs to get to
    the start of a task.

    A server's batch takes `batch_s`, and `request_s` more for each of its requests. `update_s` is the time of
    an update of the learner (`time/update_s` in the metrics of a run), and `publish_s` the time until
    servers act with new weights.
    """

    latency: LatencyConfig | None = None
    slot_sigma: NonNegative = 0.0
    stragglers: Fraction = 0.0
    straggler_factor: Positive = 10.0
    app_factors: dict[str, Positive] = {}
    reset_s: NonNegative = 0.0
    batch_s: NonNegative = 0.02
    request_s: NonNegative = 0.002
    update_s: NonNegative = 0.5
    publish_s: NonNegative = 0.1
