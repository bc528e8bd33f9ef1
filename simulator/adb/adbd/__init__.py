"""The device's side of the adb protocol, for one simulated phone: what the adb server connects to.

    TCP connection ── connection.py: handshake, streams (stream.py) ──► services.py: one task per stream
                                          ▲
    faults.py ── hang, offline, … ────────┘

Everything runs on one event loop. A stream has one packet on the way at most, which bounds what waits.
"""
