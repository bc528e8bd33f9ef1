"""Services of the phone besides shell and sync: framebuffer, ports, reverse, root, reboot."""

from __future__ import annotations

import struct

import pytest
from adb_peer import AdbPeer, Seen
from adb_phone import AdbPhone
from PIL import Image

from distrl.simulator.adb.files import ROOT, SHELL
from distrl.simulator.adb.runtime import Pipe


async def echo(pipe: Pipe) -> None:
    """Sends back what comes."""
    while data := await pipe.read(1024):
        await pipe.write(data)


async def test_the_framebuffer_is_the_screen(phone: AdbPhone, peer: AdbPeer) -> None:
    data = await peer.run(b"framebuffer:", 1)
    version, bits, size, width, height, *channels = struct.unpack_from("<13I", data)
    assert (version, bits, size, width, height) == (1, 32, 90 * 200 * 4, 90, 200)
    assert channels == [0, 8, 16, 8, 8, 8, 24, 8]  # red, blue, green, alpha
    picture = Image.frombytes("RGBA", (width, height), data[52:])
    assert picture.convert("RGB").tobytes() == phone.system.screenshot().tobytes()


@pytest.mark.parametrize("service", [b"tcp:7000", b"tcp:7000:localhost", b"tcp:7000:127.0.0.1"])
async def test_a_port_of_the_phone_can_be_connected_to(
    phone: AdbPhone, peer: AdbPeer, service: bytes
) -> None:
    phone.system.network.listen(7000, echo)
    remote = await peer.open(service, 1)
    peer.send("WRTE", 1, remote, b"hello")
    assert await peer.next() == Seen("OKAY", remote, 1)
    assert await peer.next() == Seen("WRTE", remote, 1, b"hello")


async def test_reverse_forwards_a_connection_to_the_host(phone: AdbPhone, peer: AdbPeer) -> None:
    assert await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1) == b"OKAY"
    inside = await peer.open(b"tcp:6100", 2)
    asked = await peer.next()
    assert (asked.command, asked.arg1, asked.payload) == ("OPEN", 0, b"tcp:7100\0")
    back = asked.arg0
    peer.send("OKAY", 50, back)
    peer.send("WRTE", 2, inside, b"from the phone")
    seen = [await peer.next(), await peer.next()]
    assert Seen("OKAY", inside, 2) in seen
    assert Seen("WRTE", back, 50, b"from the phone") in seen
    peer.send("OKAY", 50, back)
    peer.send("WRTE", 50, back, b"from the host")
    seen = [await peer.next(), await peer.next()]
    assert Seen("OKAY", back, 50) in seen
    assert Seen("WRTE", inside, 2, b"from the host") in seen
    peer.send("CLSE", 50, back)
    seen = [await peer.next(), await peer.next()]
    assert {(packet.command, packet.arg1) for packet in seen} == {("CLSE", 50), ("CLSE", 2)}


async def test_a_reverse_connection_that_the_host_refuses_is_closed(phone: AdbPhone, peer: AdbPeer) -> None:
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1)
    inside = await peer.open(b"tcp:6100", 2)
    asked = await peer.next()
    peer.send("CLSE", 0, asked.arg0)
    assert await peer.next() == Seen("CLSE", inside, 2)


async def test_reverse_forwards_are_listed_and_removed(phone: AdbPhone, peer: AdbPeer) -> None:
    chosen = await peer.run(b"reverse:forward:tcp:0;tcp:7100", 1)
    assert chosen[:4] == b"OKAY"
    port = int(chosen[8:])
    assert int(chosen[4:8], 16) == len(str(port))
    listed = await peer.run(b"reverse:list-forward", 2)
    assert listed[4:].decode().endswith(f" tcp:{port} tcp:7100\n")
    assert int(listed[:4], 16) == len(listed) - 4
    assert await peer.run(b"reverse:killforward:tcp:%d" % port, 3) == b"OKAY"
    assert (await peer.run(b"reverse:killforward:tcp:%d" % port, 4))[:4] == b"FAIL"
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 5)
    assert await peer.run(b"reverse:killforward-all", 6) == b"OKAY"
    assert await peer.run(b"reverse:list-forward", 7) == b"0000"
    assert phone.system.network.answer(6100) is None


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"forward:norebind:tcp:6100;tcp:7200", b"cannot rebind existing socket"),
        (b"forward:localabstract:x;tcp:7200", b"only tcp ports can be forwarded"),
        (b"forward:tcp:7000;tcp:7200", b"cannot bind listener: Address already in use"),
        (b"what", b"unknown request 'reverse:what'"),
    ],
)
async def test_reverse_says_why_it_refuses(
    phone: AdbPhone, peer: AdbPeer, request_: bytes, answer: bytes
) -> None:
    phone.system.network.listen(7000, echo)
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1)
    assert await peer.run(b"reverse:" + request_, 2) == b"FAIL%04x" % len(answer) + answer


async def test_reverse_forwards_end_with_their_connection(phone: AdbPhone, peer: AdbPeer) -> None:
    await peer.run(b"reverse:forward:tcp:6100;tcp:7100", 1)
    phone.server.drop()
    assert await peer.ended()
    assert phone.system.network.answer(6100) is None


async def test_root_starts_adbd_anew_and_unroot_undoes_it(phone: AdbPhone, peer: AdbPeer) -> None:
    assert phone.system.files.uid == SHELL
    assert await peer.run(b"root:", 1) == b"restarting adbd as root\n"
    assert await peer.ended()
    assert phone.system.files.uid == ROOT
    again = await AdbPeer.online(phone.port)
    assert await again.run(b"root:", 1) == b"adbd is already running as root\n"
    assert await again.run(b"unroot:", 2) == b"restarting adbd as non root\n"
    assert phone.system.files.uid == SHELL


async def test_a_reboot_ends_connections_and_programs_and_keeps_files(phone: AdbPhone, peer: AdbPeer) -> None:
    phone.system.files.write("/data/local/tmp/kept", b"x")
    phone.system.network.listen(7000, echo)
    phone.system.device.tap(45, 150)
    assert await peer.run(b"reboot:", 1) == b""
    assert await peer.ended()
    again = await AdbPeer.online(phone.port)
    again.send("OPEN", 1, 0, b"tcp:7000\0")
    assert await again.next() == Seen("CLSE", 0, 1)
    assert phone.system.files.read("/data/local/tmp/kept") == b"x"
    assert phone.system.device.foreground() == "launcher"
