"""What goes wrong with a device, as types: each says whether trying again can help, and how far it reaches.

DeviceError
├─ TransportError      ServerUnavailable · DeviceNotFound · DeviceOffline · DeviceUnauthorized
│                      DeviceDisconnected · DeviceTimeout
├─ CommandError        NonZeroExit · ServiceRejected (Untypable) · OutputInvalid · SyncFailed
├─ ObservationError    BlankFrame · FrameTruncated
├─ ActionOutcomeUnknown
├─ StateError          ResetFailed · NotReady · GuardTripped
├─ EmulatorError       BootTimeout · EmulatorExited · AvdLocked · SnapshotPending · SnapshotMissing
│                      SnapshotFailed · SnapshotMismatch · LowDisk · NoAcceleration · PortInUse
└─ PoolExhausted
"""

from __future__ import annotations

from enum import Enum

from distrl.core.errors import EnvError


class Scope(str, Enum):
    """What a failure says something about: this call alone, the device, or everything on this machine."""

    CALL = "call"
    DEVICE = "device"
    HOST = "host"


class DeviceError(EnvError):
    """A device failed: the episode on it is faulted, never a zero reward.

    Args:
        message: What happened, in one sentence; the serial is put in front of it.
        remedy: What to do about it, in one sentence.
        serial: The device, "" when it is not about one.
        evidence: What the device, the server or the emulator said, for the log and the post-mortem.
    """

    retryable = False
    """Whether the same call, if it only reads, may be made again."""
    scope = Scope.DEVICE

    def __init__(self, message: str, remedy: str = "", *, serial: str = "", evidence: str = "") -> None:
        super().__init__(f"{serial}: {message}" if serial else message, remedy, fault="device")
        self.serial = serial
        self.evidence = evidence


class TransportError(DeviceError):
    """The way to the device is broken."""


class ServerUnavailable(TransportError):
    """The adb server does not answer."""

    retryable = True
    scope = Scope.HOST


class DeviceNotFound(TransportError):
    """The adb server knows no such device."""


class DeviceOffline(TransportError):
    """The adb server knows the device, but it does not answer its handshake."""


class DeviceUnauthorized(TransportError):
    """The device has not accepted this machine's adb key."""


class DeviceDisconnected(TransportError):
    """The connection broke in the middle of a call."""

    retryable = True


class DeviceTimeout(TransportError):
    """The device did not answer before the call's deadline."""

    retryable = True


class CommandError(DeviceError):
    """The device answered, and what it answered is a failure."""

    scope = Scope.CALL


class NonZeroExit(CommandError):
    """A shell command ended with another exit status than 0.

    Args:
        status: The exit status.
    """

    def __init__(
        self, message: str, remedy: str = "", *, serial: str = "", evidence: str = "", status: int = 1
    ) -> None:
        super().__init__(message, remedy, serial=serial, evidence=evidence)
        self.status = status


class ServiceRejected(CommandError):
    """The device or the server refused the service that was asked for."""


class Untypable(ServiceRejected):
    """The device cannot type a character of the text; nothing was typed."""


class OutputInvalid(CommandError):
    """A command's output is not what it should be."""

    retryable = True


class SyncFailed(CommandError):
    """A file could not be pushed or pulled."""


class ObservationError(DeviceError):
    """A screenshot cannot be used."""

    retryable = True


class BlankFrame(ObservationError):
    """The screenshot is of one colour: the screen is off, or nothing draws on it."""


class FrameTruncated(ObservationError):
    """The screenshot's bytes end too early or are no picture."""


class ActionOutcomeUnknown(DeviceError):
    """The connection broke after an input was handed over: it may or may not have been executed.

    Inputs are never sent twice; look at the screen again, or end the episode.
    """


class StateError(DeviceError):
    """The device works, but is not in a state that an episode may run in."""


class ResetFailed(StateError):
    """A step that should bring the device to its start state did not do so."""


class NotReady(StateError):
    """The device is not as it must be before an episode: asleep, locked, elsewhere, full, set otherwise."""


class GuardTripped(StateError):
    """Something that the guard forbids is in front and does not go away."""


class EmulatorError(DeviceError):
    """An emulator process, its AVD or its snapshots failed."""


class BootTimeout(EmulatorError):
    """The emulator runs, but Android was not ready in time."""


class EmulatorExited(EmulatorError):
    """The emulator process ended by itself."""


class AvdLocked(EmulatorError):
    """Another emulator uses the AVD."""


class SnapshotPending(EmulatorError):
    """Another snapshot operation of the same AVD has not ended."""

    retryable = True


class SnapshotMissing(EmulatorError):
    """There is no snapshot of that name."""


class SnapshotFailed(EmulatorError):
    """A snapshot could not be saved or loaded."""


class SnapshotMismatch(EmulatorError):
    """A snapshot loads, but is not what its manifest says."""


class LowDisk(EmulatorError):
    """There is too little free disk space to run or save the AVD."""

    scope = Scope.HOST


class NoAcceleration(EmulatorError):
    """This machine gives the emulator no hardware acceleration (KVM)."""

    scope = Scope.HOST


class PortInUse(EmulatorError):
    """A port that the emulator needs is taken."""

    scope = Scope.HOST


class PoolExhausted(DeviceError):
    """No device of the pool can be had."""

    scope = Scope.HOST
