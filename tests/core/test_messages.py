"""The wire format: every message survives the trip, and nothing else gets through."""

import contextlib
import math
import types
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from distrl.core.errors import ProtocolError
from distrl.core.messages import (
    MAX_BLOB_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_FRAMES,
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    Ack,
    Info,
    Message,
    Status,
    StatusRequest,
    Submit,
    check_blobs,
    decode,
    encode,
    submitted_id,
)
from distrl.core.packing import check_trajectory
from distrl.core.types import Trajectory

TEXT = st.text(max_size=12)
INTEGERS = {"min_value": -(2**63), "max_value": 2**63 - 1}
PLAIN_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(**INTEGERS) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def bounds(metadata: tuple[Any, ...]) -> dict[str, Any]:
    """Keyword arguments of a hypothesis strategy from a pydantic field's constraints."""
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            found |= bounds(tuple(item.metadata))
        elif isinstance(item, annotated_types.Ge):
            found["min_value"] = item.ge
        elif isinstance(item, annotated_types.Gt):
            found |= {"min_value": item.gt, "exclude_min": True}
        elif isinstance(item, annotated_types.Le):
            found["max_value"] = item.le
        elif isinstance(item, annotated_types.MinLen):
            found["min_size"] = item.min_length
        elif (pattern := getattr(item, "pattern", None)) is not None:
            found["pattern"] = pattern
    return found


def values(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """All values of a field type."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values(args[0], (*metadata, *args[1:]))
    if origin in (Union, types.UnionType):
        return st.one_of([values(arg) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*[values(arg) for arg in args])
    if origin is dict:
        return st.dictionaries(TEXT, values(args[1]), max_size=2)
    if annotation is Any:
        return PLAIN_DATA
    if annotation is type(None):
        return st.none()
    if annotation is bool:
        return st.booleans()
    if issubclass(annotation, BaseModel):
        return messages(annotation)
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if annotation is int:
        return st.integers(**{**INTEGERS, **bounds(metadata)})
    if annotation is float:
        return st.floats(allow_nan=False, allow_infinity=False, **bounds(metadata))
    assert annotation is str, annotation
    limits = bounds(metadata)
    if "pattern" in limits:
        return st.from_regex(limits["pattern"], fullmatch=True).filter(lambda text: len(text) <= 200)
    return st.text(max_size=12, **limits)


def messages(cls: type[BaseModel]) -> st.SearchStrategy[Any]:
    """All instances of a model."""
    if cls is Submit:
        return st.builds(Submit.of, messages(Trajectory), st.lists(TEXT, max_size=2))
    fields = {name: field for name, field in cls.model_fields.items() if not field.exclude}
    return st.builds(
        cls, **{name: values(field.annotation, tuple(field.metadata)) for name, field in fields.items()}
    )


@pytest.mark.parametrize("name", MESSAGE_TYPES)
def test_every_message_survives_the_trip(name):
    @relaxed
    @given(messages(MESSAGE_TYPES[name]))
    def check(message):
        if isinstance(message, Submit) and check_trajectory(message.trajectory):
            with pytest.raises(ProtocolError) as caught:
                decode(encode(message))
            assert caught.value.code == "limit"
        else:
            assert decode(encode(message)) == message

    check()


@relaxed
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_with_a_code(frame):
    with pytest.raises(ProtocolError):
        decode(frame)


@relaxed
@given(st.sampled_from(sorted(MESSAGE_TYPES)), PLAIN_DATA, st.data())
def test_a_damaged_message_decodes_or_is_refused(name, value, data):
    body = msgpack.unpackb(encode(data.draw(messages(MESSAGE_TYPES[name]))))
    body[data.draw(st.sampled_from(sorted(body)))] = value
    with contextlib.suppress(ProtocolError):  # any other error would be a bug
        assert decode(msgpack.packb(body)).type in MESSAGE_TYPES


ACK = {"v": PROTOCOL_VERSION, "type": "ack", "trajectory_id": "t"}
ACT = {"v": PROTOCOL_VERSION, "type": "act-request", "id": "a", "messages": []}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**ACK, "v": 1}, "version"),
        ({k: v for k, v in ACK.items() if k != "v"}, "version"),
        ({**ACK, "type": "mystery"}, "unknown-type"),
        ({**ACK, "type": ["ack"]}, "unknown-type"),
        ({**ACK, "extra": 1}, "malformed"),
        ({"v": PROTOCOL_VERSION, "type": "ack"}, "malformed"),
        ({**ACK, "trajectory_id": 7}, "malformed"),
        ({1: 2}, "malformed"),
        ({**ACT, "sampling": {"max_new_tokens": 2**17 + 1}}, "limit"),
        ([1, 2], "malformed"),
        (7, "malformed"),
    ],
)
def test_what_is_no_message_is_refused(body, code):
    with pytest.raises(ProtocolError) as caught:
        decode(msgpack.packb(body))
    assert caught.value.code == code


@pytest.mark.parametrize("field", ["v", "type"])
def test_a_refusal_quotes_little_of_what_it_refuses(field):
    with pytest.raises(ProtocolError) as caught:
        decode(msgpack.packb({**ACK, field: "x" * 10**6}))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": [""] * 10**5},
        {"images": [0] * 10**5},
        {"messages": [{"role": "user", "parts": [{}] * 10**5}]},
        {f"x{number}": 0 for number in range(10**5)},
        {"type": "submit", "body": msgpack.packb({"steps": [{"chats": [{}] * 10**5}] * 2})},
    ],
)
def test_a_wrong_message_costs_a_few_errors_however_long_it_is(wrong):
    message = {"v": PROTOCOL_VERSION, "type": "act-request", "id": "a", "messages": [], **wrong}
    with pytest.raises(ProtocolError) as caught:
        decode(msgpack.packb(message))
    cause = caught.value.__cause__
    assert not isinstance(cause, ValidationError) or cause.error_count() < 30


@pytest.mark.parametrize("record", [Message, Trajectory], ids=["messages", "trajectory"])
def test_every_list_of_a_record_ends_at_its_first_error(record):
    def lists(schema: object) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            if "variadic_item_index" in schema:
                yield schema
            for inner in schema.values():
                yield from lists(inner)
        elif isinstance(schema, list):
            for inner in schema:
                yield from lists(inner)

    found = list(lists(TypeAdapter(record).core_schema))
    assert len(found) > 10
    assert [one for one in found if not one.get("fail_fast")] == []


@pytest.mark.parametrize("frame", [b"", b"\xc1", encode(StatusRequest()) + b"\x00", b"\x91" * 100_000])
def test_broken_msgpack_is_refused(frame):
    with pytest.raises(ProtocolError) as caught:
        decode(frame)
    assert caught.value.code == "malformed"


def submit(trajectory: object) -> dict[str, object]:
    return {"v": PROTOCOL_VERSION, "type": "submit", "body": zlib.compress(msgpack.packb(trajectory))}


SUBMIT = submit({"id": "t", "a_newer_field": 1})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (SUBMIT, "t"),
        ({**SUBMIT, "v": 1}, ""),
        ({**SUBMIT, "type": "mystery"}, ""),
        ({**SUBMIT, "body": "t"}, ""),
        (submit({"id": 7}), ""),
        (submit([]), ""),
        ([SUBMIT], ""),
    ],
)
def test_the_trajectory_of_a_submit_that_is_refused_may_still_be_known(body, found):
    assert submitted_id(msgpack.packb(body)) == found
    for frame in (b"", b"\xc1", b"\x91" * 100_000, bytes(MAX_ENVELOPE_BYTES + 1)):
        assert submitted_id(frame) == ""


@pytest.mark.parametrize(
    "numbers", [{"m" * 201: 1.0}, {str(n): 1.0 for n in range(1025)}, {"m": 1e19}, {"m": math.nan}]
)
def test_what_a_learner_or_a_server_reports_is_bounded(numbers):
    for message in (
        Status(run_id="r", phase="training").model_copy(update={"metrics": numbers}),
        Info(name="s", policy="tiny", weight_version=0).model_copy(update={"stats": numbers}),
    ):
        with pytest.raises(ProtocolError) as caught:
            decode(encode(message))
        assert caught.value.code == "limit"


def test_sizes_are_limited():
    for refused in (
        lambda: decode(bytes(MAX_ENVELOPE_BYTES + 1)),
        lambda: check_blobs([b""] * (MAX_FRAMES + 1)),
        lambda: check_blobs([bytes(MAX_BLOB_BYTES + 1)]),
    ):
        with pytest.raises(ProtocolError) as caught:
            refused()
        assert caught.value.code == "too-large"


def test_an_ack_is_a_map_of_names():
    assert msgpack.unpackb(encode(Ack(trajectory_id="t"))) == {**ACK, "duplicate": False}
