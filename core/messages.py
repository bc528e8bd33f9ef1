"""The wire: every message that processes exchange, and how it becomes frames.

Those of workers that train are in `work_messages`, what several messages are made of in `message_parts`;
import all of them from here.

A message is one msgpack map `{"v": 2, "type": "...", …fields}` in the first frame; large bytes (screenshots,
weight chunks) follow as frames of their own, in the order that the message names them. Field names, never
positions; never pickle. Anything else is a `ProtocolError` with a code, which the receiver answers with a
`Reject`.

Control (learner, ROUTER): Hello → Welcome; Heartbeat → Status; LeaseRequest → LeaseGrant;
    LeaseRenew → Status; LeaseRelease → Status;
    Submit + images → Ack | Reject; StatusRequest → Status.
    Of workers that train: WorkRequest → WorkGrant; Gradient + bytes, Measured → WorkAck | Reject.
Broadcast (learner, PUB): Status, Shutdown.
Weights (learner and inference servers, ROUTER): ChunkRequest → Chunk + bytes | Reject.
Act (inference, ROUTER): ActRequest + images → ActReply | Reject; InfoRequest → Info.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal, Union, get_args

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from distrl.core.codec import pack_trajectory, unpack
from distrl.core.errors import ProtocolError
from distrl.core.fields import first_problem
from distrl.core.limits import check_trajectory
from distrl.core.message_parts import MAX_BLOB_BYTES as MAX_BLOB_BYTES
from distrl.core.message_parts import MAX_FRAMES as MAX_FRAMES
from distrl.core.message_parts import Count, Digests, Endpoint, Name, Names, Statistics
from distrl.core.message_parts import WeightInfo as WeightInfo
from distrl.core.types import ChatMessage, Completion, Number, Purpose, Record, Sampling, Task, Trajectory
from distrl.core.work_messages import EpisodeReturn as EpisodeReturn
from distrl.core.work_messages import Gradient as Gradient
from distrl.core.work_messages import Measured as Measured
from distrl.core.work_messages import WorkAck as WorkAck
from distrl.core.work_messages import WorkGrant as WorkGrant
from distrl.core.work_messages import WorkRequest as WorkRequest
from distrl.core.work_messages import WorkUnit as WorkUnit

PROTOCOL_VERSION = 2
MAX_ENVELOPE_BYTES = 16 * 2**20

TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class RejectCode(str, Enum):
    """Why a message was refused."""

    MALFORMED = "malformed"
    VERSION = "version"
    UNKNOWN_TYPE = "unknown-type"
    TOO_LARGE = "too-large"
    UNEXPECTED = "unexpected"
    LIMIT = "limit"
    LEASE_MISMATCH = "lease-mismatch"
    FORBIDDEN = "forbidden"
    DIGEST = "digest"
    NOT_FOUND = "not-found"
    NOT_READY = "not-ready"
    BUSY = "busy"
    CONTEXT_FULL = "context-full"
    INTERNAL = "internal"


TRANSIENT = frozenset({RejectCode.INTERNAL, RejectCode.BUSY, RejectCode.NOT_READY})
"""Reasons that may have gone in a while: the same message is sent again."""

_OUT_OF_BOUNDS = frozenset(
    {"less_than", "less_than_equal", "greater_than", "greater_than_equal", "finite_number", "too_long"}
    | {"too_short", "string_too_long", "string_too_short"}
)
"""What pydantic calls a value of the right type that is outside of its bounds."""


class Lease(Record):
    """The right and duty to run one episode of `task`; it expires `ttl_s` after the grant or renewal."""

    id: Name
    task: Task
    purpose: Purpose = Purpose.TRAIN
    group_id: str = ""
    sampling: Sampling = Sampling()
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    ttl_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 300.0


class Hello(Record):
    """A process introduces itself. An inference server says where it answers act requests.

    A worker holds at most `slots` + `waiting` leases: those of episodes under way, and of finished episodes
    that wait for a judge or for their ack.
    """

    type: Literal["hello"] = "hello"
    role: Literal["worker", "inference", "evaluate", "monitor"]
    name: Name
    slots: Count = 0
    waiting: Count = 0
    act_endpoint: Endpoint = ""


class Heartbeat(Record):
    """A process is alive; other fields as in Hello. `stats` are numbers worth a metric."""

    type: Literal["heartbeat"] = "heartbeat"
    role: Literal["worker", "inference", "evaluate", "monitor"]
    name: Name
    slots: Count = 0
    waiting: Count = 0
    act_endpoint: Endpoint = ""
    stats: Statistics = {}


class StatusRequest(Record):
    """Asks for the learner's present Status (late joiners, monitors)."""

    type: Literal["status-request"] = "status-request"


class Status(Record):
    """Where the run stands. Broadcast after each change, and the answer to Heartbeat.

    Attributes:
        run_id: Changes when another run listens at the same address.
        phase: "demonstrations", "warm-up", "training", "done".
        weights: The newest published weights, None before the first.
        act_endpoints: The inference servers that are alive.
        paused: More came in than the learner can take now; workers ask for no leases while this is set.
        metrics: The newest metrics, by name.
    """

    type: Literal["status"] = "status"
    run_id: Name
    phase: str
    weights: WeightInfo | None = None
    act_endpoints: tuple[str, ...] = ()
    paused: bool = False
    metrics: dict[str, Number] = {}


class Welcome(Record):
    """The learner's answer to Hello."""

    type: Literal["welcome"] = "welcome"
    status: Status
    heartbeat_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 2.0


class LeaseRequest(Record):
    """A worker asks for up to `count` leases."""

    type: Literal["lease-request"] = "lease-request"
    worker: Name
    count: Annotated[int, Field(ge=1, le=1024)] = 1


class LeaseGrant(Record):
    """The leases granted; none means: ask again after `retry_after_s`. `reason` is for people."""

    type: Literal["lease-grant"] = "lease-grant"
    leases: tuple[Lease, ...] = ()
    retry_after_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.5
    reason: str = ""


class LeaseRenew(Record):
    """A worker is still at work on these leases."""

    type: Literal["lease-renew"] = "lease-renew"
    worker: Name
    lease_ids: Names


class LeaseRelease(Record):
    """A worker will not finish these leases: their episodes may be run by another at once."""

    type: Literal["lease-release"] = "lease-release"
    worker: Name
    lease_ids: Names


class Submit(Record):
    """A finished trajectory. Frame i + 1 holds the bytes of `images[i]`.

    Attributes:
        body: The trajectory as `distrl.core.codec` packs it. The learner stores these bytes.
    """

    type: Literal["submit"] = "submit"
    body: bytes
    images: Digests = ()

    @classmethod
    def of(cls, trajectory: Trajectory, images: Sequence[str] = ()) -> Submit:
        """The message that carries `trajectory`.

        Raises:
            StoreError: As `pack_trajectory`.
        """
        return cls(body=pack_trajectory(trajectory), images=tuple(images))

    @cached_property
    def trajectory(self) -> Trajectory:
        """What `body` holds; a message from `decode` holds a valid one.

        Raises:
            ValueError: It is no trajectory.
        """
        return Trajectory.model_validate(unpack(self.body))


class Ack(Record):
    """The trajectory is committed to the learner's store; `duplicate` when it already was."""

    type: Literal["ack"] = "ack"
    trajectory_id: str
    duplicate: bool = False


class Reject(Record):
    """A message was refused. `ref` names what it was about (trajectory, request or lease id)."""

    type: Literal["reject"] = "reject"
    code: RejectCode
    reason: str
    ref: str = ""


class Shutdown(Record):
    """The run is over: everybody stops. `reason` is shown to people."""

    type: Literal["shutdown"] = "shutdown"
    run_id: Name
    reason: str = ""


class ChunkRequest(Record):
    """Requests bytes [offset, offset + length) of the weights with `digest`."""

    type: Literal["chunk-request"] = "chunk-request"
    digest: Name
    offset: Count
    length: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)]


class Chunk(Record):
    """Answer to ChunkRequest; frame 1 holds the bytes."""

    type: Literal["chunk"] = "chunk"
    digest: Name
    offset: Count


class ActRequest(Record):
    """Complete this chat. The frames behind it hold the bytes of `images`, in order, without those `held`.

    With a `prefix` the chat goes on from a token sequence: `messages` are what comes after it. Any server can
    go on: the pictures of earlier requests are all that one keeps, for some time. If it has one of `held` no
    longer (or is another process at the same address), it rejects the request with `not-found`, and gets it
    again with all images.

    Attributes:
        images: Every image that is shown, in `messages` or in the prefix, each once.
        held: Those of them that are not sent, since this server has had them.
        prefix: The token ids so far, prompts and answers; empty for a chat that begins.
        prefix_images: The images of the prefix in order of appearance.
    """

    type: Literal["act-request"] = "act-request"
    id: Name
    messages: tuple[ChatMessage, ...]
    images: Digests = ()
    held: Digests = ()
    sampling: Sampling = Sampling()
    prefix: tuple[TokenId, ...] = ()
    prefix_images: tuple[str, ...] = ()


class ActReply(Record):
    """The completion of the request with the same id."""

    type: Literal["act-reply"] = "act-reply"
    id: Name
    completion: Completion


class InfoRequest(Record):
    """Asks an inference server what it serves."""

    type: Literal["info-request"] = "info-request"


class Info(Record):
    """What an inference server serves: its weight version (-1: none yet), queue length, totals."""

    type: Literal["info"] = "info"
    name: Name
    policy: str
    weight_version: int
    stats: dict[str, Number] = {}


Message = Annotated[
    Union[
        Hello, Heartbeat, StatusRequest, Status, Welcome, LeaseRequest, LeaseGrant, LeaseRenew, LeaseRelease,
        Submit, Ack, Reject, Shutdown, ChunkRequest, Chunk, ActRequest, ActReply, InfoRequest,
        Info, WorkRequest, WorkGrant, Gradient, Measured, WorkAck,
    ],
    Field(discriminator="type"),
]  # fmt: skip
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Message)
MESSAGE_TYPES: dict[str, type[Record]] = {
    cls.model_fields["type"].default: cls for cls in get_args(get_args(Message)[0])
}


def encode(message: Record) -> bytes:
    """The envelope frame of `message`.

    Raises:
        ProtocolError: With code "malformed" if a value cannot travel, or "too-large".
    """
    body = message.model_dump(mode="python")
    try:
        packed: bytes = msgpack.packb({"v": PROTOCOL_VERSION, **body}, use_bin_type=True, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        name = type(message).__name__
        raise ProtocolError(RejectCode.MALFORMED.value, f"a {name} cannot be encoded: {error}") from error
    if len(packed) > MAX_ENVELOPE_BYTES:
        raise ProtocolError(RejectCode.TOO_LARGE.value, f"the envelope has {len(packed)} bytes")
    return packed


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} cannot travel")


def decode(frame: bytes | memoryview) -> Any:
    """The message in an envelope frame.

    Raises:
        ProtocolError: With code "too-large", "malformed", "limit", "version" or "unknown-type".
    """
    if len(frame) > MAX_ENVELOPE_BYTES:
        raise ProtocolError(RejectCode.TOO_LARGE.value, f"the envelope has {len(frame)} bytes")
    try:
        body = msgpack.unpackb(frame, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(RejectCode.MALFORMED.value, f"the envelope is not msgpack: {error}") from error
    if not isinstance(body, dict):
        raise ProtocolError(RejectCode.MALFORMED.value, "the envelope is not a map")
    version = body.pop("v", None)
    if version != PROTOCOL_VERSION:
        raise ProtocolError(
            RejectCode.VERSION.value,
            f"protocol version {version!r} is not {PROTOCOL_VERSION}",
            "Run the same distrl version everywhere.",
        )
    if not isinstance(body.get("type"), str) or body["type"] not in MESSAGE_TYPES:
        raise ProtocolError(RejectCode.UNKNOWN_TYPE.value, f"unknown message type {body.get('type')!r:.100}")
    try:
        message = _ADAPTER.validate_python(body)
        problem = check_trajectory(message.trajectory) if isinstance(message, Submit) else ""
    except ValidationError as error:
        kind = error.errors(include_url=False, include_input=False, include_context=False)[0]["type"]
        code = RejectCode.LIMIT if kind in _OUT_OF_BOUNDS else RejectCode.MALFORMED
        raise ProtocolError(code.value, first_problem(error)[:300]) from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(RejectCode.MALFORMED.value, str(error)[:300]) from error
    if problem:
        raise ProtocolError(RejectCode.LIMIT.value, problem)
    return message


def submitted_id(frame: bytes | memoryview) -> str:
    """The id of the trajectory or unit in a message that `decode` refuses; "" if none can be read.

    None is read in a message of another protocol version: its sender tries again, until the versions agree.
    """
    if len(frame) > MAX_ENVELOPE_BYTES:
        return ""
    try:
        body = msgpack.unpackb(frame, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return ""
    if not isinstance(body, dict) or body.get("v") != PROTOCOL_VERSION:
        return ""
    found = None
    if body.get("type") == "submit" and isinstance(body.get("body"), bytes):
        with contextlib.suppress(ValueError):
            trajectory = unpack(body["body"])
            found = trajectory.get("id") if isinstance(trajectory, dict) else None
    elif body.get("type") in ("gradient", "measured"):
        found = body.get("unit_id")
    return found if isinstance(found, str) else ""


def check_blobs(blobs: Sequence[bytes | memoryview]) -> None:
    """Refuses too many or too large blob frames.

    Raises:
        ProtocolError: With code "too-large".
    """
    if len(blobs) > MAX_FRAMES:
        raise ProtocolError(RejectCode.TOO_LARGE.value, f"{len(blobs)} frames are more than {MAX_FRAMES}")
    for blob in blobs:
        if len(blob) > MAX_BLOB_BYTES:
            raise ProtocolError(RejectCode.TOO_LARGE.value, f"a frame of {len(blob)} bytes")
