"""The wire: every message that processes exchange, and how it becomes frames.

A message is one msgpack map `{"v": 6, "type": "...", …fields}` in the first frame; large bytes (screenshots,
weight chunks) follow as frames of their own, in the order that the message names them. Field names, never
positions; never pickle. Anything else is a `ProtocolError` with a code, which the receiver answers with a
`Reject`.

Control (learner, ROUTER): Hello → Welcome; Heartbeat → Status; LeaseRequest → LeaseGrant;
    LeaseRenew → Status; LeaseRelease → Status;
    Submit + images → Ack | Reject; StatusRequest → Status.
    Of workers that train: WorkRequest → WorkGrant; Gradient + bytes, Measured → WorkAck | Reject.
    While people watch: SlotReport + pictures, without an answer. Of observers: Watch → Wall + pictures;
    of owners: Command → Status.
Broadcast (learner, PUB): Status, Shutdown.
Weights (learner, ROUTER): ChunkRequest → Chunk + bytes | Reject.
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

from distrl.core.errors import ProtocolError
from distrl.core.packing import MAX_NAME, MAX_TOKEN, check_trajectory, pack_trajectory, read_msgpack, unpack
from distrl.core.slot_view import Count, DeviceView, Elapsed, Hand, SlotView
from distrl.core.transfer import Transfer
from distrl.core.types import (
    Branch,
    ChatMessage,
    Completion,
    Many,
    Purpose,
    Record,
    Sampling,
    Task,
    Trajectory,
)
from distrl.core.user_errors import first_problem

MAX_PICTURE_BYTES = 128 * 2**10
"""Of a slot's picture for people who watch."""

MAX_PICTURES = 128
"""Pictures in a message; the others follow in the next."""

MAX_FOLLOWED = 16
"""Slots that are shown larger at a time."""

PROTOCOL_VERSION = 6
MAX_ENVELOPE_BYTES = 16 * 2**20
MAX_BLOB_BYTES = 64 * 2**20
MAX_FRAMES = 1024

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A name or an id: one line of printable text."""

Names = Annotated[Many[Name], Field(max_length=2**16)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN)]
Digests = Annotated[Many[Annotated[str, Field(max_length=MAX_NAME)]], Field(max_length=MAX_FRAMES)]
Endpoint = Annotated[
    str,
    Field(
        max_length=MAX_NAME,
        pattern=r"^(tcp://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}|(ipc|inproc)://[^\x00-\x1f\x7f-\x9f]+)?$",
    ),
]
"""An address that others connect to; "" for none."""

MAX_STATISTIC = 1e18
Statistic = Annotated[float, Field(ge=-MAX_STATISTIC, le=MAX_STATISTIC, allow_inf_nan=False)]
"""A number that a peer reports: sums of them stay finite."""

Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Statistics = Annotated[dict[Annotated[str, Field(max_length=MAX_NAME)], Statistic], Field(max_length=1024)]


class WeightInfo(Record):
    """Published weights. `kind` is "full" or "adapter"; `digest` is the SHA-256 of their bytes (hex).

    With `size_bytes` 0 all servers have received them by a `Transfer`, and there is nothing to fetch.
    """

    version: Count
    digest: Name
    size_bytes: Count
    kind: Literal["full", "adapter"] = "full"
    chunk_bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)] = 4 * 2**20


# ---- workers that train ----


class WorkUnit(Record):
    """Work for a worker that trains: a round of training with `weights`, or episodes to measure them.

    Attributes:
        progress: The share of the run that is over.
        seeds: Of "evaluate": one greedy episode each.
        ttl_s: Of "evaluate": another worker may get it after this long.
    """

    id: Name
    kind: Literal["train", "evaluate"]
    weights: WeightInfo
    progress: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    seeds: Annotated[Many[Count], Field(max_length=1024)] = ()
    ttl_s: PositiveSeconds = 300.0


class WorkRequest(Record):
    """A worker that trains requests work.

    The round `collected`, whose transitions are there, is granted again with the newest weights to train.
    """

    type: Literal["work-request"] = "work-request"
    worker: Name
    collected: Name | None = None


class WorkGrant(Record):
    """Work; without a unit: request again after `retry_after_s`."""

    type: Literal["work-grant"] = "work-grant"
    unit: WorkUnit | None = None
    retry_after_s: Seconds = 0.5


class EpisodeReturn(Record):
    """An episode that ended: the sum of its rewards, and its steps."""

    total: Statistic
    length: Annotated[int, Field(ge=0, le=2**31)]


Episodes = Annotated[Many[EpisodeReturn], Field(max_length=2**16)]


class Gradient(Record):
    """The result of a round of training. Frame 1: safetensors of η by parameter, and of new statistics.

    Attributes:
        unit_id: The round; a resend has the same.
        base_version: The weights that it trained, which may be newer than those it collected with.
        digest: The SHA-256 (hex) of frame 1.
        lr: The local rate α_l that η was divided by.
        num_steps, episodes: Transitions that were collected, and episodes that ended meanwhile.
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
"""Reasons that may pass: the same message is sent again later."""

_OUT_OF_BOUNDS = frozenset(
    {"less_than", "less_than_equal", "greater_than", "greater_than_equal", "finite_number", "too_long"}
    | {"too_short", "string_too_long", "string_too_short"}
)
"""What pydantic calls a value of the right type that is outside of its bounds."""


def _refused(code: RejectCode, message: str, remedy: str = "") -> ProtocolError:
    return ProtocolError(code.value, message, remedy)


class Lease(Record):
    """The right and duty to run one episode of `task`; it expires `ttl_s` after the grant or renewal.

    In a demonstration that the policy plays, the answers are the expert's and the actions the policy's; one
    with `by_hand` a person plays at that slot (`Hand`). An imagined episode starts from its `branch`.
    """

    id: Name
    task: Task
    purpose: Purpose = Purpose.TRAIN
    group_id: str = ""
    sampling: Sampling = Sampling()
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    policy_plays: bool = False
    by_hand: Count | None = None
    branch: Branch | None = None
    ttl_s: PositiveSeconds = 300.0


class Presence(Record):
    """Which process this is. An inference server says where it answers act requests.

    A worker holds at most `slots` + `waiting` leases: those of episodes under way, and of finished episodes
    that wait for a judge or for their ack.
    """

    role: Literal["worker", "inference", "evaluate", "monitor"]
    name: Name
    slots: Count = 0
    waiting: Count = 0
    act_endpoint: Endpoint = ""


class Hello(Presence):
    """A process introduces itself."""

    type: Literal["hello"] = "hello"


class Heartbeat(Presence):
    """A process is alive. `stats` are numbers worth a metric."""

    type: Literal["heartbeat"] = "heartbeat"
    stats: Statistics = {}


class StatusRequest(Record):
    """Requests the learner's present Status."""

    type: Literal["status-request"] = "status-request"


Watching = Literal["status", "slots", "pictures"]
"""What an observer wants: the learner's status, also what each slot does, also pictures of the slots."""

Followed = Annotated[Many[Name], Field(max_length=MAX_FOLLOWED)]


class Status(Record):
    """Where the run stands. Broadcast after each change, and the answer to Heartbeat.

    Attributes:
        run_id: Changes when another run listens at the same address.
        phase: "demonstrations", "warm-up", "training", "done".
        weights: The newest published weights, None before the first.
        transfer: How some servers receive them instead.
        turn: Of a GPU that learner and server share: if odd the learner's, and the server sleeps.
        slots: By each worker's name its number of slots, so that all agree on whose server is which; empty if
            there are very many.
        paused: The learner is behind, or `is_held`; workers request no leases while this is set.
        is_held: The run's owner holds it.
        watched: What people see of the slots now; workers report so much.
        followed: The slots, as WORKER/SLOT, whose pictures are to be large.
        hands: The slots that people play.
    """

    type: Literal["status"] = "status"
    run_id: Name
    phase: str
    weights: WeightInfo | None = None
    transfer: Transfer | None = None
    turn: Count = 0
    act_endpoints: Many[str] = ()
    slots: dict[str, Count] = {}
    paused: bool = False
    is_held: bool = False
    watched: Watching = "status"
    followed: Followed = ()
    hands: Annotated[Many[Hand], Field(max_length=MAX_FOLLOWED)] = ()
    metrics: Statistics = {}


class Welcome(Record):
    """The learner's answer to Hello."""

    type: Literal["welcome"] = "welcome"
    status: Status
    heartbeat_s: PositiveSeconds = 2.0


class LeaseRequest(Record):
    """A worker requests up to `count` leases."""

    type: Literal["lease-request"] = "lease-request"
    worker: Name
    count: Annotated[int, Field(ge=1, le=1024)] = 1


class LeaseGrant(Record):
    """The leases granted; without any: request again after `retry_after_s`. `reason` is for people."""

    type: Literal["lease-grant"] = "lease-grant"
    leases: Many[Lease] = ()
    retry_after_s: Seconds = 0.5
    reason: str = ""


class LeaseRenew(Record):
    """A worker still works on these leases."""

    type: Literal["lease-renew"] = "lease-renew"
    worker: Name
    lease_ids: Names


class LeaseRelease(Record):
    """A worker will not finish these leases: their episodes may be run by another at once."""

    type: Literal["lease-release"] = "lease-release"
    worker: Name
    lease_ids: Names


class Submit(Record):
    """A finished trajectory, as `pack_trajectory` packs it. Frame i + 1 holds the bytes of `images[i]`."""

    type: Literal["submit"] = "submit"
    body: bytes
    images: Digests = ()

    @classmethod
    def of(cls, trajectory: Trajectory, images: Sequence[str] = ()) -> Submit:
        """The message that carries `trajectory`; raises as `pack_trajectory`."""
        return cls(body=pack_trajectory(trajectory), images=tuple(images))

    @cached_property
    def trajectory(self) -> Trajectory:
        """What `body` holds, or ValueError; a message from `decode` holds a valid trajectory."""
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
    """The run is over: every process stops. `reason` is shown to people."""

    type: Literal["shutdown"] = "shutdown"
    run_id: Name
    reason: str = ""


# ---- for people who watch ----


class SlotReport(Record):
    """What a worker's slots and devices do now. Frame i + 1 is the picture (JPEG) of the slot `pictures[i]`.

    Only pictures that have changed are sent. There is no answer.
    """

    type: Literal["slot-report"] = "slot-report"
    worker: Name
    slots: Annotated[Many[SlotView], Field(max_length=1024)] = ()
    devices: Annotated[Many[DeviceView], Field(max_length=1024)] = ()
    pictures: Annotated[Many[Count], Field(max_length=MAX_PICTURES)] = ()


class Watch(Record):
    """An observer wants to see the run for some seconds; it repeats this every second.

    Attributes:
        known: `Wall.number` of the newest pictures that it has; 0 for none.
    """

    type: Literal["watch"] = "watch"
    name: Name
    wants: Watching = "status"
    followed: Followed = ()
    known: Count = 0


class Wall(Record):
    """What is known of all slots. Frame i + 1 is the picture of `pictures[i]`, newer than `Watch.known`.

    Attributes:
        ages_s: How old each of the reports is.
        number: The newest picture's here.
    """

    type: Literal["wall"] = "wall"
    status: Status
    reports: Many[SlotReport] = ()
    ages_s: Many[Elapsed] = ()
    number: Count = 0
    pictures: Annotated[Many[tuple[Name, Count]], Field(max_length=MAX_PICTURES)] = ()


class Command(Record):
    """The owner holds the run (no further leases), lets it go on, requests a checkpoint, or plays a slot."""

    type: Literal["command"] = "command"
    name: Name
    action: Literal["pause", "resume", "checkpoint", "play", "leave"]
    hand: Hand | None = None  # of "play" and "leave"


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

    With a `prefix` the chat continues a token sequence: `messages` are what comes after it. Any server can
    continue it, because servers keep nothing but pictures, for some time. A server that lacks one of `held`
    rejects the request with `not-found`, and gets it again with all images.

    Attributes:
        images: Every image that is shown, in `messages` or in the prefix, each once.
        held: Those of them that are not sent because this server has had them.
        prefix, prefix_images: The token ids so far, prompts and answers, and their images in order.
    """

    type: Literal["act-request"] = "act-request"
    id: Name
    messages: Many[ChatMessage]
    images: Digests = ()
    held: Digests = ()
    sampling: Sampling = Sampling()
    prefix: Many[TokenId] = ()
    prefix_images: Many[str] = ()


class ActReply(Record):
    """The completion of the request with the same id."""

    type: Literal["act-reply"] = "act-reply"
    id: Name
    completion: Completion


class InfoRequest(Record):
    """Requests what an inference server serves."""

    type: Literal["info-request"] = "info-request"


class Info(Record):
    """What an inference server serves: its weight version (-1: none yet), queue length, totals."""

    type: Literal["info"] = "info"
    name: Name
    policy: str
    weight_version: int
    stats: Statistics = {}


Message = Annotated[
    Union[
        Hello, Heartbeat, StatusRequest, Status, Welcome, LeaseRequest, LeaseGrant, LeaseRenew, LeaseRelease,
        Submit, Ack, Reject, Shutdown, ChunkRequest, Chunk, ActRequest, ActReply, InfoRequest,
        Info, WorkRequest, WorkGrant, Gradient, Measured, WorkAck, SlotReport, Watch, Wall, Command,
    ],
    Field(discriminator="type"),
]  # fmt: skip
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Message)
MESSAGE_TYPES: dict[str, type[Record]] = {
    cls.model_fields["type"].default: cls for cls in get_args(get_args(Message)[0])
}


def encode(message: Record) -> bytes:
    """The envelope frame of `message`; ProtocolError "malformed" or "too-large" if it cannot travel."""
    body = {"v": PROTOCOL_VERSION, **message.model_dump(mode="python")}
    try:
        packed: bytes = msgpack.packb(body, use_bin_type=True, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        said = f"a {type(message).__name__} cannot be encoded: {error}"
        raise _refused(RejectCode.MALFORMED, said) from error
    _check_envelope(packed)
    return packed


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} cannot travel")


def _check_envelope(frame: bytes | memoryview) -> None:
    if len(frame) > MAX_ENVELOPE_BYTES:
        raise _refused(RejectCode.TOO_LARGE, f"the envelope has {len(frame)} bytes")


def decode(frame: bytes | memoryview) -> Any:
    """The message in an envelope frame; ProtocolError with a code for anything else."""
    body = _map_in(frame)
    version, kind = body.pop("v", None), body.get("type")
    if version != PROTOCOL_VERSION:
        said = f"protocol version {version!r:.100} is not {PROTOCOL_VERSION}"
        raise _refused(RejectCode.VERSION, said, "Run the same distrl version everywhere.")
    if not isinstance(kind, str) or kind not in MESSAGE_TYPES:
        raise _refused(RejectCode.UNKNOWN_TYPE, f"unknown message type {kind!r:.100}")
    try:
        message = _ADAPTER.validate_python(body)
        problem = check_trajectory(message.trajectory) if isinstance(message, Submit) else ""
    except ValidationError as error:
        broken = error.errors(include_url=False, include_input=False, include_context=False)[0]["type"]
        code = RejectCode.LIMIT if broken in _OUT_OF_BOUNDS else RejectCode.MALFORMED
        raise _refused(code, first_problem(error)[:300]) from error
    except (ValueError, RecursionError) as error:
        raise _refused(RejectCode.MALFORMED, str(error)[:300]) from error
    if problem:
        raise _refused(RejectCode.LIMIT, problem)
    return message


def _map_in(frame: bytes | memoryview) -> dict[str, Any]:
    """What a frame holds, not validated."""
    _check_envelope(frame)
    try:
        body = read_msgpack(frame)
    except ValueError as error:
        raise _refused(RejectCode.MALFORMED, f"the envelope is not msgpack: {error}") from error
    if not isinstance(body, dict):
        raise _refused(RejectCode.MALFORMED, "the envelope is not a map")
    return body


def submitted_id(frame: bytes | memoryview) -> str:
    """The id of the trajectory or unit in a message that `decode` refuses; "" if none can be read.

    None is read in a message of another protocol version: its sender tries again, until the versions agree.
    """
    found: object = None
    with contextlib.suppress(ProtocolError, ValueError):
        body = _map_in(frame)
        if body.get("v") != PROTOCOL_VERSION:
            return ""
        if body.get("type") == "submit" and isinstance(body.get("body"), bytes):
            trajectory = unpack(body["body"])
            found = trajectory.get("id") if isinstance(trajectory, dict) else None
        elif body.get("type") in ("gradient", "measured"):
            found = body.get("unit_id")
    return found if isinstance(found, str) else ""


def check_blobs(blobs: Sequence[bytes | memoryview]) -> None:
    """Refuses too many or too large blob frames; ProtocolError with code "too-large"."""
    if len(blobs) > MAX_FRAMES:
        raise _refused(RejectCode.TOO_LARGE, f"{len(blobs)} frames are more than {MAX_FRAMES}")
    if (longest := max(map(len, blobs), default=0)) > MAX_BLOB_BYTES:
        raise _refused(RejectCode.TOO_LARGE, f"a frame of {longest} bytes")
