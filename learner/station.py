"""What every learner has on the network: presence, status, weights and the end of the run.

all processes ──► control ROUTER ──► network thread: `_handle`, `_work` of a subclass
all ◄──────────── broadcast PUB ◄──┘        ▲
                                            │ waker
any thread: publish_weights, set_phase, set_metrics, shutdown

weights ROUTER ── chunk thread ◄── WeightStore (the newest buffers)
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.messages import (
    Heartbeat,
    Hello,
    RejectCode,
    Shutdown,
    Status,
    StatusRequest,
    WeightInfo,
    Welcome,
)
from distrl.core.security import Security
from distrl.core.service import CONTROL, WEIGHTS, Permits, Service
from distrl.core.sockets import Poller, Received, Waker, Wire
from distrl.core.types import Record
from distrl.core.weights import Buffer, ChunkServer, WeightStore
from distrl.learner.peers import Peers

POLL_S = 0.2
BROADCAST_S = 1.0
IO_THREADS = 4  # connections spread over them: many receivers of weights, and CURVE, need more than one core
KEPT_WEIGHTS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoints:
    """Where the learner's three sockets are bound."""

    control: str
    broadcast: str
    weights: str


class Station:
    """Owns a learner's sockets, and the threads that serve them.

    Attributes:
        weight_permits: Which roles of keys may fetch weights.

    Args:
        endpoints: Where to bind; ports 0 or * pick free ones, see the attribute `endpoints`.
        security: Keys, None on loopback.
        run_id: Stable over restarts of the same run.
        heartbeat_s: How often peers say that they live; three missed beats and a peer is gone.
        keep_weights: How many published versions stay available.

    Raises:
        NetworkError: An address is in use.
        SecurityError: A public address without keys.
    """

    weight_permits: ClassVar[Permits] = WEIGHTS

    def __init__(
        self,
        endpoints: Endpoints,
        security: Security | None,
        run_id: str,
        heartbeat_s: float = 2.0,
        keep_weights: int = KEPT_WEIGHTS,
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._peers = Peers(3.0 * heartbeat_s)
        self._wire = Wire(security, IO_THREADS)
        try:
            self._control = self._wire.bind_router(endpoints.control)
            self._broadcast = self._wire.bind_pub(endpoints.broadcast)
            weights_channel = self._wire.bind_router(endpoints.weights)
        except NetworkError:
            self._wire.close()
            raise
        self.endpoints = Endpoints(self._control.endpoint, self._broadcast.endpoint, weights_channel.endpoint)
        self._weights = WeightStore(keep_weights)
        self._chunks = ChunkServer(weights_channel, self._weights, self.weight_permits)
        self._service = Service(self._control, self._handle, CONTROL)
        self._waker = Waker()
        self._lock = threading.Lock()
        self._status = Status(run_id=run_id, phase="starting")
        self._is_urgent = False
        self._shutdown: Shutdown | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._next_broadcast = 0.0  # network thread only
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        """Starts the threads."""
        self._thread.start()
        self._chunks.start()

    @property
    def status(self) -> Status:
        """What peers are told."""
        with self._lock:
            return self._status

    def check(self) -> None:
        """Raises what ended the network thread or the chunk thread, if anything did."""
        if self._error is not None:
            raise self._error
        self._chunks.check()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers new weights and announces them. `data` must not change afterwards. Any thread."""
        self._weights.publish(info, data)
        self._change(weights=info)

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Makes older weights available again, without announcing them. Any thread."""
        self._weights.publish(info, data)

    def set_phase(self, phase: str) -> None:
        """Announces a phase (see `Status.phase`). Any thread."""
        self._change(phase=phase)

    def set_metrics(self, metrics: Mapping[str, float]) -> None:
        """Sets the metrics that the next broadcast carries; no peer reads those that are not finite."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        with self._lock:
            self._status = self._status.model_copy(update={"metrics": finite})

    def peer_metrics(self) -> dict[str, float]:
        """What workers and inference servers say of themselves, together, and messages refused, by code.

        For one thread.
        """
        rejected = {f"rejected/{code}": float(n) for code, n in self._service.num_rejected.items() if n}
        return {**self._peers.metrics(), **rejected, "weights/sent_bytes": float(self._chunks.num_bytes)}

    def shutdown(self, reason: str) -> None:
        """Tells everybody to stop, again and again until `close`. Submits are still taken. Any thread."""
        with self._lock:
            self._shutdown = Shutdown(run_id=self._status.run_id, reason=reason)
        self._change(phase="done")

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops the threads and closes the sockets."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join(timeout_s)
        self._chunks.close(timeout_s)
        self._control.close()
        self._broadcast.close()
        self._wire.close()
        self._waker.close()

    def _change(self, **update: object) -> None:
        with self._lock:
            changed = self._status.model_copy(update=update)
            if changed == self._status:
                return
            self._status, self._is_urgent = changed, True
        with contextlib.suppress(OSError):  # closed already: nobody listens any more
            self._waker.wake()

    # ---- network thread ----

    def _run(self) -> None:
        poller = Poller([self._control], self._waker)
        try:
            while not self._stopping.is_set():
                poller.wait(POLL_S)
                self._service.pump()
                self._work()
                if self._peers.expire():
                    self._change(act_endpoints=self._peers.act_endpoints())
                self._announce()
        except BaseException as error:
            self._error = error
            _log.exception("the network thread ended")
            raise

    def _work(self) -> None:
        """What a subclass does several times a second, after messages were handled. Must not block."""

    def _handle(self, received: Received) -> None:
        """Answers a message; a subclass takes its own kinds first.

        Raises:
            ProtocolError: The message is no request to this learner.
        """
        message, peer = received.message, received.peer
        if isinstance(message, StatusRequest):
            self._service.reply(peer, self.status)
        elif isinstance(message, (Hello, Heartbeat)):
            if self._peers.see(message):
                self._change(act_endpoints=self._peers.act_endpoints())
            answer: Record = self.status
            if isinstance(message, Hello):
                answer = Welcome(status=self.status, heartbeat_s=self._heartbeat_s)
            self._service.reply(peer, self._shutdown or answer)
        else:
            raise ProtocolError(
                RejectCode.UNEXPECTED.value, f"a {type(message).__name__} is no request to this learner"
            )

    def _announce(self) -> None:
        now = time.monotonic()
        with self._lock:
            if not self._is_urgent and now < self._next_broadcast:
                return
            self._is_urgent = False
            status, shutdown = self._status, self._shutdown
        self._next_broadcast = now + (POLL_S if shutdown else BROADCAST_S)
        self._broadcast.send_periodic(status)
        if shutdown is not None:
            self._broadcast.send_periodic(shutdown)
