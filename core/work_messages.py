"""Messages between a learner and workers that train. Import them from `core.messages`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from distrl.core.message_parts import Count, Name, Statistic, Statistics, WeightInfo
from distrl.core.types import Record


class WorkUnit(Record):
    """Something for a worker that trains: a round of training, or episodes to measure weights by.

    Attributes:
        weights: To begin with, or to measure.
        progress: The share of the run that is over.
        seeds: Of "evaluate": one greedy episode each.
        ttl_s: Of "evaluate": it may be handed to another worker after this long.
    """

    id: Name
    kind: Literal["train", "evaluate"]
    weights: WeightInfo
    progress: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    seeds: Annotated[tuple[Count, ...], Field(max_length=1024)] = ()
    ttl_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 300.0


class WorkRequest(Record):
    """A worker that trains asks what to do next.

    Attributes:
        collected: A round whose transitions are there: it is granted again, with the newest weights to train.
    """

    type: Literal["work-request"] = "work-request"
    worker: Name
    collected: Name | None = None


class WorkGrant(Record):
    """What to do; without a unit: ask again after `retry_after_s`."""

    type: Literal["work-grant"] = "work-grant"
    unit: WorkUnit | None = None
    retry_after_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.5


class EpisodeReturn(Record):
    """An episode that ended: the sum of its rewards, and its steps."""

    total: Statistic
    length: Annotated[int, Field(ge=0, le=2**31)]


Episodes = Annotated[tuple[EpisodeReturn, ...], Field(max_length=2**16)]


class Gradient(Record):
    """What a round of training came to. Frame 1: safetensors of η by parameter, and of new statistics.

    Attributes:
        unit_id: The round; a resend has the same.
        base_version: The weights that it trained, which may be newer than those it collected with.
        digest: The SHA-256 (hex) of frame 1.
        lr: The local rate α_l that η was divided by.
        num_steps: Transitions that were collected.
        episodes: Those that ended meanwhile.
        metrics: Means over the round.
    """

    type: Literal["gradient"] = "gradient"
    worker: Name
    unit_id: Name
    base_version: Count
    digest: Name
    lr: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    num_steps: Count
    episodes: Episodes = ()
    metrics: Statistics = {}


class Measured(Record):
    """The episodes of a unit of the kind "evaluate", in the order of its seeds."""

    type: Literal["measured"] = "measured"
    worker: Name
    unit_id: Name
    episodes: Episodes


class WorkAck(Record):
    """A gradient is applied, or a measurement taken; `duplicate` when it already was."""

    type: Literal["work-ack"] = "work-ack"
    unit_id: str
    duplicate: bool = False
