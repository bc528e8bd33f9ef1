"""The device's side of the adb protocol, for one simulated phone: what the adb server connects to.

    TCP connection ── packets.py ──► connection.py: handshake, streams ──► services.py: one task per stream
                                          ▲                                   shell, exec, sync, framebuffer,
    faults.py ── hang, offline, … ────────┘                                   tcp, reverse, reboot, root, …

Everything runs on one event loop. A stream has one packet under way at most, which bounds what waits.
"""
