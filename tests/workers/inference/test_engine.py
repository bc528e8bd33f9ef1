"""The engine: versions on every token, log-probabilities that a learner would compute, cached images."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from policy_fakes import chat, png
from sequence_policy import SequencePolicy
from serving_world import request, scores
from torch import Tensor

from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, PolicyError
from distrl.core.policies import build_policy, weights_io
from distrl.core.policies.base import Generated
from distrl.core.policies.images import ImageCache, decode_image
from distrl.core.types import Completion, Sampling
from distrl.workers.inference.engine import HFEngine, Prepared
from distrl.workers.inference.serve import build_engine

MakeConfig = Callable[..., Config]
GOALS = ["open settings", "red shoes", "x y z", "open the alarm"]


def act(engine: HFEngine, temperature: float = 1.0) -> tuple[list[Prepared], list[Completion]]:
    sampling = Sampling(temperature=temperature)
    requests = [request(engine, goal, sampling, picture) for picture, goal in enumerate(GOALS)]
    return requests, engine.act(requests)


def test_log_probabilities_equal_the_learners_before_and_after_a_swap(
    make_config: MakeConfig, words: list[str]
) -> None:
    config = make_config()
    engine = build_engine(config, words, "a")
    for version, seed in ((1, 5), (2, 6)):
        published = weights_io.to_bytes(build_policy(config.policy, words, seed).published_state())
        engine.load(version, weights_io.from_bytes(published))
        requests, completions = act(engine, temperature=0.7)
        assert {v for one in completions for v in one.weight_versions} == {version}
        assert all(len(one.weight_versions) == len(one.token_ids) == len(one.logprobs) for one in completions)
        learner = build_policy(config.policy, words, config.seed)
        learner.load_published(weights_io.from_bytes(published))
        sampled = [value for one in completions for value in one.logprobs]
        assert sampled == pytest.approx(scores(learner, requests, completions), abs=1e-4)


def test_servers_of_other_names_draw_other_samples(make_config: MakeConfig, words: list[str]) -> None:
    config = make_config()
    first, same, other = (act(build_engine(config, words, name))[1] for name in ("a", "a", "b"))
    assert first == same
    assert first != other


def test_a_request_cannot_ask_for_an_answer_without_an_end(make_config: MakeConfig, words: list[str]) -> None:
    """The embedded policy makes room for all tokens of an answer: for a million of them the memory ends."""
    engine = build_engine(make_config(), words, "a")
    asked = [request(engine, "go", Sampling(max_new_tokens=count)) for count in (8, 2**17)]
    assert [one.sampling.max_new_tokens for one in asked] == [8, 4096]


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
