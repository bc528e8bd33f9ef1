"""The order of messages between a real adbd (34) and a real adb server (36), replayed against the phone.

Each line below is what one side sent, as it was recorded; identifiers are the recording's. Left out is what
the recording's daemon repeats on closed streams: a second CLSE, which peers ignore.
"""

from __future__ import annotations

import pytest
from adb_peer import HOST_BANNER, AdbPeer, Seen
from adb_phone import AdbPhone

HELLO = Seen("CNXN", 0x01000001, 0x100000, HOST_BANNER)
SHELL_V2 = (
    ("H", Seen("OPEN", 0x6, 0x0, b"shell,v2,TERM=xterm,raw:echo out; echo err >&2; exit 3\x00")),
    ("D", Seen("OKAY", 0x1, 0x6)),
    ("H", Seen("WRTE", 0x6, 0x1, b"\x04\x00\x00\x00\x00")),
    (
        "D",
        Seen("WRTE", 0x1, 0x6, b"\x01\x04\x00\x00\x00out\n\x02\x04\x00\x00\x00err\n\x03\x01\x00\x00\x00\x03"),
    ),
    ("D", Seen("CLSE", 0x1, 0x6)),
    ("H", Seen("OKAY", 0x6, 0x1)),
    ("H", Seen("CLSE", 0x6, 0x1)),
)
EXEC = (
    ("H", Seen("OPEN", 0x8, 0x0, b"exec:echo x\x00")),
    ("D", Seen("OKAY", 0x2, 0x8)),
    ("D", Seen("WRTE", 0x2, 0x8, b"x\n")),
    ("D", Seen("CLSE", 0x2, 0x8)),
    ("H", Seen("OKAY", 0x8, 0x2)),
    ("H", Seen("CLSE", 0x8, 0x2)),
)
SHELL_V1 = (
    ("H", Seen("OPEN", 0xB, 0x0, b"shell:echo v1; echo e >&2\x00")),
    ("D", Seen("OKAY", 0x3, 0xB)),
    ("D", Seen("WRTE", 0x3, 0xB, b"v1\ne\n")),
    ("D", Seen("CLSE", 0x3, 0xB)),
    ("H", Seen("OKAY", 0xB, 0x3)),
    ("H", Seen("CLSE", 0xB, 0x3)),
)
_PATH = b"/data/local/tmp/absent"
_ABSENT = b"STA2\x02\x00\x00\x00" + bytes(64)
SYNC = (
    ("H", Seen("OPEN", 0x11, 0x0, b"sync:\x00")),
    ("D", Seen("OKAY", 0x5, 0x11)),
    ("H", Seen("WRTE", 0x11, 0x5, b"STA2" + len(_PATH).to_bytes(4, "little") + _PATH)),
    ("D", Seen("OKAY", 0x5, 0x11)),
    ("D", Seen("WRTE", 0x5, 0x11, _ABSENT)),
    ("H", Seen("OKAY", 0x11, 0x5)),
    (
        "H",
        Seen(
            "WRTE",
            0x11,
            0x5,
            b"SEND" + (len(_PATH) + 6).to_bytes(4, "little") + _PATH + b",33188" + b"DATA\x02\x00\x00\x00hi"
            b"DONE\x05\x00\x00\x00",
        ),
    ),
    ("D", Seen("OKAY", 0x5, 0x11)),
    ("D", Seen("WRTE", 0x5, 0x11, b"OKAY\x00\x00\x00\x00")),
    ("H", Seen("OKAY", 0x11, 0x5)),
    ("H", Seen("WRTE", 0x11, 0x5, b"QUIT\x00\x00\x00\x00")),
    ("D", Seen("OKAY", 0x5, 0x11)),
    ("D", Seen("CLSE", 0x5, 0x11)),
    ("H", Seen("CLSE", 0x11, 0x5)),
)
TRACES = {
    "shell v2": SHELL_V2,
    "exec": EXEC,
    "shell v1": SHELL_V1,
    "sync": SYNC,
}
Script = tuple[tuple[str, Seen], ...]


async def replay(peer: AdbPeer, script: Script, ids: dict[int, int]) -> None:
    """Sends the host's messages and compares the phone's, which may cut its data differently.

    Args:
        peer: The connection.
        script: The recording.
        ids: The phone's ids by the recording's.
    """
    pending = b""
    for sender, recorded in script:
        if sender == "H":
            ours = (
                ids.get(recorded.arg1, recorded.arg1)
                if recorded.command not in ("OPEN", "CNXN")
                else recorded.arg1
            )
            peer.send(recorded.command, recorded.arg0, ours, recorded.payload)
            continue
        seen = await peer.next()
        if recorded.command == "OKAY" and recorded.arg0 not in ids:
            ids[recorded.arg0] = seen.arg0
        expected = Seen(
            recorded.command, ids.get(recorded.arg0, recorded.arg0), recorded.arg1, recorded.payload
        )
        while seen.command == "WRTE" and seen.payload != expected.payload:
            pending += seen.payload
            assert expected.payload.startswith(pending), (seen, expected)
            peer.send("OKAY", seen.arg1, seen.arg0)
            seen = await peer.next()
            seen = Seen(seen.command, seen.arg0, seen.arg1, pending + seen.payload)
            pending = b""
        assert seen == expected


@pytest.mark.parametrize("name", TRACES)
async def test_one_exchange_goes_as_it_was_recorded(phone: AdbPhone, name: str) -> None:
    peer = await AdbPeer.connect(phone.port)
    peer.send("CNXN", HELLO.arg0, HELLO.arg1, HELLO.payload)
    hello = await peer.next()
    assert (hello.command, hello.arg0, hello.arg1) == ("CNXN", 0x01000001, 0x100000)
    await replay(peer, TRACES[name], {})
    assert await peer.is_silent()
