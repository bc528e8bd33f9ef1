"""Several ranks are one learner: the numbers of one process, shares of a batch, messages between ranks."""

from __future__ import annotations

import pytest
import torch
from rank_world import make_batch, run_ranks

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import PolicyError
from distrl.core.policies.base import Pictures, PromptBatch
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.distributed import from_bytes, split, to_bytes
from distrl.learner.losses import Moments


def test_ranks_update_as_one_process_does(tmp_path) -> None:
    """Metrics, priorities and weights, of every objective; also with fewer trajectories than ranks.

    Ranks skip a batch together that is not finite on one of them.
    """
    run_ranks("rank_updates:compare", 2, tmp_path)


def test_a_share_of_a_batch_comes_through_whole() -> None:
    share = make_batch().share(torch.tensor([1, 4]))
    share.advantage_moments = Moments(torch.tensor(0.5), torch.tensor(2.0))
    got = from_bytes(to_bytes(share))
    assert isinstance(got, TrajectoryBatch)
    assert got.ids == ["t1", "t4"]
    assert (got.num_steps, got.num_trajectories, got.whole.places.tolist()) == (13, 6, [1, 4])
    assert got.advantage_moments == share.advantage_moments
    assert got.old_values is None
    for name in ("mask", "outcome", "final_row"):
        assert torch.equal(getattr(got, name), getattr(share, name))
        assert getattr(got, name).dtype == getattr(share, name).dtype
    assert torch.equal(got.steps.prompts.images, share.steps.prompts.images)


def test_prompts_of_a_hub_model_come_through() -> None:
    pictures = Pictures(
        [[torch.ones(3, 4, 2, dtype=torch.uint8)], [], [torch.zeros(3, 200, 20, dtype=torch.uint8)] * 2]
    )
    ids = torch.arange(9).view(3, 3)
    sent = to_bytes(PromptBatch(ids, ids, pictures, token_rows=ids, token_places=ids))
    assert len(sent) < 2 * pictures.flat[1].nbytes  # a picture that is shown twice is sent once
    got = from_bytes(sent)
    assert len(got.images.distinct_on("cpu")[0]) == 2
    assert [[picture.shape for picture in row] for row in got.images.rows] == [
        [picture.shape for picture in row] for row in pictures.rows
    ]
    assert torch.equal(got.images.flat[0], pictures.flat[0])
    assert torch.equal(got.token_places, ids)


def test_anything_else_is_refused() -> None:
    for data in (to_bytes({"x": 1.0})[:10], to_bytes({"x": LearnerConfig}), b""):
        with pytest.raises(PolicyError, match="message between ranks cannot be read"):
            from_bytes(data)


def test_every_trajectory_has_one_rank_and_ranks_have_equal_work() -> None:
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (64,), generator=g).tolist()
    places = split(lengths, 8)
    assert sorted(torch.cat(places).tolist()) == list(range(64))
    loads = [sum(lengths[i] for i in some.tolist()) for some in places]
    assert max(loads) - min(loads) <= 3
    assert all(some.tolist() == sorted(some.tolist()) for some in places)
