"""The network side of the master: hands out work, takes gradients and measurements.

workers ──► control ROUTER ── network thread ──► Master (applies, publishes) ──► ack
"""

from __future__ import annotations

from typing import ClassVar

from distrl.core.errors import ProtocolError
from distrl.core.messages import Gradient, Measured, WorkAck, WorkGrant, WorkRequest
from distrl.core.security import Security
from distrl.core.service import WEIGHTS_OF_TRAINING_WORKERS, Permits
from distrl.core.sockets import Received
from distrl.learner.control.master import Master
from distrl.learner.station import Endpoints, Station

KEPT_VERSIONS = 16
"""Weights that stay available: workers come for a version when others have changed it already."""


class ControlServer(Station):
    """Serves a master. Set `master` before `start`.

    Args:
        endpoints, security, run_id: As for `Station`.
    """

    weight_permits: ClassVar[Permits] = WEIGHTS_OF_TRAINING_WORKERS
    master: Master

    def __init__(self, endpoints: Endpoints, security: Security | None, run_id: str) -> None:
        super().__init__(endpoints, security, run_id, keep_weights=KEPT_VERSIONS)

    # ---- network thread ----

    def _work(self) -> None:
        self.master.keep_only(self._peers.workers())

    def _handle(self, received: Received) -> None:
        message, peer = received.message, received.peer
        if isinstance(message, WorkRequest):
            grant = WorkGrant(
                unit=None if self._shutdown else self.master.work(message.worker, message.collected)
            )
            self._service.reply(peer, self._shutdown or grant)
        elif isinstance(message, Gradient):
            try:
                is_new = self.master.take_gradient(message, received.blobs)
            except ProtocolError as error:
                self._service.reject(peer, error, ref=message.unit_id)
            else:
                self._service.reply(peer, WorkAck(unit_id=message.unit_id, duplicate=not is_new))
        elif isinstance(message, Measured):
            is_new = self.master.take_measured(message)
            self._service.reply(peer, WorkAck(unit_id=message.unit_id, duplicate=not is_new))
        else:
            super()._handle(received)
