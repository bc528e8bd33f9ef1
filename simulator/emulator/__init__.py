"""A stand-in for the Android emulator's executable: its options, locks, messages, a simulated phone."""
