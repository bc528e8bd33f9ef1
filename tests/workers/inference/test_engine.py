"""The engine: versions on every token, log-probabilities that a learner would compute, cached images."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import io
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from policy_fakes import chat, png
from sequence_policy import SequencePolicy
from torch import Tensor

from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, PolicyError
from distrl.core.policies import build_policy, weights_io
from distrl.core.policies.base import Generated
from distrl.core.policies.images import ImageCache, decode_image
from distrl.core.types import Completion, Sampling, image_digest
from distrl.workers.inference.engine import Result
from distrl.workers.inference.engine_hf import HFEngine
from distrl.workers.inference.serve import build_engine

MakeConfig = Callable[..., Config]
GOALS = ["open settings", "red shoes", "x y z", "open the alarm"]


def act(engine: HFEngine, goals: list[str], temperature: float = 1.0) -> list[Completion]:
    requests = []
    for number, goal in enumerate(goals):
        data = png(number)
        digest = image_digest(data)
        requests.append(engine.prepare(chat(goal, digest), {digest: data}, Sampling(temperature=temperature)))
    return engine.act(requests)


def learner_scores(
    config: Config, words: list[str], state: bytes, completions: list[Completion]
) -> list[float]:
    """What a learner computes from the record alone: ids, image bytes and published weights."""
    learner = build_policy(config.policy, words, config.seed)
    learner.load_published(weights_io.from_bytes(state))
    batch = learner.collate(
        [one.prompt_token_ids for one in completions],
        [[learner.image(png(n))] for n in range(len(completions))],
    )
    width = max(len(one.token_ids) for one in completions)
    tokens = torch.tensor([[*one.token_ids, *[0] * (width - len(one.token_ids))] for one in completions])
    mask = torch.tensor([[i < len(one.token_ids) for i in range(width)] for one in completions])
    temperature = torch.tensor([one.sampling.temperature for one in completions])
    scores: list[float] = learner.score(batch, tokens, mask, temperature).logprobs[mask].tolist()
    return scores


def test_log_probabilities_equal_the_learners_before_and_after_a_swap(
    make_config: MakeConfig, words: list[str]
) -> None:
    config = make_config()
    engine = build_engine(config, words, "a")
    for version, seed in ((1, 5), (2, 6)):
        published = weights_io.to_bytes(build_policy(config.policy, words, seed).published_state())
        engine.load(version, weights_io.from_bytes(published))
        completions = act(engine, GOALS, temperature=0.7)
        assert {v for one in completions for v in one.weight_versions} == {version}
        assert all(len(one.weight_versions) == len(one.token_ids) == len(one.logprobs) for one in completions)
        sampled = [value for one in completions for value in one.logprobs]
        scores = learner_scores(config, words, bytes(published), completions)
        assert sampled == pytest.approx(scores, abs=1e-4)


def test_servers_of_other_names_draw_other_samples(make_config: MakeConfig, words: list[str]) -> None:
    config = make_config()
    first, same, other = (act(build_engine(config, words, name), GOALS * 4) for name in ("a", "a", "b"))
    assert first == same
    assert first != other


class ShortOfMemory(SequencePolicy):
    """Has memory for so many requests at a time.

    Attributes:
        held: The tensors of batches that failed.
        num_held: How many of them there still were in each later call.
        sizes: Of the batches.
    """

    def __init__(self, *answers: Sequence[int], room: int = 1) -> None:
        super().__init__(*answers)
        self.room = room
        self.sizes: list[int] = []
        self.held: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self.num_held: list[int] = []

    def generate(self, batch: Any, sampling: Sequence[Sampling], generator: object) -> list[Generated]:
        self.num_held.append(len(self.held))
        self.sizes.append(len(batch))
        if len(batch) > self.room:
            cache = torch.zeros(8)
            self.held.add(cache)
            raise torch.OutOfMemoryError("out of memory")
        return super().generate(batch, sampling, generator)


def test_a_batch_without_room_is_let_go_before_its_halves_are_tried() -> None:
    policy = ShortOfMemory([5, 6], room=2)
    engine = HFEngine(policy, 0)  # type: ignore[arg-type]
    requests = [
        engine.prepare(chat(goal, "a"), {"a": b"1"}, Sampling(max_new_tokens=number + 1))
        for number, goal in enumerate([*GOALS, "red"])
    ]
    results: dict[int, Result] = {}
    engine.submit(requests, lambda index, result: results.update({index: result}))
    assert policy.sizes == [5, 3, 2, 1, 2]
    assert policy.num_held == [0] * len(policy.sizes)
    limits = [results[index].sampling.max_new_tokens for index in range(5)]  # type: ignore[union-attr]
    assert limits == [1, 2, 3, 4, 5], "each has its own"
    engine.check()


class Asserts(SequencePolicy):
    """Its device is lost at the first batch, as after an assertion in a kernel."""

    def generate(self, batch: Any, sampling: Sequence[Sampling], generator: object) -> list[Generated]:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def test_a_lost_device_ends_the_engine() -> None:
    engine = HFEngine(Asserts([5, 6]), 0)  # type: ignore[arg-type]
    requests = [engine.prepare(chat(goal, "a"), {"a": b"1"}, Sampling()) for goal in GOALS]
    engine.submit(requests, lambda _, result: None)
    with pytest.raises(DistrlError, match="device-side assert"):
        engine.check()


def test_the_first_unreadable_picture_is_told_and_the_next_request_goes_on() -> None:
    def decode(data: bytes) -> Tensor:
        if data != images["good"]:
            raise PolicyError(f"{'first' if data == images['a'] else 'second'} is no picture.")
        return decode_image(data, (4, 4))

    images = {"good": png(0), "a": png(1), "b": png(2)}
    pictures = ImageCache(decode, lambda _: images)
    with pytest.raises(PolicyError, match="first"):
        pictures.get(["good", "a", "b"])
    assert torch.equal(pictures.get(["good"])["good"], decode_image(png(0), (4, 4)))


def of_size(width: int, height: int) -> bytes:
    """A picture of one colour: a small file, whatever its size."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def test_pictures_of_too_many_pixels_are_refused_also_those_of_a_request_together() -> None:
    assert decode_image(of_size(4096, 4096), (4, 4)).shape == (3, 4, 4)
    with pytest.raises(PolicyError, match=r"4097x4096 pixels; the limit is 16,777,216"):
        decode_image(of_size(4097, 4096), (4, 4))
    decoded: list[bytes] = []

    def decode(data: bytes) -> Tensor:
        decoded.append(data)
        return torch.zeros(3, 1, 1)

    images = {str(number): of_size(4096, 4096 - number) for number in range(33)}
    pictures = ImageCache(decode, lambda _: images)
    with pytest.raises(PolicyError, match=r"pixels together; the limit is 536,870,912"):
        pictures.get(list(images), is_one_episode=True)
    assert not decoded
    assert len(pictures.get(list(images)[:32], is_one_episode=True)) == 32
