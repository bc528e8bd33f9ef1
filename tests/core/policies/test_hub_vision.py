"""Features of a frozen vision tower: computed once per picture, and the numbers are those without a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hub_models import save_glm
from policy_fakes import png
from tiny_qwen import FAMILIES

from distrl.configs.policy import policy_config
from distrl.core.policies import build_policy
from distrl.core.policies.base import Pictures, Policy, PromptBatch
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

MakePolicy = Callable[..., Policy]
SIZES = [(54, 120), (80, 40), (33, 31)]
GREEDY = [Sampling(temperature=0.0, max_new_tokens=4)] * 3
LORA = {"rank": 2, "targets": ["q_proj", "v_proj"]}


@pytest.fixture(scope="module", params=[*FAMILIES, "glm46v"])
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MakePolicy:
    directory = tmp_path_factory.mktemp(request.param)
    {**FAMILIES, "glm46v": save_glm}[request.param](directory)

    def build(**options: Any) -> Policy:
        given = {"kind": "hub", "model": str(directory), "device": "cpu", **options}
        return build_policy(policy_config(**given), [], 0)

    return build


def chat(num_pictures: int) -> tuple[ChatMessage, ...]:
    pictures = [ImagePart(digest="0" * 32)] * num_pictures
    return (ChatMessage(role="user", parts=(*pictures, TextPart(text="red"))),)


def batch_of(policy: Policy, numbers: tuple[int, ...] = (0, 1, 2, 0)) -> PromptBatch:
    """A prompt each with one picture, the last with two; of the numbers some may repeat."""
    shown = [[numbers[0]], [numbers[1]], [numbers[2], numbers[3]]]
    images = [[policy.image(png(n, SIZES[n % 3])) for n in row] for row in shown]
    rows = [policy.prompt_ids(chat(len(row)), row) for row in images]
    return policy.collate(rows, images)


def looks(policy: Policy) -> list[int]:
    """How many patches each call of the tower itself has."""
    found: list[int] = []
    (stem,) = [m for n, m in policy.named_modules() if n.endswith("visual.patch_embed")]
    stem.register_forward_hook(lambda module, inputs, output: found.append(len(inputs[0])))
    return found


def scored(policy: Policy, batch: PromptBatch) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probabilities, and the gradients of their sum."""
    answers = torch.tensor([policy.completion_ids("tap")] * 3)
    found = policy.score(batch, answers, torch.ones_like(answers).bool(), torch.ones(3)).logprobs
    policy.zero_grad()
    found.sum().backward()
    return found.detach(), [p.grad.clone() for p in policy.parameters() if p.grad is not None]


@pytest.mark.parametrize("options", [{"lora": LORA}, {}, {"lora": LORA, "gradient_checkpointing": True}])
def test_kept_features_give_the_numbers_of_the_tower(make: MakePolicy, options: dict[str, Any]) -> None:
    plain, cached = make(vision_cache_gb=0, **options), make(**options)
    seen = looks(cached)
    for numbers in ((0, 1, 2, 0), (0, 1, 2, 0), (1, 0, 3, 2)):  # new, kept, and some of both
        batch = batch_of(plain, numbers)
        (expected, gradients), (found, own) = scored(plain, batch), scored(cached, batch)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert len(own) == len(gradients) > 0
        for one, other in zip(own, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        for mine, alone in zip(cached.generate(batch, GREEDY), plain.generate(batch, GREEDY), strict=True):
            assert mine.token_ids == alone.token_ids
            assert mine.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        torch.testing.assert_close(
            cached.states(batch).hidden, plain.states(batch).hidden, rtol=1e-5, atol=1e-5
        )
    assert len(seen) == 2, "once for three pictures, and once for the new one"


def test_prompts_without_pictures_pass(make: MakePolicy) -> None:
    plain, cached = make(vision_cache_gb=0), make()
    text = plain.collate([plain.prompt_ids(chat(0))] * 3, [[], [], []])
    torch.testing.assert_close(scored(cached, text)[0], scored(plain, text)[0])


def test_the_cache_is_bounded(make: MakePolicy) -> None:
    policy = make(vision_cache_gb=1e-9)
    seen, batch = looks(policy), batch_of(policy)
    first, second = scored(policy, batch)[0], scored(policy, batch)[0]
    torch.testing.assert_close(first, second)
    assert len(seen) == 2


@pytest.mark.parametrize("options", [{"train_vision": True}, {"lora": {"rank": 2, "vision": True}}])
def test_a_tower_that_is_trained_is_asked_every_time(make: MakePolicy, options: dict[str, Any]) -> None:
    policy = make(**options)
    seen, batch = looks(policy), batch_of(policy)
    for _ in range(2):
        scored(policy, batch)
    assert len(seen) == 2


def test_known_digests_save_hashing_pixels() -> None:
    pixels = [torch.zeros(3, 4, 4, dtype=torch.uint8), torch.ones(3, 4, 4, dtype=torch.uint8)]
    unknown = Pictures([[pixels[0]], [pixels[1], pixels[0].clone()]])
    first, second, third = unknown.keys
    assert first == third != second
    named = Pictures(unknown.rows, [["a"], ["b", "a"]])
    assert named.keys == ["a", "b", "a"]
    assert named[torch.tensor([1])].keys == ["b", "a"]
