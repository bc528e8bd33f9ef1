"""Passes weights on: an inference server serves others the version that it has, so that the learner need not.

weight-feed thread: offer ──► WeightStore ──► chunk thread ──► other servers
                      └─► `on_offer`: the learner is told, and tells the others
"""

from __future__ import annotations

from collections.abc import Callable

from distrl.core.chunk_server import ChunkServer, Gate
from distrl.core.messages import WeightInfo
from distrl.core.sockets import Wire
from distrl.core.weights import WeightStore

RECEIVERS = 2  # at a time; who has to wait finds others soon, as everybody who is served serves then


class Relay:
    """Serves the newest weights that it was offered, at an address of its own.

    Args:
        wire: Makes the socket.
        endpoint: Where to listen; a port of * picks a free one.

    Attributes:
        advertised: The address that others are told.
        on_offer: Called with the digest of what can be had here from now on; nobody is told unless it is set.

    Raises:
        NetworkError: The address is in use.
    """

    def __init__(self, wire: Wire, endpoint: str) -> None:
        channel = wire.bind_router(endpoint)
        self.endpoint = self.advertised = channel.endpoint
        self.on_offer: Callable[[str], None] = lambda digest: None
        self._store = WeightStore(keep=1)
        self._server = ChunkServer(channel, self._store, Gate(RECEIVERS))

    @property
    def num_bytes(self) -> int:
        """How many were passed on."""
        return self._server.num_bytes

    def start(self) -> None:
        """Begins to serve."""
        self._server.start()

    def check(self) -> None:
        """Raises what ended the thread, if anything did."""
        self._server.check()

    def offer(self, info: WeightInfo, data: memoryview) -> None:
        """Serves `data`, which must not change, instead of what was served before. Any thread."""
        self._store.publish(info.model_copy(update={"chunk_list": ""}), data)  # lists come from the learner
        self.on_offer(info.digest)

    def close(self) -> None:
        """Stops serving."""
        self._server.close()
