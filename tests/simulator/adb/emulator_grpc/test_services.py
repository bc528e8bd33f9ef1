"""gRPC over a channel of its own: what the phone shows and takes, snapshots, the token, the messages."""

from __future__ import annotations

import asyncio
import importlib
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

import numpy as np
from grpc_phone import connected
from grpc_world import HEIGHT, WIDTH, World, grpc_world, middle, refused
from sim_phones import Console, free_pair
from waiting import until

from distrl.simulator.adb.console import run_command
from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.emulator_grpc.server import ControlServer
from distrl.simulator.adb.faults import Fault, Kind
from distrl.simulator.adb.host import GRPC_OFFSET, SimHost
from distrl.simulator.adb.machine import AvdSnapshots
from distrl.workers.devices.errors import PortInUse

Event = messages.KeyboardEvent
RGBA = messages.ImageFormat(format=messages.ImageFormat.RGBA8888)
FILE = "/data/local/tmp/f"
BACK, HOME, SHIFT, A = 166, 110, 50, 38
"""X codes of keys."""


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return grpc_world()


async def test_the_status_says_what_the_phone_is(world: World) -> None:
    status = await world.client.call("getStatus")
    assert status.booted
    assert status.version
    world.machine.booted_at -= 100
    assert (await world.client.call("getStatus")).uptime >= 100_000
    world.system.properties["sys.boot_completed"] = ""
    assert not (await world.client.call("getStatus")).booted


async def test_pixels_are_those_of_the_screen(world: World) -> None:
    answer = await world.client.call("getScreenshot", RGBA)
    assert (answer.format.width, answer.format.height) == (WIDTH, HEIGHT)
    assert answer.timestampUs > 0
    pixels = np.frombuffer(answer.image, np.uint8).reshape(HEIGHT, WIDTH, 4)
    assert (pixels[..., :3] == np.asarray(world.system.screenshot())).all()
    assert (pixels[..., 3] == 255).all()
    world.system.blank = True
    assert set((await world.client.call("getScreenshot", RGBA)).image) == {0, 255}


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


async def test_a_tap_is_a_touch_that_lifts_wherever_it_says_that_it_lifted(world: World) -> None:
    before = world.system.device.phone.dump()
    x, y = middle(world.system, "Settings")
    await world.client.touch((0, x, y, 1))
    assert world.system.device.phone.dump() == before
    await world.client.touch((0, 0, 0, 0))
    assert world.system.device.foreground() == "settings"
    for x in (2, 60, 120, 200):  # from the left edge: back
        await world.client.touch((0, x, 300, 50))
        assert world.system.device.foreground() == "settings"
    await world.client.touch((0, 2, 300, 0))
    assert world.system.device.foreground() == "launcher"


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


@pytest.mark.parametrize("code", [BACK, 9, HOME])
async def test_keys_leave_an_app(world: World, code: int) -> None:
    world.system.activities.open("settings")
    await world.client.key(code)
    assert world.system.device.foreground() == "launcher"


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


async def test_a_hung_phone_takes_no_input_and_a_slow_one_answers_late(world: World) -> None:
    world.machine.faults.set(Fault(Kind.HANG))
    await world.client.tap(*middle(world.system, "Settings"))
    assert world.system.device.foreground() == "launcher"
    world.machine.faults.set(Fault(Kind.SLOW, added_s=0.2))
    loop = asyncio.get_running_loop()
    since = loop.time()
    await world.client.call("getStatus")
    assert loop.time() - since >= 0.2


async def test_the_end_of_the_phone_is_answered_before_it_comes(world: World) -> None:
    world.machine.kill = lambda: (world.killed.set(), asyncio.ensure_future(world.server.stop()))[0]
    await world.client.call("setVmState", messages.VmRunState(state=messages.VmRunState.SHUTDOWN))
    await asyncio.wait_for(world.killed.wait(), 60)


@pytest.mark.parametrize("sent", ["", "wrong"])
async def test_a_client_without_the_token_gets_nothing(sent: str) -> None:
    async with grpc_world("s3cret", sent) as world:
        for call in (world.client.call("getStatus"), world.client.tap(*middle(world.system, "Settings"))):
            assert (await refused(call))[0] == "UNAUTHENTICATED"
        assert world.system.device.foreground() == "launcher"


async def test_the_token_opens_it_and_credentials_are_not_needed() -> None:
    async with (
        grpc_world("s3cret", "s3cret") as world,
        connected(world.port, "s3cret", is_local=False) as client,
    ):
        assert (await world.client.call("getStatus")).booted
        assert (await client.call("getStatus")).booted


async def test_a_port_in_use_is_one_line_and_stopping_frees_it(world: World) -> None:
    other = ControlServer(world.machine)
    with pytest.raises(PortInUse, match=f"port {world.port} of 127.0.0.1 is in use"):
        await other.start(world.port)
    await world.server.stop()
    await world.server.stop()
    assert await other.start(world.port) == world.port
    await other.stop()


async def names(world: World) -> list[str]:
    return sorted(each.snapshot_id for each in (await world.client.call("ListSnapshots")).snapshots)


async def test_a_snapshot_brings_everything_back_and_is_the_consoles_too(world: World) -> None:
    system = world.system
    assert await names(world) == []
    system.files.write(FILE, b"before")
    assert (await world.client.snapshot("SaveSnapshot", "clean")).success
    run_command(world.machine, "avd snapshot save by-console")
    assert await names(world) == ["by-console", "clean"]
    system.files.write(FILE, b"after")
    system.activities.open("settings")
    answer = await world.client.snapshot("LoadSnapshot", "clean")
    assert (answer.success, answer.err, answer.snapshot_id) == (True, b"", "clean")
    assert system.files.read(FILE) == b"before"
    assert system.device.foreground() == "launcher"


@pytest.mark.parametrize(
    ("method", "name", "why"),
    [
        ("LoadSnapshot", "none", "Could not find none"),
        ("LoadSnapshot", "../clean", "Could not find ../clean"),
        ("SaveSnapshot", "clean", "SnapshotPackage with clean already exists!"),
        ("SaveSnapshot", "", "'' is not a valid snapshot name."),
    ],
)
async def test_failures_are_reported_in_the_answer(world: World, method: str, name: str, why: str) -> None:
    await world.client.snapshot("SaveSnapshot", "clean")
    before = world.machine.snapshots.load("clean")
    answer = await world.client.snapshot(method, name)
    assert (answer.success, answer.err.decode(), answer.snapshot_id) == (False, why, name)
    assert world.machine.snapshots.load("clean") == before


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
    assert await names(world) == ["damaged", "other"]


async def booted(port: int | None) -> bool:
    try:
        async with connected(port) as client:
            return bool((await client.call("getStatus")).booted)
    except grpc.aio.AioRpcError:
        return False


def test_each_phone_of_a_host_has_a_port_and_a_crash_takes_only_its_own() -> None:
    base = free_pair(2, 3, GRPC_OFFSET, GRPC_OFFSET + 2)
    with SimHost(2, 90, 200, base, 1, adb_server_port=0, token_file="", grpc=True) as host:
        one, other = (device.grpc_port for device in host.start())
        assert (one, other) == (base + GRPC_OFFSET, base + 2 + GRPC_OFFSET)
        Console(base).say("avd snapshot save mine")

        async def ask() -> None:
            async with connected(one) as client, connected(other) as second:
                assert [each.snapshot_id for each in (await client.call("ListSnapshots")).snapshots] == [
                    "mine"
                ]
                assert list((await second.call("ListSnapshots")).snapshots) == []
                await client.call("setVmState", messages.VmRunState(state=messages.VmRunState.SHUTDOWN))
                assert (await second.call("getStatus")).booted

        asyncio.run(ask())
        until(lambda: asyncio.run(booted(one)), "the phone")


def test_a_taken_port_of_a_host_stops_its_start_with_one_line() -> None:
    base = free_pair(GRPC_OFFSET)
    taken = base + GRPC_OFFSET
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(PortInUse) as failure:
        SimHost(1, 90, 200, base, 1, adb_server_port=0, token_file="", grpc=True).start()
    assert f"port {taken} of 127.0.0.1 is in use" in str(failure.value)


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
