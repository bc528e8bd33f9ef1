"""Who gets which trajectories."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch

from distrl.learner.distributed import split


def test_every_trajectory_has_one_rank_and_ranks_have_equal_work() -> None:
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (64,), generator=g).tolist()
    places = split(lengths, 8)
    assert sorted(torch.cat(places).tolist()) == list(range(64))
    loads = [sum(lengths[i] for i in some.tolist()) for some in places]
    assert max(loads) - min(loads) <= 3
    assert all(some.tolist() == sorted(some.tolist()) for some in places)


def test_rank_0_is_never_without() -> None:
    assert [some.tolist() for some in split([5, 9], 3)] == [[1], [0], []]
