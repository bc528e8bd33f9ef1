"""A learner that serves weights, well or badly."""

import threading
from dataclasses import dataclass, field

from distrl.core.messages import Chunk, ChunkRequest, WeightInfo
from distrl.core.service import Service
from distrl.core.sockets import Poller, Received, Wire
from distrl.core.weights import WeightStore, describe


@dataclass
class FakeLearner:
    """Serves chunks from a thread; drops, doubles or spoils some of them on demand.

    `num_bytes` counts what it has served, `dropped` tells that it has dropped something.
    """

    wire: Wire
    store: WeightStore = field(default_factory=WeightStore)
    asked: list[int] = field(default_factory=list)
    drop_after: int = 10**9
    doubled: bool = False
    spoil: bool = False
    num_bytes: int = 0
    dropped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.channel = self.wire.bind_router("tcp://127.0.0.1:0")
        self.service = Service(self.channel, self.handle)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        poller = Poller([self.channel])
        while not self.stopping.is_set():
            if poller.wait(0.02):
                self.service.pump()

    def handle(self, received: Received) -> None:
        request = received.message
        assert isinstance(request, ChunkRequest)
        self.asked.append(request.offset)
        data = bytes(self.store.chunk(request.digest, request.offset, request.length))
        if len(self.asked) > self.drop_after:
            self.dropped.set()
            return
        if self.spoil:
            data = bytes(len(data))
        self.num_bytes += len(data)
        for _ in range(2 if self.doubled else 1):
            self.service.reply(received.peer, Chunk(digest=request.digest, offset=request.offset), [data])

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.channel.close()

    def publish(self, data: bytes, version: int = 1, chunk_bytes: int = 100_000) -> WeightInfo:
        """Offers `data`."""
        info = describe(version, data, chunk_bytes=chunk_bytes)
        self.store.publish(info, data)
        return info
