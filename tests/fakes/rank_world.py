"""Batches without episodes behind them, and functions that run as the ranks of a job, in processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from distrl.core.policies.base import PromptBatch
from distrl.learner.batching import StepBatch, TrajectoryBatch

LENGTHS = (2, 1, 3, 1, 4, 2)
CUT = (2, 4)  # trajectories that the step limit ended
RUN = """
import importlib, sys
import torch
module, name, rank, size, file, *arguments = sys.argv[1:]
torch.set_num_threads(1)
function = getattr(importlib.import_module(module), name)
function(int(rank), int(size), file, *arguments)
"""


def join(rank: int, size: int, file: str) -> None:
    """Becomes a rank; `file` is where the ranks of a job meet."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)


def run_ranks(function: str, size: int, directory: Path, *arguments: str, timeout_s: float = 250.0) -> None:
    """Runs `function`, "module:name", as `size` ranks; fails with what a rank wrote if one fails."""
    module, _, name = function.partition(":")
    file = directory / "meeting"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, module, name, str(rank), str(size), str(file), *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        for rank, process in enumerate(processes):
            _, errors = process.communicate(timeout=timeout_s)
            assert process.returncode == 0, f"rank {rank}: {errors}"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def prompts(count: int, generator: torch.Generator) -> PromptBatch:
    """Of the linear policy: a number, and a picture of one grey value."""
    ids = torch.randint(0, 6, (count, 1), generator=generator)
    pictures = torch.randint(0, 256, (count, 3, 1, 1), generator=generator, dtype=torch.uint8)
    return PromptBatch(ids, torch.ones_like(ids), pictures)


def make_batch(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> TrajectoryBatch:
    """Trajectories of these lengths; the critic, the ratios and the rewards have something to do in it."""
    g = torch.Generator().manual_seed(seed)
    count, size = sum(lengths), len(lengths)
    steps = torch.tensor(lengths)
    row = torch.repeat_interleave(torch.arange(size), steps)
    last = torch.cumsum(steps, 0) - 1
    col = torch.arange(count) - (last - steps + 1)[row]
    mask = torch.arange(max(lengths))[None, :] < steps[:, None]
    cut = [index for index in CUT if index < size]
    token_mask = torch.arange(3)[None, :] < torch.randint(1, 4, (count, 1), generator=g)
    terminated = torch.tensor([index not in cut for index in range(size)])
    success = (torch.rand(size, generator=g) < 0.6).double() * terminated

    def grid(flat: Tensor) -> Tensor:
        out = torch.zeros(mask.shape, dtype=torch.float64)
        out[row, col] = flat.double()
        return out

    outcome = torch.zeros(count, dtype=torch.float64)
    outcome[last] = success
    return TrajectoryBatch(
        ids=[f"t{index}" for index in range(size)],
        steps=StepBatch(
            prompts=prompts(count, g),
            completions=torch.randint(1, 8, (count, 3), generator=g),
            token_mask=token_mask,
            behaviour_logprobs=-1.5 - torch.rand(count, 3, generator=g, dtype=torch.float64),
            temperature=torch.ones(count),
        ),
        row=row,
        col=col,
        last=last,
        mask=mask,
        outcome=grid(outcome),
        penalty=grid(-0.2 * torch.rand(count, generator=g)),
        invalid=(torch.rand(count, generator=g) < 0.3).double(),
        terminated=terminated,
        success=success,
        imagined=torch.zeros(size, dtype=torch.bool),
        first_step=torch.zeros(size, dtype=torch.int64),
        final_prompts=prompts(len(cut), g) if cut else None,
        final_row=torch.tensor(cut, dtype=torch.int64),
        final_step=steps[torch.tensor(cut, dtype=torch.int64)] - 1,
        oldest_version=torch.zeros(size, dtype=torch.int64),
        group_mean=torch.full((size,), 0.4, dtype=torch.float64),
        group_std=torch.full((size,), 0.5, dtype=torch.float64),
        group_count=torch.full((size,), 4),
    )
