"""From trajectories to tensors and back to their [B, T] places."""

from __future__ import annotations

import threading

import pytest
import torch

from distrl.core.errors import StoreError
from distrl.core.types import Fault, ImagePart, Purpose
from distrl.learner.batching import ImageCache
from distrl.learner.episodes import compile_episode


def played(toy):
    cut = toy.trajectory(
        "a",
        [
            toy.step(1, (2, 3), (-0.5, -0.25), image=0, version=7, repetition=-0.05),
            toy.step(1, (4,), (-1.0,), image=1, version=9, kind="invalid", invalid=-0.1),
        ],
        truncated=True,
    )
    won = toy.trajectory("b", [toy.step(2, (5,), (-2.0,), image=2, version=4, outcome=1.0)])
    return cut, won


def test_rewards_versions_and_ends(toy, policy) -> None:
    cut, won = (compile_episode(one, policy) for one in played(toy))
    assert (cut.terminated, won.terminated) == (False, True)
    assert (cut.oldest_version, won.oldest_version) == (7, 4)
    assert (cut.success, won.success) == (0.0, 1.0)
    assert cut.final_images == (toy.digests[3],)
    assert [s.penalty for s in cut.steps] == pytest.approx([-0.05, -0.1])
    assert [s.invalid for s in cut.steps] == [False, True]


def with_picture(toy, step, image):
    """The step with another picture before its own."""
    chat = step.chats[0]
    parts = (ImagePart(digest=toy.digests[image]), *chat.messages[0].parts)
    message = chat.messages[0].model_copy(update={"parts": parts})
    return step.model_copy(update={"chats": (chat.model_copy(update={"messages": (message,)}),)})


def test_of_the_newest_pictures_the_oldest_goes_when_the_final_one_comes(toy, policy) -> None:
    first, second, third = (toy.step(1, (4,), (-1.0,), image=number) for number in range(3))
    second, third = with_picture(toy, second, 0), with_picture(toy, third, 1)
    cut = compile_episode(toy.trajectory("a", [first, second, third], truncated=True), policy)
    assert cut.steps[-1].images == (toy.digests[1], toy.digests[2])
    assert cut.final_images == (toy.digests[2], toy.digests[3])
    grown = compile_episode(toy.trajectory("a", [first, second], truncated=True), policy)
    assert grown.final_images == (toy.digests[0], toy.digests[3])
    marked = toy.trajectory("a", [first], truncated=True)
    final = marked.final.model_copy(update={"marked": toy.digests[2]})
    shown = compile_episode(marked.model_copy(update={"final": final}), policy)
    assert shown.final_images == (toy.digests[2],)


def test_layout(toy, policy) -> None:
    batch = toy.batch(policy, *played(toy))
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.row.tolist() == [0, 0, 1]
    assert batch.col.tolist() == [0, 1, 0]
    assert batch.last.tolist() == [1, 2]
    assert batch.steps.completions.tolist() == [[2, 3], [4, 0], [5, 0]]
    assert batch.steps.token_mask.tolist() == [[True, True], [True, False], [True, False]]
    torch.testing.assert_close(batch.outcome, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    torch.testing.assert_close(batch.penalty, torch.tensor([[-0.05, -0.1], [0.0, 0.0]]))
    assert batch.final_row.tolist() == [0]
    assert batch.final_step.tolist() == [1]
    assert int(batch.final_prompts.images[0, 0, 0, 0]) == 45
    flat = torch.tensor([1.0, 2.0, 3.0])
    assert batch.grid(flat).tolist() == [[1.0, 2.0], [3.0, 0.0]]
    assert batch.flat(batch.grid(flat)).tolist() == flat.tolist()
    assert batch.row_mean(flat).tolist() == [1.5, 3.0]


def test_demonstrations_are_tokenised_here(toy, policy) -> None:
    step = toy.step(3, (), ())
    completion = step.chats[0].completion.model_copy(update={"text": "6 7", "prompt_token_ids": ()})
    step = step.model_copy(update={"chats": (step.chats[0].model_copy(update={"completion": completion}),)})
    demo = compile_episode(toy.trajectory("d", [step], purpose=Purpose.DEMO), policy)
    assert (demo.steps[0].prompt, demo.steps[0].tokens) == ((3,), (6, 7))
    assert compile_episode(toy.trajectory("d", [step]), policy) is None


def test_the_cache_is_bounded_and_decodes_again(toy, policy) -> None:
    loads: list[str] = []

    def load(digests):
        loads.extend(digests)
        return {d: toy.pixels[d] for d in digests if d in toy.pixels}

    cache = ImageCache(policy.image, load, max_bytes=24)
    first, second, third = toy.digests[:3]
    cache.get([first, second])
    cache.get([first, third])
    assert cache.size_bytes == 24
    cache.get([first])
    cache.get([second])
    assert loads == [first, second, third, second]
    with pytest.raises(StoreError, match="nowhere"):
        cache.get(["nowhere"])


def test_what_is_announced_is_decoded_before_it_is_asked_for(toy, policy) -> None:
    decoded: list[bytes] = []
    has_two = threading.Event()

    def decode(data):
        decoded.append(data)
        if len(decoded) == 2:
            has_two.set()
        return policy.image(data)

    cache = ImageCache(decode, lambda digests: {d: toy.pixels[d] for d in digests if d in toy.pixels}, 48)
    first, second = toy.digests[:2]
    cache.announce(["nowhere"])  # an error is that of `get`
    cache.announce([first, second])
    assert has_two.wait(60.0)
    cache.close()  # which waits for what is being decoded
    assert set(cache.get([first, second])) == {first, second}
    assert len(decoded) == 2
    with pytest.raises(StoreError, match="nowhere"):
        cache.get(["nowhere"])


def test_what_ends_an_episode_and_what_teaches_nothing(toy, policy) -> None:
    paid = toy.trajectory("x", [toy.step(1, (1,), (-1.0,), outcome=1.0)], truncated=True)
    assert compile_episode(paid, policy).terminated
    cut, _ = played(toy)
    failed = compile_episode(cut, policy, bootstraps=False)
    assert (failed.terminated, failed.final_images) == (True, ())
    faulted = toy.trajectory("f", [toy.step(1, (1,), (-1.0,))], fault=Fault.DEVICE)
    assert [compile_episode(one, policy) for one in (faulted, toy.trajectory("f", []))] == [None, None]
