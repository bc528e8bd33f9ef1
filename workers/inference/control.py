"""What an engine does for the learner besides answering: it receives weights from GPU to GPU, and sleeps
while the learner computes on the same GPU.

    learner link thread ──► heard ──► engine thread: act ──► a heartbeat at once

The engine thread does nothing else meanwhile. Requests are kept: what runs is paused and goes on afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrl.core.errors import DistrlError
from distrl.core.messages import Status
from distrl.core.transfer import DONE, GROUP, RANKS, TURN, Transfer

if TYPE_CHECKING:
    from distrl.workers.inference.engine_vllm import VLLMEngine

_log = logging.getLogger(__name__)


class EngineControl:
    """Lets an engine do what is announced. The engine thread, but for `heard` and `stats`.

    Args:
        name: The server's, as the learner knows it.
        num_ranks: GPUs that receive weights; 0: weights come in chunks.
        is_sharing: Whether the learner computes on the same GPU.
        report: Called when something was done.
        on_received: Called with each version that was received.
    """

    def __init__(
        self,
        engine: VLLMEngine,
        name: str,
        num_ranks: int,
        is_sharing: bool,
        report: Callable[[], None],
        on_received: Callable[[int], None],
    ) -> None:
        self._engine, self._name = engine, name
        self._num_ranks, self._is_sharing = num_ranks, is_sharing
        self._report, self._on_received = report, on_received
        self._status: Status | None = None
        self._turn = 0
        self._done = 0, 0  # the group in which it took part last, and the version; -1: it failed

    def heard(self, status: Status) -> None:
        """Takes an announcement. Any thread."""
        self._status = status

    def stats(self) -> dict[str, float]:
        """What the learner waits for. Any thread."""
        turn = {TURN: float(self._turn)} if self._is_sharing else {}
        group, version = self._done
        transfer = {RANKS: float(self._num_ranks), GROUP: float(group), DONE: float(version)}
        return turn | (transfer if self._num_ranks else {})

    def act(self) -> None:
        """Does what is to be done. Raises DistrlError if the engine does not come back from it."""
        status = self._status
        if status is None:
            return
        if self._is_sharing and status.turn != self._turn:
            if status.turn % 2 != self._turn % 2:
                (self._engine.sleep if status.turn % 2 else self._engine.wake)()
            self._turn = status.turn
        elif status.transfer is not None and self._is_next(status.transfer):
            self._take_part(status.transfer)
        else:
            return
        self._report()

    def _is_next(self, transfer: Transfer) -> bool:
        group, version = self._done
        is_joining = transfer.group > group and transfer.version == 0
        is_receiving = transfer.group == group and 0 <= version < transfer.version
        return self._name in transfer.offsets and (is_joining or is_receiving)

    def _take_part(self, transfer: Transfer) -> None:
        version = transfer.version
        try:
            if version == 0:
                self._engine.join(transfer, transfer.offsets[self._name])
            else:
                self._engine.receive(version)
                self._on_received(version)
                _log.info("weights %d are in use, received from GPU to GPU", version)
        except DistrlError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, chunks do not need it
            _log.exception("weights do not arrive from GPU to GPU; they will come in chunks")
            version = -1
        self._done = transfer.group, version
