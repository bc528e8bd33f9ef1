"""Fetches weights once for all inference servers of one user on one host.

    own folder of the learner (`WeightShare`): is the version there? ──► map it
                                               else take the lock    ──► fetch, check SHA-256, publish, map it
                                               else, while another fetches, look again

Where the folder cannot be used, each server fetches on its own, and says so once. What may pass (another held
the folder for too long, somebody removed it) is tried again with the next version, a few times.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

from distrl.core.errors import NetworkError
from distrl.core.messages import WeightInfo
from distrl.core.weight_share import WeightShare
from distrl.core.weights import WeightFetcher

HOLDER_S = 20.0  # a server that fetches for others and shows no life for so long is not waited for
MAY_PASS = (TimeoutError, FileNotFoundError)
MAX_FAILURES = 3  # of that kind in a row; each may cost `weight_share.JOIN_S`
MIN_PAUSE_S, MAX_PAUSE_S = 0.001, 0.05
_SHA256 = re.compile(r"[0-9a-f]{64}")  # it becomes a file name
_log = logging.getLogger(__name__)


def _never() -> bool:
    return False


class SharedFetcher:
    """A `WeightFetcher` that shares what arrives. Used by one thread.

    Args:
        fetcher: Fetches; this owns it from now on.
        endpoint: The learner's weights socket.
        root: The private folder of this user; None: `weight_share.default_root`.
        share: False: each fetches on its own.
    """

    def __init__(
        self, fetcher: WeightFetcher, endpoint: str, root: Path | None = None, share: bool = True
    ) -> None:
        self._fetcher, self._endpoint, self._root = fetcher, endpoint, root
        self._share: WeightShare | None = None
        self._may_share, self._failures = share, 0
        self._newest: WeightInfo | None = None  # what was taken from the folder last
        self._last_beat: tuple[int, float] | None = None  # of another server; ours is the second clock
        self._join()

    @property
    def is_sharing(self) -> bool:
        """Whether there is a folder to share weights in."""
        return self._share is not None

    def fetch(
        self,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool] = _never,
        is_superseded: Callable[[], bool] = _never,
    ) -> memoryview | None:
        """The bytes of `info`, verified by their SHA-256, here or by the server that fetched them.

        Args:
            info: What to fetch, from the learner's Status.
            timeout_s: Longest time without anything new from the learner.
            is_stopping: Polled; ends the fetch early.
            is_superseded: Polled while waiting; whether there is something newer to fetch.

        Returns:
            The bytes, or None: `info` is superseded, and nobody is fetching it.

        Raises:
            NetworkError: As `WeightFetcher.fetch`.
            ProtocolError: As `WeightFetcher.fetch`.
        """
        share = self._join() if _SHA256.fullmatch(info.digest) else None
        if share is not None:
            try:
                view = self._fetch_shared(share, info, timeout_s, is_stopping, is_superseded)
            except OSError as error:
                self._leave(error)
            else:
                self._failures = 0
                return view
        return self._fetcher.fetch(info, timeout_s, is_stopping)

    def close(self) -> None:
        """Closes the connection and leaves the folder."""
        self._fetcher.close()
        self._may_share = False
        if self._share is not None:
            self._share.close()
            self._share = None

    def _join(self) -> WeightShare | None:
        """The folder; also after a failure that may have passed."""
        if self._share is None and self._may_share:
            try:
                self._share = WeightShare(self._endpoint, self._root)
            except OSError as error:
                self._leave(error)
        return self._share

    def _leave(self, error: OSError) -> None:
        self._failures += 1
        self._may_share = isinstance(error, MAY_PASS) and self._failures < MAX_FAILURES
        until = " until the next version" if self._may_share else ""
        _log.warning("weights are not shared with other servers of this host%s: %s", until, error)
        if self._share is not None:
            self._share.close()
            self._share = None

    def _fetch_shared(
        self,
        share: WeightShare,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool],
        is_superseded: Callable[[], bool],
    ) -> memoryview | None:
        started_at = time.monotonic()
        while (view := share.open(info.digest, info.size_bytes)) is None:
            if is_stopping():
                raise NetworkError(f"Weights {info.version}: stopped while another server fetched them.")
            if share.try_lock():
                try:
                    self._last_beat = None
                    return self._fetch_for_all(share, info, timeout_s, is_stopping, is_superseded)
                finally:
                    share.unlock()
            if is_superseded() and not share.is_fetching(info.digest):
                return share.open(info.digest, info.size_bytes)  # it may have come just now
            if self._is_holder_stuck(share):
                _log.warning("weights %d: the server that fetches them does not go on", info.version)
                return self._fetcher.fetch(info, timeout_s, is_stopping)
            waited_s = time.monotonic() - started_at
            time.sleep(min(MAX_PAUSE_S, max(MIN_PAUSE_S, waited_s / 20)))
        self._last_beat, self._newest = None, info
        return view

    def _fetch_for_all(
        self,
        share: WeightShare,
        info: WeightInfo,
        timeout_s: float,
        is_stopping: Callable[[], bool],
        is_superseded: Callable[[], bool],
    ) -> memoryview | None:
        view = share.open(info.digest, info.size_bytes)  # it may have come just before the lock was ours
        if view is not None or is_superseded():
            return view

        def is_ending() -> bool:
            share.beat()
            return is_stopping()

        previous = self._previous(share, info)
        with share.reserve(info.digest, info.size_bytes) as slot:
            self._fetcher.fetch_into(slot.view, slot.write, info, timeout_s, is_ending, previous)
        view = share.open(info.digest, info.size_bytes)
        if view is None:
            raise FileNotFoundError(f"the weights {info.digest:.16}… were removed by somebody")
        self._newest = info
        return view

    def _previous(self, share: WeightShare, info: WeightInfo) -> tuple[WeightInfo, memoryview] | None:
        """The version before, whose unchanged chunks need not be fetched."""
        newest = self._newest
        if newest is None or newest.size_bytes != info.size_bytes:
            return None
        view = share.open(newest.digest, newest.size_bytes)
        return None if view is None else (newest, view)

    def _is_holder_stuck(self, share: WeightShare) -> bool:
        beat, now = share.last_beat(), time.monotonic()
        if self._last_beat is None or self._last_beat[0] != beat:
            self._last_beat = (beat, now)
        return now - self._last_beat[1] > HOLDER_S
