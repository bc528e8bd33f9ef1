"""The ranks of a learner of several processes: who is which, how they start and meet, sums over all of them.

Rank 0 owns the run, the others compute with it (see `distributed`). In a single process, a sum over ranks is
the value itself.

    rank 0's main thread:       `LocalRanks.watch` between updates and when a rank is silent
    rank 0's rank-guard thread: `watch`; ends the process if the main thread waits for a lost rank (on a GPU)

A rank waits for another for `RANK_TIMEOUT_S` at most.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed

from distrl.configs.learner import RanksConfig
from distrl.core.errors import ConfigError, RankError
from distrl.core.process import Child, stop_all
from distrl.core.supervisor import HOPELESS

MEETING = "DISTRL_MEETING"
"""Environment variable: the file where ranks on one host meet. Without it, at MASTER_ADDR and MASTER_PORT."""

RANK_TIMEOUT_S = 1800.0  # of a step in common: a rank may load a model or compile meanwhile
PATIENCE_S = 20.0  # how long a rank has to end after rank 0 is done
NOTICE_S = 5.0  # how long it may take until the end of a rank, noticed by its silence, is known
HANG_S = 300.0  # after a rank's end: NCCL does not notice it, and would wait for `RANK_TIMEOUT_S`
GUARD_S = 1.0  # between two looks of the guard
LOOPBACK = "lo"
MARKS = ("gloo", "NCCL", "onnection closed", "onnection reset", "roken pipe", "imed out", "ProcessGroup")
"""In the text of errors of `torch.distributed` that have no type of their own."""

Watch = Callable[[RankError | None], None]
"""Raises if a rank is known to have ended. Its argument: the error by which that was noticed, if any."""


def unwatched(error: RankError | None) -> None:
    """For ranks that a launcher started: nothing is known beyond the error itself."""
    if error is not None:
        raise RankError(
            error.message, "See the logs of the other ranks; --resume continues from the newest checkpoint."
        ) from error


# ---- sums ----


def num_ranks() -> int:
    """How many ranks the job has; 1 without a job."""
    return distributed.get_world_size() if _is_job() else 1


def own_rank() -> int:
    """Which rank this process is; 0 without a job."""
    return distributed.get_rank() if _is_job() else 0


def from_rank_0(
    value: Tensor | None, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The tensor `value` of rank 0 on the `device` of every rank, which must all call it.

    Args:
        value: Of ranks other than 0 it is not used.
        shape, dtype: Of the result.
    """
    if own_rank() > 0 or value is None:
        whole = torch.empty(tuple(shape), dtype=dtype, device=device)
    else:
        whole = value.to(device, dtype).contiguous()
    if _is_job():
        distributed.broadcast(whole, 0)
    return whole


def sum_over_ranks(values: Tensor) -> Tensor:
    """Σ of `values` over all ranks, without gradients. Every rank must call it, with the same shape."""
    if not _is_job():
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total


def most_over_ranks(count: int) -> int:
    """The largest of the ranks' counts. Every rank must call it."""
    if not _is_job():
        return count
    most = torch.tensor([count])
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    return int(most)


def _is_job() -> bool:
    return distributed.is_available() and distributed.is_initialized()


# ---- meeting ----


@dataclass(frozen=True)
class Place:
    """Which rank a process is."""

    rank: int
    size: int
    local_rank: int  # among the ranks on this host; names the GPU
    meeting: str  # where the ranks meet, as `torch.distributed` takes it

    @classmethod
    def given(cls, environment: Mapping[str, str] = os.environ) -> Place | None:
        """What a launcher (torchrun, deepspeed, or rank 0) put into the environment; None without RANK."""
        if "RANK" not in environment:
            return None
        try:
            rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            local_rank = int(environment.get("LOCAL_RANK", "0"))
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"RANK is set in the environment, but {error}.",
                "Start ranks by torchrun, deepspeed or learner.num_processes, or unset RANK.",
            ) from error
        file = environment.get(MEETING)
        return cls(rank, size, local_rank, f"file://{file}" if file else "env://")


@contextmanager
def open_job(place: Place, timeout_s: float) -> Iterator[None]:
    """Meets the other ranks, and leaves them afterwards."""
    backend = "gloo"
    if torch.cuda.is_available():
        if place.local_rank >= torch.cuda.device_count():
            raise RankError(
                f"Rank {place.rank} has no GPU: its machine has {torch.cuda.device_count()} of them.",
                "Start as many ranks as GPUs; for ranks on CPUs set CUDA_VISIBLE_DEVICES to nothing.",
            )
        torch.cuda.set_device(place.local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(
            backend,
            init_method=place.meeting,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise RankError(
            f"The {place.size} ranks of the learner did not connect within {timeout_s:g} s: {_short(error)}",
            "See the logs of the other ranks; all need the same addresses in their environment.",
        ) from error
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def translated(whom: str) -> Iterator[None]:
    """Errors of `torch.distributed` as RankError; others, such as a lack of memory, stay what they are."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and not any(mark in str(error) for mark in MARKS):
            raise
        raise RankError(f"Lost the connection to {whom} of the learner: {_short(error)}", "") from error


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]


# ---- ranks on this host ----


class LocalRanks:
    """Ranks 1 … N−1 as child processes."""

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
        self._looking = threading.Lock()  # two threads look at the children
        self._is_ending = threading.Event()
        self._guard = threading.Thread(target=self._watch_over, name="rank-guard", daemon=True)
        self._guard.start()

    def watch(self, error: RankError | None) -> None:
        """Raises if a rank has ended. With `error`, its silence was noticed: its end may be still to come."""
        deadline = time.monotonic() + (NOTICE_S if error is not None else 0.0)
        while True:
            for child in self._children:
                with self._looking:
                    code = child.poll()
                if code is not None:
                    end = f"exit code {code}" if code >= 0 else f"signal {-code}"
                    ended = RankError(
                        f"Rank {child.name.rpartition('-')[2]} of the learner ended with {end}: "
                        f"{_last_line(child.log_file)}",
                        f"See {child.log_file}; --resume continues from the newest checkpoint, "
                        "with any number of ranks.",
                    )
                    if code in HOPELESS:  # as if it had happened here: `distrl train` need not try again
                        ended.exit_code = code
                    raise ended from error
            if time.monotonic() >= deadline:
                return
            time.sleep(0.05)

    def _watch_over(self) -> None:
        while not self._is_ending.wait(GUARD_S):
            try:
                self.watch(None)
            except RankError as error:
                if not self._is_ending.wait(HANG_S):
                    print(f"error: {error}", file=sys.stderr, flush=True)
                    os._exit(error.exit_code)

    def end(self, patience_s: float) -> None:
        """Stops the guard, and each rank that does not end by itself within `patience_s`."""
        self._is_ending.set()
        self._guard.join()
        deadline = time.monotonic() + patience_s
        for child in self._children:
            child.wait(max(0.0, deadline - time.monotonic()))
        stop_all((child, 0.0) for child in self._children)


@contextmanager
def local_ranks(command: Sequence[str], size: int, logs: Path) -> Iterator[LocalRanks]:
    """Ranks on this host, as `LocalRanks`; if the block fails they are stopped at once."""
    with tempfile.TemporaryDirectory(prefix="distrl-ranks-") as folder:
        ranks = LocalRanks(command, size, logs, Path(folder) / "meeting")
        patience_s = 0.0
        try:
            yield ranks
            patience_s = PATIENCE_S
        finally:
            ranks.end(patience_s)


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


def _last_line(log: Path) -> str:
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1][-300:]
    return "it wrote nothing"


@contextmanager
def other_ranks(
    config: RanksConfig, command: Sequence[str], logs: Path
) -> Iterator[tuple[Place | None, Watch]]:
    """Rank 0's place, and who watches the others; these are started here unless a launcher did."""
    place = Place.given()
    if place is not None:
        yield place, unwatched
    elif config.num_ranks > 1:
        with local_ranks(command, config.num_ranks, logs) as ranks:
            yield ranks.place, ranks.watch
    else:
        yield None, unwatched
