"""Keeps an inference server's weights up to date, in a thread of its own.

    learner's Status (link thread) ──► wanted ──► fetch, parse ──► ready ──► engine thread, between batches

Only the newest announcement counts: versions that are superseded while another is being fetched, or waits for
room in the engine, are skipped. The servers of one host fetch each version once (`core.weights.HostFetcher`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from distrl.core.errors import DistrlError, NetworkError, PolicyError
from distrl.core.messages import Status, WeightInfo
from distrl.core.policies import weights_io
from distrl.core.sockets import Wire
from distrl.core.weights import HostFetcher, WeightFetcher

FETCH_S = 60.0  # without a new chunk
RETRY_S = 0.5  # after a failed fetch; the learner may be restarting
_log = logging.getLogger(__name__)


class WeightFeed:
    """Fetches the weights of a `kind`, "full" or "adapter", that the learner announces.

    `on_ready` is called in the feed's thread when new weights can be taken, or when the feed has failed.
    `take` asks `can_load` whether the engine takes them. Servers of this host share weights in `share_root`.
    """

    def __init__(
        self,
        wire: Wire,
        endpoint: str,
        kind: str,
        on_ready: Callable[[], None],
        can_load: Callable[[], bool] = lambda: True,
        share_root: Path | None = None,
    ) -> None:
        self._wire, self._endpoint, self._kind, self._on_ready = wire, endpoint, kind, on_ready
        self._share_root, self._can_load = share_root, can_load
        self._condition = threading.Condition()
        self._wanted: WeightInfo | None = None
        self._have: WeightInfo | None = None  # what was fetched last, or is not needed any more
        self._received = -1  # the newest version that came by a transfer
        self._ready: tuple[int, dict[str, Tensor]] | None = None
        self._stopping = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weight-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the thread; an unfinished fetch is given up."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def heard(self, status: Status) -> None:
        """Takes an announcement. Quick; any thread."""
        if status.weights is None:
            return
        with self._condition:
            self._wanted = status.weights
            self._condition.notify_all()

    def received(self, version: int) -> None:
        """A version has come by a transfer: it is not fetched, and older ones are not taken. Any thread."""
        with self._condition:
            self._received = version
            if self._wanted is not None and self._wanted.version <= version:
                self._have = self._wanted
            if self._ready is not None and self._ready[0] <= version:
                self._ready = None

    def take(self) -> tuple[int, dict[str, Tensor]] | None:
        """Version and tensors of the newest weights that were not taken yet, if the engine has room."""
        with self._condition:
            if self._ready is None or not self._can_load():
                return None
            fresh, self._ready = self._ready, None
            return fresh

    def _run(self) -> None:
        fetcher = None
        try:
            fetcher = HostFetcher(WeightFetcher(self._wire, self._endpoint), self._endpoint, self._share_root)
            while (info := self._next()) is not None:
                self._fetch(fetcher, info)
        except BaseException as error:  # noqa: BLE001 - raised again by `InferenceServer.check`
            self.error = error
            if not isinstance(error, DistrlError):
                _log.exception("the weight feed ended")
            self._on_ready()
        finally:
            if fetcher is not None:
                fetcher.close()

    def _next(self) -> WeightInfo | None:
        """Waits for an announcement of weights that are not here; None when stopping."""
        with self._condition:
            while not self._stopping:
                if self._wanted is not None and self._lacks(self._wanted):
                    return self._wanted
                self._condition.wait()
            return None

    def _lacks(self, info: WeightInfo) -> bool:
        return info.size_bytes > 0 and info.version != self._received and info != self._have

    def _fetch(self, fetcher: HostFetcher, info: WeightInfo) -> None:
        if info.kind != self._kind:
            raise PolicyError(
                f"The learner publishes {info.kind} weights, this server's policy takes {self._kind} ones.",
                "Use the same policy.lora everywhere.",
            )
        try:
            data = fetcher.fetch(info, FETCH_S, lambda: self._stopping, lambda: self._wanted != info)
        except NetworkError as error:
            with self._condition:
                if not self._stopping:
                    _log.warning("weights %d: %s Trying again.", info.version, error)
                    self._condition.wait_for(lambda: self._stopping, RETRY_S)
            return
        if data is None:
            return
        state = weights_io.from_bytes(data)
        with self._condition:
            if self._lacks(info):  # else a newer version has come by a transfer
                self._have, self._ready = info, (info.version, state)
        self._on_ready()
