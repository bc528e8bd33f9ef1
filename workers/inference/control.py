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
        num_ranks: GPUs that receive weights; 0: they take turns with the learner instead.
        report: Called when something was done.
        on_received: Called with each version that was received.
    """

    def __init__(
        self,
        engine: VLLMEngine,
        name: str,
        num_ranks: int,
        report: Callable[[], None],
        on_received: Callable[[int], None],
    ) -> None:
        self._engine, self._name, self._num_ranks = engine, name, num_ranks
        self._report, self._on_received = report, on_received
        self._status: Status | None = None
        self._turn = 0
        self._done = 0, 0  # the group in which it took part last, and the version; -1: it failed

    def heard(self, status: Status) -> None:
        """Takes an announcement. Any thread."""
        self._status = status

    def stats(self) -> dict[str, float]:
        """What the learner waits for. Any thread."""
        if not self._num_ranks:
            return {TURN: float(self._turn)}
        group, version = self._done
        return {RANKS: float(self._num_ranks), GROUP: float(group), DONE: float(version)}

    def act(self) -> None:
        """Does what is to be done. Raises DistrlError if the engine does not come back from it."""
        if (status := self._status) is None:
            return
        if not self._num_ranks and status.turn != self._turn:
            if status.turn % 2 != self._turn % 2:
                (self._engine.sleep if status.turn % 2 else self._engine.wake)()
            self._turn = status.turn
            self._report()
        if (transfer := status.transfer) is not None and self._is_next(transfer):
            self._take_part(transfer)
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
