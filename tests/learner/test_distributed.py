"""Several ranks are one learner: the numbers of one process, shares of a batch, messages between ranks."""

from __future__ import annotations

import pytest
import torch
from policy_fakes import png
from rank_world import make_batch, run_ranks

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import NotStored, PolicyError
from distrl.core.policies.base import Pictures, PromptBatch
from distrl.core.policies.images import ImageCache, decode_image
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.distributed import decoded, encoded, from_bytes, split, to_bytes, with_pictures
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


def test_screenshots_travel_as_they_are_stored() -> None:
    files = {digest: png(number, (200, 400)) for number, digest in enumerate("abc")}
    cache = ImageCache(lambda data: decode_image(data, (200, 400)), lambda digests: files)
    rows = [["a"], ["b", "a"], []]
    images = Pictures([[cache.get([digest])[digest] for digest in row] for row in rows], rows)
    ids = torch.zeros(3, 1, dtype=torch.int64)
    share = make_batch((2, 1)).share(torch.tensor([0, 1]))
    share.steps.prompts = share.demonstrated = None
    share.steps.prompts, share.final_prompts = PromptBatch(ids, ids, images), PromptBatch(ids, ids, images)
    asked: list[str] = []

    def load(digests):
        asked.extend(digests)
        return {digest: files[digest] for digest in digests}

    sent = with_pictures(share, lambda pictures: encoded(pictures, load))
    assert share.steps.prompts.images is images, "rank 0 keeps its own pictures"
    decodings: list[bytes] = []

    def decode(data):
        decodings.append(data)
        return decode_image(data, (200, 400))

    here = ImageCache(decode)
    for _ in range(2):  # the second time all are kept
        got = with_pictures(from_bytes(to_bytes(sent)), lambda pictures: decoded(pictures, here))
        for prompts in (got.steps.prompts, got.final_prompts):
            assert prompts.images.digests == rows
            assert all(map(torch.equal, prompts.images.flat, images.flat))
    assert set(asked) == {"a", "b"}
    assert sorted(decodings) == sorted([files["a"], files["b"]])


def test_what_the_store_has_lost_travels_as_pixels() -> None:
    def load(digests):
        raise NotStored("gone")

    pixels = Pictures([[torch.zeros(3, 4, 2, dtype=torch.uint8)]], [["a"]])
    features = Pictures([[torch.zeros(4)]], [["a"]])
    here = ImageCache(lambda data: pytest.fail("nothing to decode"))
    for pictures in (pixels, features):
        assert decoded(encoded(pictures, load), here) == pictures


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
