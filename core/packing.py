"""Trajectories as bytes, and which values they may have.

A worker packs each trajectory once: its spool, the message and the learner's store hold the same bytes,
compressed msgpack.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, get_args

import msgpack
from pydantic import ValidationError

from distrl.core.actions import MAX_AXES, MAX_ROWS, ActionKind
from distrl.core.errors import StoreError
from distrl.core.types import Flag, Observation, Spent, TimeStep, Trajectory

MAX_NAME = 200
"""Characters of a name, an id or an address."""

MAX_REWARD = 1e3
"""The magnitude of a part of a reward, and the sum of all magnitudes of a trajectory. A success is 1: where
advantages are normalised, one return of 10⁶ leaves nothing of all others in its batch."""

MAX_SUM = 1e12
"""The magnitude of seconds, costs and counts, which reports add up."""

MAX_TEXT = 100_000
"""Characters of what an episode says about itself."""

MAX_TOKEN = 2**31 - 1
MAX_VERSION = 2**53
LOGPROBS = (-1e4, 1e-2)
"""Of a sampled token; rounding may take one a little above 0."""

MAX_CHATS = 8
"""Chats of a step."""

MAX_ELEMENTS = 512
"""Elements of a screen."""

MAX_ELEMENT_TEXT = 1000
"""Characters of each text of an element."""

MAX_STATE = 256
"""Numbers of an arm's state."""

MAX_TRAJECTORY_BYTES = 16 * 2**20
"""Of a trajectory's msgpack."""

MAX_KEYS = 2**14
MAX_CONTAINERS = 2**19
"""Lists and maps in one message: a byte can be an empty list, which takes a hundred times its size."""
"""Keys of a map on the wire: each one that is not known costs an error."""

# A few compressed bytes must not ask for much memory: an empty list is one byte of msgpack, and 56 in Python.
_FREE_BYTES, _MAX_RATIO = 2**20, 32

_LEVEL = 1  # 3.4 times smaller; higher levels take longer and gain a few percent


def pack_trajectory(trajectory: Trajectory) -> bytes:
    """The bytes of `trajectory`, without images; StoreError if a task parameter is not plain data."""
    try:
        packed: bytes = msgpack.packb(trajectory.model_dump(), use_bin_type=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreError(
            f"Trajectory {trajectory.id} cannot be stored: {error}.", "Task parameters must be plain data."
        ) from error
    compressed = zlib.compress(packed, _LEVEL)
    return compressed if len(packed) <= _most_bytes(compressed) else packed


def _most_bytes(compressed: bytes) -> int:
    """How many bytes `compressed` may expand to."""
    return min(MAX_TRAJECTORY_BYTES, _FREE_BYTES + _MAX_RATIO * len(compressed))


def unpack(data: bytes) -> object:
    """What the bytes, compressed or not, hold; not validated.

    Raises:
        ValueError: They are not msgpack, expand to more than they may, or have something behind their end.
    """
    if data[:1] == b"\x78":  # zlib's first byte; a msgpack map begins with 0x80 or more
        stream = zlib.decompressobj()
        try:
            most = _most_bytes(data)
            data = stream.decompress(data, most)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not stream.eof or stream.unused_data:
            raise ValueError(f"compressed bytes are cut off, or expand to more than {most} bytes")
    return read_msgpack(data)


def read_msgpack(data: bytes | memoryview) -> Any:
    """What uncompressed bytes hold; ValueError if they are not msgpack or hold more than they may."""
    left = MAX_CONTAINERS

    def counted(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {MAX_CONTAINERS} lists and maps")
        return value

    try:
        return msgpack.unpackb(data, raw=False, max_map_len=MAX_KEYS, list_hook=counted, object_hook=counted)
    except (TypeError, msgpack.UnpackException) as error:
        raise ValueError(str(error)) from error


def unpack_trajectory(data: bytes) -> Trajectory:
    """The trajectory in `data`; StoreError if the bytes are not a trajectory of this version."""
    try:
        return Trajectory.model_validate(unpack(data))
    except (ValueError, ValidationError) as error:
        raise StoreError(f"Stored bytes are not a trajectory: {error}.", "Was the file damaged?") from error


# ---- which values a trajectory may have ----

_KINDS = frozenset(kind.value for kind in ActionKind)


def check_trajectory(trajectory: Trajectory) -> str:
    """The first value of `trajectory` that no run accepts, in words; "" if there is none."""
    for name in ("id", "lease_id", "group_id", "worker"):
        value = getattr(trajectory, name)
        if len(value) > MAX_NAME or not value.isprintable() or (name == "id" and not value):
            return f"{name} must be one line of at most {MAX_NAME} printable characters"
    for number, step in enumerate(trajectory.steps):
        if step.action.kind not in _KINDS:
            return f"steps.{number}.action.kind {step.action.kind[:40]!r} is not a kind of action"
        for chat in step.chats:
            one = chat.completion
            if not len(one.token_ids) == len(one.logprobs) == len(one.weight_versions):
                return f"steps.{number}: each token needs one log-probability and one weight version"
    for what, found, low, high in _bounded(trajectory):
        if not low <= found <= high:
            return f"{what} is {found:g}, which is not within {low:g} and {high:g}"
    return ""


def _bounded(trajectory: Trajectory) -> Iterator[tuple[str, float, float, float]]:
    """What is bounded: its name, the value, and both bounds."""
    yield "slot", trajectory.slot, 0, MAX_TOKEN
    yield "success", trajectory.success, 0, 1
    yield "truth", trajectory.truth or 0, 0, 1
    yield "started_at", trajectory.started_at, -MAX_SUM, MAX_SUM
    yield "duration_s", trajectory.duration_s, -MAX_SUM, MAX_SUM
    if trajectory.verdict is not None:
        for name in ("step", *Spent.model_fields):
            yield f"verdict.{name}", getattr(trajectory.verdict, name), -MAX_SUM, MAX_SUM
    yield "the length of task.goal", len(trajectory.task.goal), 0, MAX_TEXT
    for name in ("fault_detail", "shortfall"):
        yield f"the length of {name}", len(getattr(trajectory, name)), 0, MAX_TEXT
    if trajectory.final is not None:
        yield from _bounded_on(trajectory.final)
    for number, step in enumerate(trajectory.steps):
        for what, value, low, high in _bounded_in(step):
            yield f"steps.{number}.{what}", value, low, high
    total = sum(abs(part) for step in trajectory.steps for part in vars(step.reward).values())
    yield "the sum of the magnitudes of its rewards", total, 0, MAX_REWARD


def _bounded_in(step: TimeStep) -> Iterator[tuple[str, float, float, float]]:
    for name, part in vars(step.reward).items():
        yield f"reward.{name}", part, -MAX_REWARD, MAX_REWARD
    for name, seconds in vars(step.timing).items():
        yield f"timing.{name}", seconds, -MAX_SUM, MAX_SUM
    for fraction in (*(step.action.point or ()), *(step.action.to or ())):
        yield "action: a coordinate", fraction, 0, 1
    yield "the number of rows of a motion", len(step.action.motion), 0, MAX_ROWS
    for row in step.action.motion:
        axes = max(1, len(step.action.motion[0]))
        yield "the number of axes of a motion", len(row), axes, min(axes, MAX_AXES)
        yield "motion: the smallest number", min(row, default=0), -1, 1
        yield "motion: the largest number", max(row, default=0), -1, 1
    yield from _bounded_on(step.observation)
    yield "the number of chats", len(step.chats), 0, MAX_CHATS
    for chat in step.chats:
        one = chat.completion
        yield "the length of completion.server", len(one.server), 0, MAX_NAME
        yield "the length of completion.text", len(one.text), 0, MAX_TEXT
        for name in ("queue_s", "run_s", "batch"):
            yield f"completion.{name}", getattr(one, name), 0, MAX_SUM
        for name, values, low, high in (
            ("prompt_token_ids", one.prompt_token_ids, 0, MAX_TOKEN),
            ("token_ids", one.token_ids, 0, MAX_TOKEN),
            ("logprobs", one.logprobs, *LOGPROBS),
            ("weight_versions", one.weight_versions, 0, MAX_VERSION),
        ):
            if values:
                yield f"completion.{name}: the smallest", min(values), low, high
                yield f"completion.{name}: the largest", max(values), low, high


def _bounded_on(screen: Observation) -> Iterator[tuple[str, float, float, float]]:
    for size in (screen.width, screen.height, screen.distance or 0):
        yield "observation: a size or the distance", size, 0, MAX_TOKEN
    yield "the length of the state", len(screen.state), 0, MAX_STATE
    for number in screen.state:
        yield "state: a number", number, -MAX_SUM, MAX_SUM
    if not screen.elements:
        return
    yield "the number of elements", len(screen.elements), 0, MAX_ELEMENTS
    last = len(screen.elements) - 1
    texts = [len(text) for one in screen.elements for text in one.texts]
    for what, values, low, high in (
        ("the length of a text", texts, 0, MAX_ELEMENT_TEXT),
        ("the number of flags", [len(one.flags) for one in screen.elements], 0, len(get_args(Flag))),
        ("a parent", [one.parent for one in screen.elements], -1, last),
        ("an edge", [edge for one in screen.elements for edge in one.bounds], 0, 1),
    ):
        yield f"elements: {what}", min(values), low, high
        yield f"elements: {what}", max(values), low, high
