"""The error tree: every failure a user can meet has a type, the rule, the value and the remedy.

The command line prints a `DistrlError` as one line and exits with its `exit_code`; `--debug` adds the
traceback. Anything else that escapes is our own bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.core.types import Spent, Verdict


class DistrlError(Exception):
    """Base of all errors meant for users: the broken rule with the value, and a remedy; a sentence each."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(DistrlError):
    """The configuration is missing, malformed or contradicts itself."""

    exit_code = 2


class RunDirectoryError(DistrlError):
    """The run directory exists already, is locked by another process, is not a run, or takes no more data."""

    exit_code = 3


class CheckpointError(DistrlError):
    """A checkpoint is missing, truncated or of another policy."""

    exit_code = 4


class NetworkError(DistrlError):
    """An address is in use or unreachable, or a peer does not have the expected key."""

    exit_code = 5


class LearnerUnreachable(NetworkError):
    """No learner answered within the deadline."""


class InferenceUnavailable(NetworkError):
    """No inference server answered an act request within the deadline."""


class SecurityError(NetworkError):
    """Keys are missing, unreadable, too widely readable, or refused."""


class ProtocolError(NetworkError):
    """A frame that this protocol version does not allow; `code` is a `distrl.core.messages.RejectCode`."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.code = code


class TaskError(DistrlError):
    """A task file or a task id cannot be used."""

    exit_code = 6


class MissingDependency(DistrlError):
    """An optional package or program is needed for what was asked."""

    exit_code = 7


class EnvError(DistrlError):
    """The environment (not the agent) failed: a fault "device" or "env", never a zero reward."""

    exit_code = 8

    def __init__(self, message: str, remedy: str = "", fault: str = "env") -> None:
        super().__init__(message, remedy)
        self.fault = fault


class PolicyError(DistrlError):
    """A policy cannot be built or does not fit the weights or the prompt it was given."""

    exit_code = 9


class NotFinite(PolicyError):
    """Losses or gradients were not finite in too many batches in a row."""


class ContextFull(PolicyError):
    """A token sequence is longer than allowed, or leaves no room for an answer."""


class StoreError(DistrlError):
    """The trajectory store cannot be read or written."""

    exit_code = 10


class NotStored(StoreError):
    """A trajectory or a screenshot is not in the store."""


class StoreFull(StoreError):
    """The disk of the trajectory store, or of a worker's spool, is full: as for a run's other files."""

    exit_code = RunDirectoryError.exit_code


class RankError(DistrlError):
    """A rank of a learner of several processes ended, or is out of reach."""

    exit_code = 13


class MismatchError(DistrlError):
    """What inference servers sampled is not what the weights that they name would have sampled."""

    exit_code = 14


class NoUpdates(DistrlError):
    """A run ended before its first update: the policy is that of the warm start."""

    exit_code = 17


class OwnCodeError(DistrlError):
    """A class of the user's raised an exception, or returned an invalid value."""

    exit_code = 16


class JudgeError(DistrlError):
    """A judge cannot be made or asked: its endpoint refuses, or its files are damaged.

    Attributes:
        spent: What the requests cost even so; None for nothing.
        asked: Prompts and answers so far, as an undecided verdict; None if nothing is known.
    """

    exit_code = 15
    spent: Spent | None = None
    asked: Verdict | None = None


class JudgeUnavailable(JudgeError):
    """A judge gives no verdict now, but may later, perhaps after `retry_after_s`: out of reach or quota."""

    def __init__(self, message: str, remedy: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after_s = retry_after_s


class JudgeRefuses(JudgeUnavailable):
    """A judge refuses all requests until a person fixes a key, a bill or a name."""


class NothingCameIn(DistrlError):
    """The needed episodes did not arrive in time, or all of them faulted."""

    exit_code = 12
