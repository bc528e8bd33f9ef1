"""The adb client against a server that speaks the real bytes: framing, errors, deadlines, retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from adb_server_fake import FakeAdbServer, FakeDevice, Peer, fake_server, runs
from adb_world import AdbWorld, adb_world

from distrl.workers.devices import adb
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    NonZeroExit,
    OutputInvalid,
    ServerUnavailable,
    ServiceRejected,
    TransportError,
)

PLENTY_S = 10.0
SOON_S = 0.3


def client_of(server: FakeAdbServer, slept: list[float] | None = None) -> AdbClient:
    return AdbClient("phone", server.port, sleep=(slept if slept is not None else []).append)


def hang_before_okay(service: str, peer: Peer) -> None:
    peer.hang()


def hang_after_okay(service: str, peer: Peer) -> None:
    peer.okay()
    peer.hang()


def cut(service: str, peer: Peer) -> None:
    """Accepts the service, gives half of what is due, and breaks off."""
    peer.okay()
    peer.send(b"\x01\x05\x00\x00\x00hello\x03\x01" if "v2" in service else b"hello")


def test_a_command_has_its_outputs_and_its_status() -> None:
    device = FakeDevice(serve=runs(lambda command: (b"out\n", b"no such thing\n", 3)))
    with fake_server(phone=device) as server:
        client = client_of(server)
        result = client.shell("rm x", PLENTY_S, stdin=b"x" * 2**20)  # which it does not read
        with pytest.raises(
            NonZeroExit, match="phone: 'rm x' ended with exit status 3: out no such"
        ) as caught:
            client.check("rm x", PLENTY_S)
    assert (result.out, result.err, result.status, result.text) == (b"out\n", b"no such thing\n", 3, "out\n")
    assert device.asked == ["shell,v2,raw:rm x"] * 2
    assert (caught.value.evidence, caught.value.serial) == ("out\n\nno such thing", "phone")


def test_exec_out_gives_every_byte() -> None:
    data = bytes(range(256)) * 5000

    def serve(service: str, peer: Peer) -> None:
        peer.okay()
        for at in range(0, len(data), 40_001):
            peer.packet(1, data[at : at + 40_001])
        peer.send(b"\x03\x01")
        peer.send(b"\x00\x00\x00\x00")

    device = FakeDevice(serve=runs(lambda command: data))
    with fake_server(phone=device) as server:
        client = client_of(server)
        assert client.exec_out("screencap -p", PLENTY_S) == data
        device.serve = serve  # in split packets
        assert client.shell("cat big", PLENTY_S).out == data
        asked = len(device.asked)
        with pytest.raises(ServiceRejected, match="65535"):
            client.shell("x" * 70_000, PLENTY_S)
        assert len(device.asked) == asked
    with pytest.raises(ServerUnavailable, match=f"no adb server at 127.0.0.1:{server.port}"):
        client.shell("ls", PLENTY_S, reads=True)


@pytest.mark.parametrize(
    "call", [lambda client: client.shell("yes", PLENTY_S), lambda client: client.exec_out("yes", PLENTY_S)]
)
def test_a_device_that_does_not_stop_talking_is_cut_off(
    call: Callable[[AdbClient], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adb, "MAX_ANSWER_BYTES", 100_000)
    with (
        fake_server(phone=FakeDevice(serve=runs(lambda command: bytes(300_000)))) as server,
        pytest.raises(OutputInvalid, match="more than 100000 bytes"),
    ):
        call(client_of(server))


@pytest.mark.parametrize("serve", [hang_before_okay, hang_after_okay])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.shell("ls", SOON_S),
        lambda client: client.shell("ls", SOON_S, reads=True),
        lambda client: client.exec_out("ls", SOON_S),
    ],
)
def test_the_deadline_holds_on_a_device_that_hangs(
    serve: Callable[[str, Peer], None], call: Callable[[AdbClient], object]
) -> None:
    slept: list[float] = []
    with (
        fake_server(phone=FakeDevice(serve=serve)) as server,
        pytest.raises(DeviceTimeout, match=r"within 0\.3 s"),
    ):
        call(client_of(server, slept))
    assert slept == []  # nothing is left for another try


def test_a_device_that_drips_cannot_stretch_the_deadline() -> None:
    def drip(service: str, peer: Peer) -> None:
        peer.okay()
        for _ in range(2000):
            peer.packet(1, b".")
            peer._over.wait(0.01)

    with fake_server(phone=FakeDevice(serve=drip)) as server, pytest.raises(DeviceTimeout):
        client_of(server).shell("yes", SOON_S)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("device offline", DeviceOffline),
        ("device still connecting", DeviceOffline),
        ("device still authorizing", DeviceUnauthorized),
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set\n", DeviceUnauthorized),
        ("device 'phone' not found", DeviceNotFound),
        ("something new", ServiceRejected),
    ],
)
def test_what_the_server_refuses_becomes_the_error_of_that_kind(text: str, kind: type[DeviceError]) -> None:
    def fail(service: str, peer: Peer) -> None:
        peer.fail(text)

    with fake_server(phone=FakeDevice(serve=fail)) as server, pytest.raises(DeviceError) as caught:
        client_of(server).shell("ls", PLENTY_S)
    assert type(caught.value) is kind
    assert caught.value.serial == "phone"
    assert text.split("\n")[0].rstrip(".") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refused_service_is_told_from_a_device_that_goes_away() -> None:
    device = FakeDevice()
    with fake_server(phone=device) as server:
        with pytest.raises(ServiceRejected):
            client_of(server).shell("ls", PLENTY_S, reads=True)
        assert len(device.asked) == 1  # what cannot pass is not tried again

        def leave(service: str, peer: Peer) -> None:
            device.state = "offline"
            peer.fail("closed")

        device.serve = leave
        with pytest.raises(DeviceOffline):
            client_of(server).exec_out("ls", PLENTY_S)
        device.state = "device"
        with pytest.raises(ActionOutcomeUnknown):
            client_of(server).act("input tap 1 2", PLENTY_S)


@pytest.mark.parametrize(
    ("times", "reads", "succeeds"), [(2, True, True), (3, True, False), (1, False, False)]
)
def test_reads_are_tried_again_twice_and_other_commands_never(
    times: int, reads: bool, succeeds: bool
) -> None:
    commands: list[str] = []

    def serve(service: str, peer: Peer) -> None:
        commands.append(service.partition(":")[2])
        (cut if len(commands) <= times else runs(lambda command: "fine"))(service, peer)

    slept: list[float] = []
    with fake_server(phone=FakeDevice(serve=serve)) as server:
        client = client_of(server, slept)
        if succeeds:
            assert client.shell("ls", PLENTY_S, reads=reads).text == "fine"
        else:
            with pytest.raises(DeviceDisconnected):
                client.shell("ls", PLENTY_S, reads=reads)
    assert commands == ["ls"] * (3 if reads else 1)
    assert slept == ([0.2, 1.0] if reads else [])


def tap_soon(client: AdbClient) -> None:
    with suppress(DeviceTimeout):  # a machine too busy to hand it over in time: it was not sent
        client.act("input tap 1 2", SOON_S)
    client.act("input tap 1 2", PLENTY_S)


@pytest.mark.parametrize("serve", [hang_before_okay, hang_after_okay, cut])
def test_an_input_that_may_have_been_executed_is_never_sent_twice(
    serve: Callable[[str, Peer], None],
) -> None:
    device = FakeDevice(serve=serve)
    with (
        fake_server(phone=device) as server,
        pytest.raises(ActionOutcomeUnknown, match="whether 'input tap 1 2' was executed"),
    ):
        tap_soon(client_of(server))
    assert len(device.asked) == 1


def test_an_input_that_went_nowhere_says_why() -> None:
    with fake_server(phone=FakeDevice("offline")) as server, pytest.raises(DeviceOffline):
        client_of(server).act("input tap 1 2", PLENTY_S)
    with fake_server(phone=FakeDevice()) as server, pytest.raises(ServiceRejected):
        client_of(server).act("input tap 1 2", PLENTY_S)  # the device is there and says no


@pytest.mark.parametrize(
    ("state", "error"),
    [("device", None), ("offline", DeviceOffline), ("unauthorized", DeviceUnauthorized)],
)
def test_the_state_is_the_servers_word(state: str, error: type[DeviceError] | None) -> None:
    with fake_server(phone=FakeDevice(state)) as server:
        if error is None:
            assert client_of(server).state() == state
        else:
            with pytest.raises(error):
                client_of(server).state()
        with pytest.raises(DeviceNotFound):
            AdbClient("nobody", server.port).state()


def test_a_wait_in_vain_says_what_the_device_lacks() -> None:
    with fake_server(phone=FakeDevice("unauthorized")) as server, pytest.raises(DeviceUnauthorized):
        client_of(server).wait_ready(1.0)


HUNG_S, LONGER_S = 0.5, 2.0
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 90, 200) as found:
        yield found


@pytest.fixture
def world(shared: AdbWorld) -> Iterator[AdbWorld]:
    """The phone, which is well again after each test."""
    yield shared
    shared.console.command("sim fault none")
    shared.client.wait_ready(PATIENCE_S)


def test_a_hung_phone_answers_in_time_that_it_does_not(world: AdbWorld) -> None:
    device = world.device()
    assert device.size == (90, 200)
    world.console.command("sim fault hang")
    with pytest.raises(DeviceTimeout):
        world.client.shell("true", HUNG_S)
    with pytest.raises(DeviceTimeout):
        world.client.exec_out("screencap -p", HUNG_S)
    with pytest.raises(ActionOutcomeUnknown):
        world.client.act("input tap 1 2", LONGER_S)
    assert world.client.state() == "device"  # the server has not noticed
    world.client.reconnect()
    with pytest.raises(TransportError):
        world.client.shell("true", HUNG_S)
    world.console.command("sim fault none")
    world.client.wait_ready(PATIENCE_S)
    assert device.screenshot().size == (90, 200)


def test_a_crash_ends_what_is_under_way_and_the_phone_comes_back(world: AdbWorld) -> None:
    world.console.command("sim fault crash 0.5")
    with pytest.raises(TransportError):
        world.client.shell("true; sleep 30", PATIENCE_S)
    world.client.wait_ready(PATIENCE_S)
    assert world.device().foreground() == "launcher"
