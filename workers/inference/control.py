"""What an engine does for the learner besides answering: it receives weights from GPU to GPU, and sleeps
while the learner computes on the same GPU.

    learner link thread ──► heard ──► engine thread: act ──► a heartbeat at once

The engine thread does nothing else meanwhile. Requests are kept: what runs is paused and goes on afterwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrl.core.errors import DistrlError
from distrl.core.messages import Status
from distrl.core.transfer import FAILED, JOINED, RANKS, STARTED_AT, TURN, Transfer

if TYPE_CHECKING:
    from distrl.workers.inference.engine_vllm import VLLMEngine

_log = logging.getLogger(__name__)


class EngineControl:
    """Lets an engine do what is announced. The engine thread, but for `heard` and `stats`.

    Args:
        name: The server's, as the learner knows it.
        host: The learner's, as this machine reaches it.
        num_ranks: GPUs that receive weights; 0: weights come in chunks.
        is_sharing: Whether the learner computes on the same GPU.
        on_news: Called when there is something to do; by the link's thread.
        report: Called when something was done.
        on_received: Called with each version that was received.
    """

    def __init__(
        self,
        engine: VLLMEngine,
        name: str,
        host: str,
        num_ranks: int,
        is_sharing: bool,
        on_news: Callable[[], None],
        report: Callable[[], None],
        on_received: Callable[[int], None],
    ) -> None:
        self._engine, self._name, self._host = engine, name, host
        self._num_ranks, self._is_sharing = num_ranks, is_sharing
        self._on_news, self._report, self._on_received = on_news, report, on_received
        self._status: Status | None = None
        self._group = self._failed = 0
        self._turn, self._is_asleep = 0, False
        self._started_at = time.time()

    def heard(self, status: Status) -> None:
        """Takes an announcement. Quick; any thread."""
        self._status = status
        if self._is_due(status):
            self._on_news()

    def stats(self) -> dict[str, float]:
        """What the learner waits for."""
        found = {TURN: float(self._turn)} if self._is_sharing else {}
        if self._num_ranks:
            found |= {RANKS: float(self._num_ranks), STARTED_AT: self._started_at}
            found |= {JOINED: float(self._group), FAILED: float(self._failed)}
        return found

    def act(self) -> None:
        """Does what is to be done. Raises DistrlError if the engine does not come back from it."""
        while (status := self._status) is not None and self._is_due(status):
            if self._is_sharing and status.turn != self._turn:
                self._take_turn(status.turn)
            elif (transfer := self._mine(status)) is not None:
                self._take_part(transfer)
            self._report()

    def _is_due(self, status: Status) -> bool:
        return (self._is_sharing and status.turn != self._turn) or self._mine(status) is not None

    def _take_turn(self, turn: int) -> None:
        if (turn % 2 == 1) != self._is_asleep:
            self._is_asleep = not self._is_asleep
            (self._engine.sleep if self._is_asleep else self._engine.wake)()
        self._turn = turn

    def _mine(self, status: Status) -> Transfer | None:
        """The transfer, if this server has something to do in it."""
        transfer = status.transfer
        if transfer is None or self._name not in transfer.offsets or transfer.group == self._failed:
            return None
        is_new = transfer.version > max(0, self._engine.version)
        return transfer if transfer.group != self._group or is_new else None

    def _take_part(self, transfer: Transfer) -> None:
        try:
            if transfer.group != self._group:
                self._engine.join(transfer, self._host, transfer.offsets[self._name])
                self._group = transfer.group
            else:
                self._engine.receive(transfer.version)
                self._on_received(transfer.version)
                _log.info("weights %d are in use, received from GPU to GPU", transfer.version)
        except DistrlError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, chunks do not need it
            _log.exception("weights do not arrive from GPU to GPU; they will come in chunks")
            self._failed = transfer.group
