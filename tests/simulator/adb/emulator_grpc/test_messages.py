"""The messages against the definitions that a client brings: the same names, numbers and types."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from distrl.simulator.adb.emulator_grpc import messages

FILES = ("emulator_controller", "snapshot_service", "snapshot")


def theirs() -> dict[str, Any]:
    """All messages that android_env has, by full name."""
    found: dict[str, Any] = {}
    for name in FILES:
        descriptor = importlib.import_module(f"android_env.proto.{name}_pb2").DESCRIPTOR
        found |= {each.full_name: each for each in descriptor.message_types_by_name.values()}
    empty = importlib.import_module("google.protobuf.empty_pb2").Empty.DESCRIPTOR
    return {**found, "android.emulation.control.Empty": empty}


@pytest.mark.needs("android_env")
def test_they_are_the_emulators_own_as_far_as_they_go() -> None:
    known, seen = theirs(), 0
    for name in messages.MESSAGES:
        ours = messages.descriptor(name)
        other = known[ours.full_name]
        for field in ours.fields:
            same = other.fields_by_number[field.number]
            assert (field.name, field.type, field.is_repeated) == (same.name, same.type, same.is_repeated)
            if field.message_type:
                assert field.message_type.full_name == same.message_type.full_name
            seen += 1
        for enum in ours.enum_types:
            values = {value.name: value.number for value in other.enum_types_by_name[enum.name].values}
            assert {value.name: value.number for value in enum.values}.items() <= values.items()
    assert seen > 20


@pytest.mark.needs("android_env")
def test_bytes_of_one_side_are_read_by_the_other() -> None:
    control = importlib.import_module("android_env.proto.emulator_controller_pb2")
    sent = control.TouchEvent(touches=[control.Touch(x=-3, y=1 << 30, pressure=1, touch_major=7)])
    (touch,) = messages.TouchEvent.FromString(sent.SerializeToString()).touches
    assert (touch.x, touch.y, touch.pressure) == (-3, 1 << 30, 1)
    ours = messages.Image(image=b"abc", format=messages.ImageFormat(width=2, height=1, format=1))
    theirs = control.Image.FromString(ours.SerializeToString())
    assert (theirs.image, theirs.format.width, theirs.format.format) == (
        b"abc",
        2,
        control.ImageFormat.RGBA8888,
    )
