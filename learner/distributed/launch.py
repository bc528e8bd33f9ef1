"""Starts the other ranks on this host, watches them, and stops them.

main thread: `watch` between updates and when a rank is silent
rank-guard thread: `watch`; ends the process if the main one waits for a rank that is gone (on a GPU)
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distrl.core.errors import RankError
from distrl.core.process import Child, stop_all
from distrl.core.supervisor import HOPELESS
from distrl.learner.distributed.link import MEETING, Place

PATIENCE_S = 20.0  # how long a rank has to end after rank 0 is done
NOTICE_S = 5.0  # how long it may take until the end of a rank, noticed by its silence, is known
HANG_S = 300.0  # after a rank's end; NCCL does not notice it, and waits for `rank_timeout_s`
GUARD_S = 1.0  # between two looks
LOOPBACK = "lo"


class LocalRanks:
    """Ranks 1 … N−1 as child processes.

    Args:
        command: Of `distrl`, the same as rank 0's.
        size: N.
        logs: Where each has its log file, `learner-rank-1.log` and so on.
        meeting: The file where all ranks meet.
    """

    def __init__(self, command: Sequence[str], size: int, logs: Path, meeting: Path) -> None:
        self.place = Place(0, size, 0, f"file://{meeting}")
        self._children = [
            Child(
                f"learner-rank-{rank}",
                [sys.executable, "-m", "distrl", *command],
                logs / f"learner-rank-{rank}.log",
                {**_environment(rank, size), MEETING: str(meeting)},
            )
            for rank in range(1, size)
        ]
        self._looking = threading.Lock()  # at children, which two threads do
        self._is_ending = threading.Event()
        self._guard = threading.Thread(target=self._watch_over, name="rank-guard", daemon=True)
        self._guard.start()

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank from 1 on."""
        return [child.pid for child in self._children]

    def watch(self, error: RankError | None) -> None:
        """Raises if a rank has ended. With `error`, its silence was noticed: its end may be still to come."""
        deadline = time.monotonic() + (NOTICE_S if error is not None else 0.0)
        while True:
            for child in self._children:
                with self._looking:
                    code = child.poll()
                if code is not None:
                    ended = RankError(
                        f"Rank {child.name.rpartition('-')[2]} of the learner ended with {_end(code)}: "
                        f"{_last_line(child.log_file)}",
                        f"See {child.log_file}; --resume goes on from the newest checkpoint, "
                        "with any number of ranks.",
                    )
                    if code in HOPELESS:  # as if it had happened here: `distrl train` need not try again
                        ended.exit_code = code
                    raise ended from error
            if time.monotonic() >= deadline:
                return
            time.sleep(0.05)

    def _watch_over(self) -> None:
        """The guard's thread."""
        while not self._is_ending.wait(GUARD_S):
            try:
                self.watch(None)
            except RankError as error:
                if not self._is_ending.wait(HANG_S):
                    print(f"error: {error}", file=sys.stderr, flush=True)
                    os._exit(error.exit_code)

    def close(self) -> None:
        """Waits for the ranks to end, and stops those that do not."""
        self._dismiss_guard()
        deadline = time.monotonic() + PATIENCE_S
        for child in self._children:
            child.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Stops them at once."""
        self._dismiss_guard()
        stop_all((child, 0.0) for child in self._children)

    def _dismiss_guard(self) -> None:
        self._is_ending.set()
        self._guard.join()


@contextmanager
def local_ranks(command: Sequence[str], size: int, logs: Path) -> Iterator[LocalRanks]:
    """Ranks on this host, as `LocalRanks`; if the block fails they are stopped at once."""
    with tempfile.TemporaryDirectory(prefix="distrl-ranks-") as folder:
        ranks = LocalRanks(command, size, logs, Path(folder) / "meeting")
        try:
            yield ranks
        except BaseException:
            ranks.kill()
            raise
        ranks.close()


def _environment(rank: int, size: int) -> dict[str, str]:
    """What torchrun would set, but for an address: ranks of one host meet at a file."""
    found = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {name: str(value) for name, value in found.items()} | loopback()


def loopback() -> dict[str, str]:
    """Lets gloo listen on loopback only, where that has its usual name."""
    with suppress(OSError):
        if LOOPBACK in (name for _, name in socket.if_nameindex()):
            return {"GLOO_SOCKET_IFNAME": LOOPBACK}
    return {}


def _end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _last_line(log: Path) -> str:
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1][-300:]
    return "it wrote nothing"
