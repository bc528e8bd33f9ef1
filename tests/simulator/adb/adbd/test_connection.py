"""A connection to a phone's adbd: the handshake, streams and their flow, and the faults."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest
from adb_peer import DEADLINE_S, HOST_BANNER, AdbPeer, Seen, pack
from adb_phone import AdbPhone, adb_phone
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from distrl.simulator.adb.adbd import stream as packets
from distrl.simulator.adb.adbd.connection import MAX_STREAMS
from distrl.simulator.adb.adbd.stream import READ_AHEAD, Packet, PacketError, Reader, encode
from distrl.simulator.adb.runtime import Pipe


def answers(phone: AdbPhone, data: bytes) -> bytes:
    """Lets the phone answer connections to a port of it with `data`. Returns the service's name."""
    phone.system.network.listen(7000, lambda pipe: pipe.write(data))
    return b"tcp:7000"


async def knock(phone: AdbPhone, version: int = 0x01000001, limit: int = 1 << 20) -> AdbPeer:
    """A connection on which the peer has said hello."""
    peer = await AdbPeer.connect(phone.port)
    peer.send("CNXN", version, limit, HOST_BANNER)
    return peer


@pytest.mark.parametrize(("version", "limit"), [(0x00FFFFFF, 1 << 20), (0x01000001, 16)])
async def test_an_impossible_peer_is_dropped(phone: AdbPhone, version: int, limit: int) -> None:
    assert await (await knock(phone, version, limit)).ended()


@pytest.mark.parametrize(
    "service",
    [b"abb_exec:package", b"track-app", b"jdwp:1", b"tcp:1", b"tcp:x", b"localabstract:x", b"", b"\xff"],
)
async def test_a_service_that_there_is_not_is_closed_with_no_id_of_ours(
    phone: AdbPhone, peer: AdbPeer, service: bytes
) -> None:
    peer.send("OPEN", 9, 0, service + b"\0")
    assert await peer.next() == Seen("CLSE", 0, 9)


async def test_streams_get_ids_of_their_own_and_too_many_are_refused(phone: AdbPhone, peer: AdbPeer) -> None:
    async def wait(pipe: Pipe) -> None:
        await pipe.read(1)

    phone.system.network.listen(7000, wait)
    ids = [await peer.open(b"tcp:7000", local) for local in range(1, MAX_STREAMS + 1)]
    assert len(set(ids)) == MAX_STREAMS
    peer.send("OPEN", 999, 0, b"tcp:7000\0")
    assert await peer.next() == Seen("CLSE", 0, 999)


async def test_data_without_a_confirmation_ends_the_connection(phone: AdbPhone, peer: AdbPeer) -> None:
    async def never_reads(pipe: Pipe) -> None:
        await asyncio.Event().wait()

    phone.system.network.listen(7000, never_reads)
    remote = await peer.open(b"tcp:7000", 4)
    for _ in range(3):
        peer.send("WRTE", 4, remote, bytes(READ_AHEAD))
    while not peer.reader.at_eof():
        await asyncio.wait_for(peer.reader.read(4096), DEADLINE_S)
    assert not phone.server.connections


async def test_of_a_peer_that_does_not_read_nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its answers would pile up without end: here pictures of 640 KB for 40 bytes each."""
    asked = 60
    async with adb_phone(270, 600) as phone:
        given: list[int] = []
        picture = phone.system.screenshot

        def screenshot() -> Image.Image:
            given.append(1)
            return picture()

        monkeypatch.setattr(phone.system, "screenshot", screenshot)
        peer = await AdbPeer.online(phone.port)
        for local in range(1, asked + 1):
            peer.send("OPEN", local, 0, b"framebuffer:\0")
            for _ in range(5):
                await asyncio.sleep(0)
        assert len(given) < asked
        while len(given) < asked:
            await peer.next()


async def test_an_unauthorized_phone_asks_again_and_again_and_lets_in_when_it_is_over(
    phone: AdbPhone,
) -> None:
    before = await AdbPeer.online(phone.port)
    phone.fault("unauthorized")
    assert await before.ended()
    peer = await knock(phone)
    challenge = await peer.next()
    assert (challenge.command, challenge.arg0, len(challenge.payload)) == ("AUTH", 1, 20)
    peer.send("AUTH", 2, 0, bytes(256))
    again = await peer.next()
    assert (again.command, again.payload != challenge.payload) == ("AUTH", True)
    peer.send("AUTH", 3, 0, b"a public key\0")
    assert await peer.is_silent()
    phone.fault("none")
    assert (await peer.next()).command == "CNXN"


async def test_a_hung_phone_keeps_its_connections_and_says_nothing_until_it_goes_on(
    phone: AdbPhone, peer: AdbPeer
) -> None:
    service = answers(phone, b"x")
    phone.fault("hang")
    peer.send("OPEN", 4, 0, service + b"\0")
    assert await peer.is_silent()
    late = await knock(phone)
    assert await late.is_silent()
    phone.fault("none")
    assert [seen.command for seen in await peer.until("CLSE")] == ["OKAY", "WRTE", "CLSE"]
    assert (await late.next()).command == "CNXN"


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_a_peer_sends_the_next_one_is_served(
    phone: AdbPhone, peer: AdbPeer, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    services = [b"tcp:7000", b"sync:", b"shell,v2,raw:cat", b"reverse:forward:tcp:1;tcp:2", b"exec:", b""]
    service = answers(phone, bytes(10_000))
    for _ in range(200):
        command = rng.choice(["OPEN", "OPEN", "OKAY", "WRTE", "CLSE", "AUTH"])
        payload = rng.choice(services) + b"\0" if command == "OPEN" else rng.randbytes(rng.randrange(64))
        peer.send(command, rng.randrange(12), rng.randrange(12), payload)
    await peer.writer.drain()
    await peer.close()
    assert await (await AdbPeer.online(phone.port)).run(service, 4) == bytes(10_000)
    assert "Traceback" not in caplog.text


PACKETS = st.builds(
    Packet,
    st.sampled_from([packets.CNXN, packets.OPEN, packets.OKAY, packets.WRTE]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


@given(st.lists(PACKETS, max_size=5), st.integers(1, 50), st.booleans())
def test_packets_come_out_as_they_went_in_however_the_bytes_are_cut(
    sent: list[Packet], size: int, checksums: bool
) -> None:
    reader = Reader()
    reader.checksums = checksums
    data = b"".join(encode(packet, checksums) for packet in sent)
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    assert [packet for piece in pieces for packet in reader.feed(piece)] == sent


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n", "not an adb packet"),
        (pack("OKAY", 1, 2, magic=0), "not an adb packet"),
        (pack("SYNC", 1, 2), "not an adb packet"),
        (pack("WRTE", 1, 2, b"abc", crc=1), "checksum"),
        (pack("WRTE", 1, 2)[:12] + struct.pack("<III", 2 << 20, 0, packets.WRTE ^ 0xFFFFFFFF), "payload of"),
    ],
)
def test_what_is_no_packet_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(PacketError, match=what):
        list(Reader().feed(data))
