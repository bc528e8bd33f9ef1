"""Channels over real sockets on loopback."""

import threading

import msgpack
import pytest
import zmq

from distrl.core.errors import NetworkError, ProtocolError, SecurityError
from distrl.core.messages import Ack, Reject, RejectCode, StatusRequest, encode
from distrl.core.service import Service
from distrl.core.sockets import Channel, PeerError, Poller, Waker, Wire, is_local


@pytest.fixture
def wire():
    with Wire() as wire:
        yield wire


def raw_dealer(wire: Wire, channel: Channel) -> "zmq.Socket[bytes]":
    """A socket that sends whatever frames a test wants."""
    raw = zmq.Context.instance().socket(zmq.DEALER)
    raw.linger = 0
    raw.connect(channel.endpoint)
    return raw


LOCAL = "tcp://127.0.0.1:5 tcp://127.1.2.3:* tcp://localhost:0 tcp://[::1]:7 ipc:///tmp/x inproc://x"
PUBLIC = "tcp://0.0.0.0:5 tcp://*:5 tcp://10.0.0.1:5 tcp://[::]:5 tcp://127.0.0.1.example.com:5 tcp://h:1"


def test_public_endpoints_need_keys(wire):
    assert all(is_local(endpoint) for endpoint in LOCAL.split())
    for endpoint in PUBLIC.split():
        assert not is_local(endpoint)
        for make in (wire.bind_router, wire.bind_pub, wire.connect_dealer, wire.connect_sub):
            with pytest.raises(SecurityError, match="distrl keys"):
                make(endpoint)


def test_message_and_blobs_arrive_and_are_answered(wire):
    server = wire.bind_router("tcp://127.0.0.1:0")
    client = wire.connect_dealer(server.endpoint)
    big = bytes(range(256)) * 4096
    client.send(StatusRequest(), [b"small", big])
    received = server.recv(5.0)
    assert received.message == StatusRequest()
    assert [bytes(blob) for blob in received.blobs] == [b"small", big]
    server.send(Ack(trajectory_id="t"), peer=received.peer)
    assert client.recv(5.0).message == Ack(trajectory_id="t")
    assert client.recv(0.0) is None


def test_broadcast_reaches_a_subscriber(wire):
    pub = wire.bind_pub("tcp://127.0.0.1:*")
    sub = wire.connect_sub(pub.endpoint)
    received = None
    for _ in range(100):  # a subscription needs a moment to reach the publisher
        pub.send(Ack(trajectory_id="t"))
        received = received or sub.recv(0.05)
    assert received.message == Ack(trajectory_id="t")


def test_an_address_in_use_is_named(wire):
    server = wire.bind_router("tcp://127.0.0.1:0")
    with pytest.raises(NetworkError, match=f"{server.endpoint} is in use"):
        wire.bind_router(server.endpoint)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1", "carrier-pigeon://x", "nonsense"])
def test_a_bad_address_is_named(endpoint):
    with Wire() as wire, pytest.raises(NetworkError, match=endpoint):
        wire.bind_router(endpoint)


def test_a_host_may_be_given_by_name(wire):
    assert wire.bind_router("tcp://localhost:0").endpoint.startswith("tcp://127.0.0.1:")


def test_sending_without_a_server_ends_at_the_deadline(wire):
    client = wire.connect_dealer("tcp://127.0.0.1:1")
    assert not client.is_connected
    with pytest.raises(NetworkError):
        client.send(StatusRequest(), timeout_s=0.05)


def test_a_message_to_a_peer_that_is_gone_is_dropped(wire):
    server = wire.bind_router("tcp://127.0.0.1:0")
    server.send(Ack(trajectory_id="t"), peer=b"nobody")


def test_a_bad_frame_names_its_peer_and_the_channel_goes_on(wire):
    server = wire.bind_router("tcp://127.0.0.1:0")
    raw = raw_dealer(wire, server)
    raw.send_multipart([b"garbage"])
    with pytest.raises(PeerError) as caught:
        server.recv(5.0)
    raw.send_multipart([encode(StatusRequest())])
    assert server.recv(5.0).peer == caught.value.peer
    raw.close()


def test_a_waker_ends_a_wait(wire):
    waker = Waker()
    poller = Poller([wire.bind_router("tcp://127.0.0.1:0")], waker)
    threading.Thread(target=waker.wake).start()
    assert poller.wait(60.0) == []
    for _ in range(100_000):
        waker.wake()  # never blocks, however often
    assert poller.wait(60.0) == []
    waker.close()
    waker.wake()  # no thread waits for it


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ProtocolError("not-found", "no such thing"), RejectCode.NOT_FOUND),
        (NetworkError("elsewhere"), RejectCode.INTERNAL),
        (ZeroDivisionError("a bug"), RejectCode.INTERNAL),
    ],
)
def test_a_service_rejects_by_type_and_goes_on(wire, failure, code, caplog):
    failures = [failure]

    def handle(received):
        if failures:
            raise failures.pop()
        service.reply(received.peer, Ack(trajectory_id="fine"))

    service = Service(wire.bind_router("tcp://127.0.0.1:0"), handle)
    raw = raw_dealer(wire, service.channel)
    poller = Poller([service.channel])
    answers = []
    for frames in ([msgpack.packb({"v": 9})], [encode(StatusRequest())], [encode(StatusRequest())]):
        raw.send_multipart(frames)
        assert poller.wait(5.0) == [service.channel]
        assert service.pump() == 1
        assert raw.poll(5000)
        answers.append(msgpack.unpackb(raw.recv()))
    raw.close()
    assert [answer.get("code") for answer in answers] == ["version", code.value, None]
    assert "ZeroDivisionError" not in answers[1]["reason"]


def test_bad_input_is_logged_once_per_peer_and_code(wire, caplog):
    service = Service(wire.bind_router("tcp://127.0.0.1:0"), lambda received: None)
    for _ in range(5):
        service.reject(b"peer", ProtocolError("malformed", "bad"))
    service.reject(b"peer", ProtocolError("version", "bad"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert Reject(code=RejectCode.MALFORMED, reason="bad").ref == ""
