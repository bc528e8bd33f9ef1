"""Ranks: sums over all of them, how they meet, and what is reported when one ends."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")


import pytest
import torch
from rank_world import run_ranks

from distrl.core.errors import ConfigError, RankError
from distrl.learner import ranks as launch
from distrl.learner.ranks import Place, local_ranks, open_job, translated

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
for floor in (0.1, 9.0):
    whole = torch.where(mask, a, 0.0)
    mean = whole.sum() / mask.sum()
    std = (torch.where(mask, a - mean, 0.0).square().sum() / mask.sum() + 1e-16).sqrt().clamp(min=floor)
    expected = torch.where(mask, (a - mean) / std, 0.0)[mine]
    torch.testing.assert_close(losses.normalise(a[mine], mask[mine], floor), expected)
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


def test_torchrun_s_variables_are_used() -> None:
    found = Place.given({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "h"})
    assert found == Place(3, 4, 1, "env://")
    assert Place.given({"WORLD_SIZE": "4"}) is None
    here = Place.given({"RANK": "1", "WORLD_SIZE": "2", "DISTRL_MEETING": "/tmp/m"})
    assert here == Place(1, 2, 0, "file:///tmp/m")


@pytest.mark.parametrize("environment", [{"RANK": "0"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_half_a_launcher_is_refused(environment) -> None:
    with pytest.raises(ConfigError, match="RANK"):
        Place.given(environment)


def test_ranks_that_do_not_come_are_missed(tmp_path) -> None:
    with (
        pytest.raises(RankError, match="did not connect within 1 s"),
        open_job(Place(0, 2, 0, f"file://{tmp_path / 'meeting'}"), timeout_s=1.0),
    ):
        pass


def test_only_errors_of_the_job_are_about_ranks() -> None:
    with pytest.raises(RankError, match="rank 3"), translated("rank 3"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="out of memory"), translated("rank 3"):
        raise RuntimeError("CUDA out of memory")


def test_the_end_of_a_rank_is_said_with_its_last_words(tmp_path, monkeypatch) -> None:
    with local_ranks(["run-learner", "no-such.yaml"], 2, tmp_path) as ranks:
        assert ranks.place.size == 2
        monkeypatch.setattr(launch, "NOTICE_S", 60.0)
        with pytest.raises(RankError, match=r"Rank 1 of the learner ended with exit code 2: .*no-such\.yaml"):
            ranks.watch(RankError("silence"))
        with pytest.raises(RankError, match="Rank 1") as raised:
            ranks.watch(None)
        assert raised.value.exit_code == 2, "what another start cannot mend is told as it is"


BLOCKED = """
import sys, time
from pathlib import Path
from distrl.learner import ranks as launch
launch.HANG_S = launch.GUARD_S = 0.1
with launch.local_ranks(["run-learner", "no-such.yaml"], 2, Path(sys.argv[1])):
    time.sleep(250)
"""


def test_a_process_that_waits_for_a_lost_rank_ends(tmp_path) -> None:
    command = [sys.executable, "-c", BLOCKED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: Rank 1 of the learner ended with exit code 2: ")
