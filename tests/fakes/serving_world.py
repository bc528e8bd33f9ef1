"""vLLM beside transformers: engines for one saved model, requests for both, and published weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policy_fakes import chat, png

from distrl.configs.schema import Config
from distrl.core.types import (
    NO_PREFIX,
    ChatMessage,
    Completion,
    ImagePart,
    Prefix,
    Sampling,
    TextPart,
    image_digest,
)

if TYPE_CHECKING:
    from torch import Tensor

    from distrl.core.policies.hub import HubPolicy
    from distrl.workers.inference.engine import Engine, Prepared, Result

LORA = {"rank": 4, "alpha": 8.0, "targets": ["q_proj", "v_proj", "o_proj"]}
WAIT_S = 120.0


def make_config(model: Path, lora: dict[str, object] | None, **vllm: object) -> Config:
    policy = {
        "kind": "hub",
        "model": str(model),
        "max_prompt_tokens": 200,
        "device": "cpu",
        "lora": lora,
    }
    vllm = {
        "max_adapters": 3,
        "kv_cache_gb": 0.0625,
        "images_per_prompt": 3,
        "options": {"block_size": 32},
        **vllm,
    }
    return Config.model_validate(
        {
            "policy": policy,
            "inference": {"engine": {"kind": "vllm", **vllm}, "max_batch": 16},
            "learner": {"max_new_tokens": 40},
        }
    )


def weights(policy: HubPolicy, seed: int) -> dict[str, Tensor]:
    """What a learner would publish: the policy's tensors, moved at random."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    state = policy.published_state()
    return {
        name: tensor
        + 0.3 * tensor.abs().mean().clamp(min=0.05) * torch.randn(tensor.shape, generator=generator)
        for name, tensor in state.items()
    }


def request(engine: Engine, text: str, sampling: Sampling, picture: int = 0) -> Prepared:
    data = png(picture)
    digest = image_digest(data)
    return engine.prepare(chat(text, digest), {digest: data}, sampling)


@dataclass
class Answers:
    """Collects what `submit` answers; says when all of it is there."""

    expected: int
    results: dict[int, list[Result]] = field(default_factory=dict)
    complete: threading.Event = field(default_factory=threading.Event)

    def __call__(self, index: int, result: Result) -> None:
        self.results.setdefault(index, []).append(result)
        if len(self.results) == self.expected:
            self.complete.set()

    def wait(self) -> list[Result]:
        """One result for each request, in order."""
        assert self.complete.wait(WAIT_S), f"{len(self.results)} of {self.expected} were answered"
        assert all(len(results) == 1 for results in self.results.values()), "answered twice"
        return [self.results[index][0] for index in range(self.expected)]

    def completions(self) -> list[Completion]:
        found = self.wait()
        for result in found:
            if isinstance(result, Exception):
                raise result
        return [result for result in found if isinstance(result, Completion)]


def submit(engine: Any, requests: Sequence[Prepared]) -> Answers:
    answers = Answers(len(requests))
    engine.submit(requests, answers)
    return answers


def show(engine: Engine, pictures: Sequence[int], text: str, prefix: Prefix = NO_PREFIX) -> Prepared:
    """A greedy request that shows pictures; those of the prefix are numbered from 0."""
    data = [png(number) for number in range(10)]
    images = {image_digest(one): one for one in data}
    parts = (*(ImagePart(digest=image_digest(data[number])) for number in pictures), TextPart(text=text))
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    return engine.prepare((ChatMessage(role="user", parts=parts),), images, greedy, prefix)


def scores(policy: HubPolicy, requests: Sequence[Prepared], completions: Sequence[Completion]) -> list[float]:
    """What the learner computes for sampled tokens, all in one row."""
    import torch

    batch = policy.collate([r.prompt_ids for r in requests], [r.images for r in requests])
    width = max(len(one.token_ids) for one in completions)
    tokens = torch.tensor([[*one.token_ids, *[0] * (width - len(one.token_ids))] for one in completions])
    mask = torch.tensor([[i < len(one.token_ids) for i in range(width)] for one in completions])
    temperature = torch.tensor([one.sampling.temperature for one in completions])
    with torch.no_grad():
        found: list[float] = policy.score(batch, tokens, mask, temperature).logprobs[mask].tolist()
    return found
