"""EmulatorController over a channel of its own: what the phone says and shows, and who is let in."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable

import pytest

pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

import numpy as np
from grpc_phone import connected
from grpc_world import HEIGHT, WIDTH, World, middle, refused, run
from PIL import Image

from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.emulator_grpc.server import ControlServer
from distrl.simulator.adb.faults import Fault, Kind
from distrl.workers.devices.errors import PortInUse

RGB, RGBA = messages.ImageFormat.RGB888, messages.ImageFormat.RGBA8888
RunState = messages.VmRunState


def test_the_status_says_what_the_phone_is() -> None:
    async def test(world: World) -> None:
        status = await world.client.call("getStatus")
        hardware = {entry.key: entry.value for entry in status.hardwareConfig.entry}
        assert status.booted
        assert status.version
        assert (hardware["hw.lcd.width"], hardware["hw.lcd.height"]) == (str(WIDTH), str(HEIGHT))
        assert hardware["avd.name"] == "Pixel"
        assert status.vmConfig.ramSizeBytes > 0
        world.machine.booted_at -= 100
        assert (await world.client.call("getStatus")).uptime >= 100_000
        world.system.properties["sys.boot_completed"] = ""
        assert not (await world.client.call("getStatus")).booted

    run(test)


@pytest.mark.parametrize(("kind", "channels"), [(RGB, 3), (RGBA, 4)])
def test_pixels_are_those_of_the_screen(kind: int, channels: int) -> None:
    async def test(world: World) -> None:
        answer = await world.client.call("getScreenshot", messages.ImageFormat(format=kind))
        assert (answer.format.width, answer.format.height, answer.format.format) == (WIDTH, HEIGHT, kind)
        assert answer.format.rotation.rotation == messages.Rotation.PORTRAIT
        assert answer.timestampUs > 0
        pixels = np.frombuffer(answer.image, np.uint8).reshape(HEIGHT, WIDTH, channels)
        assert (pixels[..., :3] == np.asarray(world.system.screenshot())).all()
        assert channels == 3 or (pixels[..., 3] == 255).all()

    run(test)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((0, 0), (270, 600)),
        ((100, 0), (270, 600)),
        ((135, 600), (135, 300)),
        ((270, 300), (135, 300)),
        ((540, 4000), (540, 1200)),
        ((1, 1), (1, 1)),
    ],
)
@pytest.mark.parametrize("kind", [messages.ImageFormat.PNG, RGB])
def test_pictures_keep_the_screens_shape_and_fit_into_what_is_asked_for(
    asked: tuple[int, int], given: tuple[int, int], kind: int
) -> None:
    async def test(world: World) -> None:
        request = messages.ImageFormat(format=kind, width=asked[0], height=asked[1])
        answer = await world.client.call("getScreenshot", request)
        assert (answer.format.width, answer.format.height) == given
        if kind == RGB:
            assert len(answer.image) == given[0] * given[1] * 3
        else:
            assert Image.open(io.BytesIO(answer.image)).size == given

    run(test)


def test_png_pixels_are_exact() -> None:
    async def test(world: World) -> None:
        answer = await world.client.call("getScreenshot", messages.ImageFormat())
        shown = Image.open(io.BytesIO(answer.image)).convert("RGB")
        assert shown.tobytes() == world.system.screenshot().tobytes()

    run(test)


def test_pictures_that_cannot_be_are_refused() -> None:
    async def test(world: World) -> None:
        def ask(**fields: object) -> Awaitable[object]:
            return world.client.call("getScreenshot", messages.ImageFormat(**fields))

        assert (await refused(ask(format=9)))[0] == "INVALID_ARGUMENT"
        assert (await refused(ask(width=9000, height=9000)))[0] == "INVALID_ARGUMENT"
        mapped = messages.ImageTransport(channel=messages.ImageTransport.MMAP, handle="file:///x")
        assert (await refused(ask(transport=mapped)))[0] == "UNIMPLEMENTED"
        other = await world.client.call("getScreenshot", messages.ImageFormat(display=1))
        assert (other.image, other.format.width) == (b"", 0)

    run(test)


def test_a_paused_phone_feels_nothing_until_it_goes_on() -> None:
    async def test(world: World) -> None:
        async def is_in(state: int) -> bool:
            return (await world.client.call("getVmState")).state == state

        assert await is_in(RunState.RUNNING)
        await world.client.call("setVmState", RunState(state=RunState.PAUSED))
        assert await is_in(RunState.PAUSED)
        assert world.machine.faults.kind is Kind.HANG
        await world.client.tap(*middle(world.system, "Settings"))
        await world.client.key(key="GoHome")
        assert world.system.device.foreground() == "launcher"
        await world.client.call("setVmState", RunState(state=RunState.RUNNING))
        assert await is_in(RunState.RUNNING)
        await world.client.tap(*middle(world.system, "Settings"))
        assert world.system.device.foreground() == "settings"

    run(test)


def test_a_reset_restarts_the_phone() -> None:
    async def test(world: World) -> None:
        world.system.activities.open("settings")
        boot_id, rebooted = world.system.boot_id, asyncio.Event()

        def reboot() -> None:
            world.system.reboot()
            rebooted.set()

        world.machine.reboot = reboot
        await world.client.call("setVmState", RunState(state=RunState.RESET))
        await asyncio.wait_for(rebooted.wait(), 60)
        assert world.system.boot_id != boot_id
        assert world.system.device.foreground() == "launcher"

    run(test)


@pytest.mark.parametrize("state", [RunState.SHUTDOWN, RunState.TERMINATE])
def test_the_end_of_the_phone_is_answered_before_it_comes(state: int) -> None:
    async def test(world: World) -> None:
        world.machine.kill = lambda: (world.killed.set(), asyncio.ensure_future(world.server.stop()))[0]
        await world.client.call("setVmState", RunState(state=state))
        await asyncio.wait_for(world.killed.wait(), 60)

    run(test)


def test_states_that_can_only_be_observed_change_nothing() -> None:
    async def test(world: World) -> None:
        for state in (RunState.UNKNOWN, RunState.SAVE_VM, RunState.INTERNAL_ERROR):
            await world.client.call("setVmState", RunState(state=state))
        assert (await world.client.call("getVmState")).state == RunState.RUNNING
        assert not world.killed.is_set()

    run(test)


def test_a_stream_has_the_screen_at_once_and_after_every_change() -> None:
    async def test(world: World) -> None:
        stream = world.client.stream("streamScreenshot", messages.ImageFormat(format=RGB))
        first = await stream.read()
        assert first.image == world.system.screenshot().tobytes()
        assert first.seq == 0
        world.system.activities.open("settings")
        second = await stream.read()
        assert second.image == world.system.screenshot().tobytes() != first.image
        assert second.seq > 0
        world.system.blank = True
        assert set((await stream.read()).image) == {0}
        stream.cancel()
        bad = world.client.stream("streamScreenshot", messages.ImageFormat(format=9))
        assert (await refused(bad.read()))[0] == "INVALID_ARGUMENT"

    run(test)


def test_faults_show_a_blank_screen_is_black_and_a_slow_phone_answers_late() -> None:
    async def test(world: World) -> None:
        world.system.blank = True
        answer = await world.client.call("getScreenshot", messages.ImageFormat(format=RGB))
        assert set(answer.image) == {0}
        world.machine.faults.set(Fault(Kind.SLOW, added_s=0.2))
        loop = asyncio.get_running_loop()
        since = loop.time()
        await world.client.call("getStatus")
        assert loop.time() - since >= 0.2

    run(test)


def test_what_is_not_served_is_unimplemented() -> None:
    async def test(world: World) -> None:
        assert (await refused(world.client.call("getGps")))[0] == "UNIMPLEMENTED"

    run(test)


@pytest.mark.parametrize("known", ["", "wrong"])
def test_whoever_does_not_know_the_token_gets_nothing(known: str) -> None:
    async def test(world: World) -> None:
        x, y = middle(world.system, "Settings")
        assert (await refused(world.client.call("getStatus")))[0] == "UNAUTHENTICATED"
        assert (await refused(world.client.tap(x, y)))[0] == "UNAUTHENTICATED"
        stream = world.client.stream("streamScreenshot", messages.ImageFormat())
        assert (await refused(stream.read()))[0] == "UNAUTHENTICATED"
        assert world.system.device.foreground() == "launcher"

    run(test, token="s3cret", known=known)


def test_the_token_opens_it() -> None:
    async def test(world: World) -> None:
        assert (await world.client.call("getStatus")).booted

    run(test, token="s3cret", known="s3cret")


def test_clients_without_credentials_are_heard_too() -> None:
    async def test(world: World) -> None:
        async with connected(world.port, is_local=False) as client:
            assert (await client.call("getStatus")).booted

    run(test)


def test_a_port_in_use_is_one_line_and_stopping_frees_it() -> None:
    async def test(world: World) -> None:
        other = ControlServer(world.machine)
        with pytest.raises(PortInUse, match=f"port {world.port} of 127.0.0.1 is in use"):
            await other.start(world.port)
        await world.server.stop()
        await world.server.stop()
        assert await other.start(world.port) == world.port
        await other.stop()

    run(test)
