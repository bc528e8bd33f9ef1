"""The simulated phone as an ADB device: adbd protocol, shell, file sync, emulator console, faults."""
