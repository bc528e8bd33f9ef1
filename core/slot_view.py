"""What a worker's slots and devices do now, as people see it: small records, bounded like messages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from distrl.core.actions import Point
from distrl.core.types import Purpose, Record

Count = Annotated[int, Field(ge=0, le=2**53)]
ShortText = Annotated[str, Field(max_length=200)]
LongText = Annotated[str, Field(max_length=500)]
Elapsed = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)]


class Touch(Record):
    """The newest action of a slot, as in `ActionRecord`."""

    kind: Annotated[str, Field(max_length=40)]
    point: Point | None = None
    to: Point | None = None
    text: ShortText = ""


class Hand(Record):
    """A person plays a slot's next episode, which is stored as a demonstration.

    Attributes:
        slot: As WORKER/SLOT.
        number, action: The newest action and its number, from 1 on; 0 before the first.
    """

    slot: ShortText
    number: Count = 0
    action: Touch | None = None


class SlotView(Record):
    """What a slot does now.

    Attributes:
        device: The pool's device that it holds, "" for none.
        step: Actions so far.
        idle_s: Seconds since the newest action, or since the episode began.
        hand: How many of a person's actions it has taken, None if no person plays it; `hint`: Why the newest
            could not be executed.
        picture: Changes with the picture; "" for none. Its size in pixels is `width` × `height`.
    """

    slot: Annotated[int, Field(ge=0, le=2**16 - 1)]
    state: Literal["acting", "thinking", "played", "resetting", "waiting", "pausing"]
    device: ShortText = ""
    task: ShortText = ""
    goal: LongText = ""
    purpose: Purpose | None = None
    step: Count = 0
    max_steps: Count = 0
    idle_s: Elapsed = 0.0
    touch: Touch | None = None
    hand: Count | None = None
    hint: ShortText = ""
    picture: ShortText = ""
    width: Annotated[int, Field(ge=0, le=2**16 - 1)] = 0
    height: Annotated[int, Field(ge=0, le=2**16 - 1)] = 0


class DeviceView(Record):
    """A device of a worker's pool: its state (see docs/devices.md), what it lacks, its faults of late."""

    id: ShortText
    state: Annotated[str, Field(max_length=40)]
    reason: LongText = ""
    faults: Count = 0
