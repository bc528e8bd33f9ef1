"""Statistics over the ranks of a job, with two real processes."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from rank_world import run_ranks

from distrl.learner import losses
from distrl.learner.ranks import sum_over_ranks

RANK = """
import sys
import torch
from distrl.learner import losses
rank, port = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(0)
a = torch.randn(4, 3, dtype=torch.float64) * 3 + 1
mask = torch.rand(4, 3) < 0.8
mine = slice(0, 1) if rank == 0 else slice(1, 4)
for floor, centre in ((0.1, True), (9.0, True), (0.1, False)):
    whole = torch.where(mask, a, 0.0)
    mean = whole.sum() / mask.sum()
    std = (torch.where(mask, a - mean, 0.0).square().sum() / mask.sum() + 1e-16).sqrt().clamp(min=floor)
    expected = torch.where(mask, (a - mean if centre else a) / std, 0.0)[mine]
    torch.testing.assert_close(losses.normalise(a[mine], mask[mine], floor, centre), expected)
over = losses.moments(a[mine], mask[mine])
for _ in range(3 if rank == 0 else 1):  # as many minibatches as a rank has: none of them waits for another
    losses.normalise(a[mine], mask[mine], 0.1, over=over)
torch.testing.assert_close(over.mean, a[mask].mean())
torch.testing.assert_close(over.std, a[mask].std(unbiased=False))
nothing = losses.normalise(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.0)
assert not nothing.any()
torch.distributed.destroy_process_group()
"""


def test_advantages_are_normalised_over_all_ranks() -> None:
    """Two gloo processes with batches of different sizes get what one process with both would."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("needs gloo, which this torch has not")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), port], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        for process in ranks:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors
    finally:
        for process in ranks:
            process.kill()
            process.wait()


@pytest.mark.parametrize("size", [2, 3])
def test_the_losses_and_gradients_of_shares_add_up_to_those_of_the_batch(size, tmp_path) -> None:
    """For every objective, and for cloning: ranks see some trajectories each, and divide by common counts."""
    run_ranks("rank_objectives:add_up", size, tmp_path)


def test_one_process_sums_nothing() -> None:
    value = torch.tensor([1.0, 2.0])
    assert sum_over_ranks(value) is value
    a, mask = torch.tensor([[1e4, 1e4 + 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    torch.testing.assert_close(losses.normalise(a, mask, 0.0), torch.tensor([[-1.0, 1.0]]))
