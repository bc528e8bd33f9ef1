"""What the pool needs of a device, whatever kind it is: opening, probing, repairing, evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from distrl.workers.devices.base import Device


@dataclass(frozen=True)
class RecoveryStep:
    """One rung of a recovery ladder.

    Attributes:
        name: For people and post-mortems, e.g. "reconnect".
        run: Does it; raises a DeviceError when it fails. Whether the device works again is probed afterwards.
        limit_s: It takes no longer than this.
        destructive: It loses what the device could still tell about its fault, such as its log.
    """

    name: str
    run: Callable[[], None]
    limit_s: float = 30.0
    destructive: bool = False


class ManagedDevice(Protocol):
    """One member of a pool. Its methods are called by one thread at a time, `close` also while one hangs.

    Attributes:
        id: Unique in the pool, e.g. the serial.
        kind: The kind of its source, as in the configuration.
        claim: A name that no two processes of this machine may use at a time; "" when several may.
        open_limit_s: `open` takes no longer than this.
        options: What an environment on it is told besides the device, such as a snapshot or a recipe.
    """

    id: str
    kind: str
    claim: str
    open_limit_s: float
    options: Mapping[str, object]

    def open(self) -> Device:
        """The device, connected or booted, and seen to work: it has answered with a screen that is not blank.

        Called again after each fault; what an earlier call returned is not used any more.

        Raises:
            DeviceError: It does not work.
        """
        ...

    def probe(self) -> None:
        """Asks the device for a sign of life: cheap, over within seconds.

        Raises:
            DeviceError: There is none.
        """
        ...

    def ladder(self) -> Sequence[RecoveryStep]:
        """What may repair it, cheapest first; the first one at least waits. Answers at once."""
        ...

    def evidence(self) -> Mapping[str, bytes]:
        """What it can tell about a fault, by file name; bounded in time and size. Best effort."""
        ...

    def close(self) -> None:
        """Releases it, and stops what `open` started. May be called twice."""
        ...
