"""gRPC over a channel of its own: what the phone shows and takes, snapshots, the token, the messages."""

from __future__ import annotations

import importlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from grpc_world import HEIGHT, WIDTH, World, grpc_world, middle, refused

from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.machine import AvdSnapshots

Event = messages.KeyboardEvent
RGBA = messages.ImageFormat(format=messages.ImageFormat.RGBA8888)
BACK, HOME, SHIFT, A = 166, 110, 50, 38
"""X codes of keys."""


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return grpc_world()


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("getGps", messages.Empty()),
        ("getScreenshot", messages.ImageFormat(format=messages.ImageFormat.PNG)),
        ("getScreenshot", messages.ImageFormat(format=RGBA.format, width=90, height=200)),
        ("sendKey", Event(codeType=Event.Evdev, keyCode=30)),
        ("sendKey", Event(codeType=Event.Mac, keyCode=30)),
        ("setVmState", messages.VmRunState(state=messages.VmRunState.UNKNOWN)),
    ],
)
async def test_what_is_not_served_is_unimplemented(world: World, method: str, request_: object) -> None:
    assert (await refused(world.client.call(method, request_)))[0] == "UNIMPLEMENTED"


async def test_touches_from_outside_and_of_further_fingers_change_nothing(world: World) -> None:
    before = world.system.device.phone.dump()
    x, y = middle(world.system, "Settings")
    await world.client.touch((0, x, y, 0))  # lifts, but was not down
    for outside in ((-1, y), (x, HEIGHT), (WIDTH, y), (x, -(2**31)), (2**31 - 1, y)):
        await world.client.touch((0, *outside, 1))
        await world.client.touch((0, x, y, 1))
        await world.client.touch((0, x, y, 0))
    assert world.system.device.phone.dump() == before
    await world.client.touch((7, x, y, 1), (8, 5, 300, 1))
    await world.client.touch((8, 260, 300, 1))  # alone it would be a swipe back
    await world.client.touch((8, 0, 0, 0))
    assert world.system.device.foreground() == "launcher"
    await world.client.touch((7, 0, 0, 0))
    assert world.system.device.foreground() == "settings"


async def test_keys_type_and_modifiers_are_held(world: World) -> None:
    world.system.activities.open("browser")
    await world.client.tap(*middle(world.system, "android.widget.EditText"))
    for code in (A, 56, 10, 61, 180, 100_000, -1, 3):  # a b 1 /, and keys that the phone lacks
        await world.client.key(code)
    assert world.field == "ab1/"
    await world.client.key(SHIFT, Event.keydown)
    await world.client.key(A)
    await world.client.key(SHIFT, Event.keyup)
    await world.client.key(A, Event.keydown)
    await world.client.key(A, Event.keyup)
    assert world.field == "ab1/Aa"
    for event in (Event.keydown, Event.keydown, Event.keyup):  # a key that repeats goes up once
        await world.client.key(SHIFT, event)
    await world.client.key(A)
    assert world.field == "ab1/Aaa"


@pytest.mark.parametrize("sent", ["", "wrong"])
async def test_a_client_without_the_token_gets_nothing(sent: str) -> None:
    async with grpc_world("s3cret", sent) as world:
        for call in (world.client.call("getStatus"), world.client.tap(*middle(world.system, "Settings"))):
            assert (await refused(call))[0] == "UNAUTHENTICATED"
        assert world.system.device.foreground() == "launcher"


async def test_damage_other_hardware_and_a_read_only_emulator_are_reported(
    world: World, tmp_path: Path
) -> None:
    AvdSnapshots(tmp_path, {"hw.gpu.mode": "host"}).save("other", b"")
    kept = AvdSnapshots(tmp_path, {"hw.gpu.mode": "auto"})
    kept.save("damaged", b"no phone")
    world.machine.snapshots = kept
    for name, why in (("other", b"hw.gpu.mode differs"), ("damaged", b"snapshot")):
        answer = await world.client.snapshot("LoadSnapshot", name)
        assert not answer.success
        assert why in answer.err
    world.machine.is_read_only = True
    for method, name in (("SaveSnapshot", "x"), ("LoadSnapshot", "other")):
        assert b"-read-only" in (await world.client.snapshot(method, name)).err


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
