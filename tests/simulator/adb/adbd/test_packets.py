"""adb packets: bytes and back, in pieces of any size, and what is refused."""

from __future__ import annotations

import struct

import pytest
from adb_peer import pack
from hypothesis import given
from hypothesis import strategies as st

from distrl.simulator.adb.adbd import stream as packets
from distrl.simulator.adb.adbd.stream import CNXN, OKAY, OPEN, WRTE, Packet, PacketError, Reader, encode

PACKETS = st.builds(
    Packet,
    st.sampled_from([CNXN, OPEN, OKAY, WRTE]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


@given(st.lists(PACKETS, max_size=5), st.lists(st.integers(1, 50), min_size=1), st.booleans())
def test_packets_come_out_as_they_went_in_however_the_bytes_are_cut(
    sent: list[Packet], sizes: list[int], checksums: bool
) -> None:
    reader = Reader()
    reader.checksums = checksums
    data = b"".join(encode(packet, checksums) for packet in sent)
    found, turn = [], 0
    while data:
        size = sizes[turn % len(sizes)]
        found += list(reader.feed(data[:size]))
        data, turn = data[size:], turn + 1
    assert found == sent


def test_a_packet_s_layout() -> None:
    data = encode(Packet(OPEN, 6, 0, b"shell:\0"), checksums=True)
    assert data == pack("OPEN", 6, 0, b"shell:\0")
    assert struct.unpack_from("<I", data, 16)[0] == sum(b"shell:\0")
    assert encode(Packet(OPEN, 6, 0, b"shell:\0"), checksums=False)[16:20] == bytes(4)


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


def test_checksums_are_not_looked_at_between_new_versions() -> None:
    reader = Reader()
    reader.checksums = False
    assert list(reader.feed(pack("WRTE", 1, 2, b"abc", crc=0))) == [Packet(WRTE, 1, 2, b"abc")]
