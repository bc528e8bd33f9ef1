"""The ranks of a job: how they meet, and messages between rank 0 and the others.

    rank 0 ── command, share of a batch ──► rank 1 … N−1 ── answer ──► rank 0
             ◄── sums over gradients, statistics, sharded weights: collectives among all ──►

Whoever waits for another rank waits for `rank_timeout_s` at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from distrl.core.errors import ConfigError, RankError
from distrl.learner.distributed import codec

MEETING = "DISTRL_MEETING"
"""Environment variable: the file where ranks on one host meet. Without it, at MASTER_ADDR and MASTER_PORT."""


@dataclass(frozen=True)
class Place:
    """Which rank a process is.

    Attributes:
        rank, size: Of the job.
        local_rank: Among the ranks on this host; names the GPU.
        meeting: Where the ranks meet, as `torch.distributed` takes it.
    """

    rank: int
    size: int
    local_rank: int
    meeting: str

    @classmethod
    def given(cls, environment: Mapping[str, str] = os.environ) -> Place | None:
        """What a launcher (torchrun, deepspeed, or rank 0) put into the environment; None without RANK.

        Raises:
            ConfigError: A variable is missing or no number.
        """
        if "RANK" not in environment:
            return None
        try:
            rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            local_rank = int(environment.get("LOCAL_RANK", "0"))
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"RANK is set in the environment, but {error}.",
                "Start ranks by torchrun, deepspeed or --num-processes, or unset RANK.",
            ) from error
        file = environment.get(MEETING)
        return cls(rank, size, local_rank, f"file://{file}" if file else "env://")


@contextmanager
def open_job(place: Place, timeout_s: float) -> Iterator[None]:
    """Meets the other ranks, and leaves them afterwards.

    Raises:
        RankError: Not all came within the time, or there are fewer GPUs than ranks on this machine.
    """
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
            f"The {place.size} ranks of the learner did not meet within {timeout_s:g} s: {_short(error)}",
            "See the logs of the others; all need the same addresses in their environment.",
        ) from error
    try:
        yield
    finally:
        distributed.destroy_process_group()


def send(value: Any, rank: int) -> None:
    """Sends a message to `rank`; see `codec` for what it may be.

    Raises:
        RankError: The rank is gone, or took longer than the job's timeout.
    """
    data = torch.frombuffer(codec.to_bytes(value), dtype=torch.uint8)
    with translated(f"rank {rank}"):
        distributed.send(torch.tensor([len(data)]), rank)
        distributed.send(data, rank)


def receive(rank: int) -> Any:
    """The next message of `rank`.

    Raises:
        RankError: The rank is gone, or took longer than the job's timeout.
    """
    size = torch.zeros(1, dtype=torch.int64)
    with translated(f"rank {rank}"):
        distributed.recv(size, rank)
        data = bytearray(int(size))
        distributed.recv(torch.frombuffer(data, dtype=torch.uint8), rank)
    return codec.from_bytes(data)


@contextmanager
def translated(whom: str) -> Iterator[None]:
    """Errors of `torch.distributed` as RankError; others, lack of memory for one, stay what they are."""
    try:
        yield
    except RuntimeError as error:
        if not _is_of_the_job(error):
            raise
        raise RankError(f"Nothing comes from {whom} of the learner any more: {_short(error)}", "") from error


def _is_of_the_job(error: RuntimeError) -> bool:
    text = str(error)
    marks = ("gloo", "NCCL", "onnection closed", "onnection reset", "roken pipe", "imed out", "ProcessGroup")
    return isinstance(error, distributed.DistError) or any(mark in text for mark in marks)


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]
