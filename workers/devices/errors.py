"""Device failures as types: each says whether repeating the call can help, and how far it reaches."""

from __future__ import annotations

from enum import Enum

from distrl.core.errors import EnvError


class Scope(str, Enum):
    """What a failure concerns: this call alone, the device, or everything on this machine."""

    CALL = "call"
    DEVICE = "device"
    HOST = "host"


class DeviceError(EnvError):
    """A device failed: the episode on it is faulted, never a zero reward.

    Args:
        message: What happened, in one sentence; the serial is put in front of it.
        remedy: What to do about it, in one sentence.
        serial: The device, "" when it is not about one.
        evidence: Output of the device, the server or the emulator, for the log and the post-mortem.
    """

    retryable = False
    """Whether the same call, if it only reads, may be repeated."""
    scope = Scope.DEVICE

    def __init__(self, message: str, remedy: str = "", *, serial: str = "", evidence: str = "") -> None:
        super().__init__(f"{serial}: {message}" if serial else message, remedy, fault="device")
        self.serial = serial
        self.evidence = evidence


class TransportError(DeviceError):
    """The connection to the device is broken."""


class ServerUnavailable(TransportError):
    """The adb server does not answer."""

    retryable = True
    scope = Scope.HOST


class DeviceNotFound(TransportError):
    """The adb server does not list the device."""


class DeviceOffline(TransportError):
    """The adb server lists the device, but it does not answer its handshake."""


class DeviceUnauthorized(TransportError):
    """The device has not accepted this machine's adb key."""


class DeviceDisconnected(TransportError):
    """The connection broke during a call."""

    retryable = True


class DeviceTimeout(TransportError):
    """The device did not answer before the call's deadline."""

    retryable = True


class NonZeroExit(DeviceError):
    """A shell command ended with an exit status other than 0."""

    scope = Scope.CALL


class ServiceRejected(DeviceError):
    """The device or the server refused the requested service."""

    scope = Scope.CALL


class Untypable(ServiceRejected):
    """The device cannot type a character of the text; nothing was typed."""


class OutputInvalid(DeviceError):
    """A command's output has an unexpected form."""

    retryable = True
    scope = Scope.CALL


class BlankFrame(DeviceError):
    """The screenshot is of one colour: the screen is off, or nothing is drawn on it."""

    retryable = True


class FrameTruncated(DeviceError):
    """The screenshot is cut short or is not a picture."""

    retryable = True


class ActionOutcomeUnknown(DeviceError):
    """The connection broke after an input was handed over: it may or may not have been executed.

    Inputs are never sent twice; look at the screen again, or end the episode.
    """


class ResetFailed(DeviceError):
    """A step towards the start state did not work."""


class NotReady(DeviceError):
    """The device is asleep, locked, full, configured otherwise, or not at its home screen."""


class GuardTripped(DeviceError):
    """Something that the guard forbids is in front and cannot be left."""


class EmulatorError(DeviceError):
    """An emulator process, its AVD or its snapshots failed."""


class BootTimeout(EmulatorError):
    """The emulator runs, but Android was not ready in time."""


class EmulatorExited(EmulatorError):
    """The emulator process ended unexpectedly."""


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
    """A snapshot loads, but differs from its manifest."""


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
    """No device of the pool is available."""

    scope = Scope.HOST
