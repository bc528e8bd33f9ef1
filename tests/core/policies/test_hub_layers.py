"""What may be done to a language model's layers: compiled by torch, or kept in 4 bits."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_fakes import chat, check_agreement, png
from tiny_qwen import save_qwen3_vl
from torch._dynamo.testing import CompileCounter

from distrl.configs.policy import policy_config
from distrl.core.errors import MissingDependency
from distrl.core.policies import build_policy
from distrl.core.policies.hub import HubPolicy
from distrl.core.types import Sampling

GOALS = ["open settings", "red", "turn on the alarm at 7:20"]
LORA = {"rank": 2, "targets": ["q_proj", "down_proj"]}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HubPolicy]:
    directory = tmp_path_factory.mktemp("model")
    save_qwen3_vl(directory, text={"intermediate_size": 128})  # bitsandbytes takes multiples of 64

    def build(**options: Any) -> HubPolicy:
        given = {"kind": "hub", "model": str(directory), "device": "cpu", "lora": LORA, **options}
        policy = build_policy(policy_config(**given), [], 0)
        assert isinstance(policy, HubPolicy)
        return policy

    return build


def batch_of(policy: HubPolicy, goals: list[str]) -> Any:
    images = [[policy.image(png(number))] for number in range(len(goals))]
    return policy.collate([policy.prompt_ids(chat(g), i) for g, i in zip(goals, images, strict=True)], images)


def loss_and_gradients(policy: HubPolicy, goals: list[str]) -> tuple[float, dict[str, torch.Tensor]]:
    tokens = torch.tensor([policy.completion_ids("tap 1")] * len(goals))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    loss = -policy.score(batch_of(policy, goals), tokens, mask, torch.ones(len(goals))).logprobs.mean()
    policy.zero_grad()
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.timeout(300)
def test_compiled_layers_have_the_same_losses_and_gradients(make: Callable[..., HubPolicy]) -> None:
    plain, compiled = (make(gradient_checkpointing=True) for _ in range(2))
    torch._dynamo.reset()
    counter = CompileCounter()  # runs what it compiles as it is
    compiled.compile_layers(counter)
    for goals in (GOALS, GOALS[:1]):  # batches and lengths differ
        expected, gradients = loss_and_gradients(plain, goals)
        found, its_gradients = loss_and_gradients(compiled, goals)
        assert found == pytest.approx(expected, abs=1e-5)
        assert its_gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(its_gradients[name], gradient, atol=1e-5, rtol=1e-4)
    assert counter.frame_count, "nothing was compiled"
    assert compiled.published_state().keys() == plain.published_state().keys()


def dequantise(policy: HubPolicy, plain: HubPolicy) -> None:
    """Gives `plain` the weights that `policy` computes with; they differ from those that were loaded."""
    from bitsandbytes.functional import dequantize_4bit

    own, changed = dict(plain.named_parameters()), 0.0
    plain.load_published(policy.published_state())
    for name, parameter in policy.named_parameters():
        if parameter.dtype == torch.uint8:
            whole = dequantize_4bit(parameter.data, parameter.quant_state)
            changed = max(changed, float((own[name] - whole).abs().max()))
            own[name].data.copy_(whole)
    assert changed > 1e-3


@pytest.mark.needs("bitsandbytes")
def test_the_language_model_s_layers_are_in_4_bits_and_adapters_learn(
    make: Callable[..., HubPolicy], tmp_path: Path
) -> None:
    policy, plain = make(quantization="nf4"), make()
    types = {name: parameter.dtype for name, parameter in policy.named_parameters()}
    in_four_bits = {name.split(".")[-2] for name, kind in types.items() if kind == torch.uint8}
    assert "up_proj" in in_four_bits
    assert not [n for n, kind in types.items() if kind == torch.uint8 and ("visual" in n or "lm_head" in n)]
    assert all(kind == torch.float32 for name, kind in types.items() if "lora" in name)

    check_agreement(policy, batch_of(policy, GOALS))
    dequantise(policy, plain)
    expected, gradients = loss_and_gradients(plain, GOALS)
    found, its_gradients = loss_and_gradients(policy, GOALS)
    assert found == pytest.approx(expected, abs=2e-2)
    pairs = [(its_gradients[name].flatten(), gradient.flatten()) for name, gradient in gradients.items()]
    assert torch.cosine_similarity(*(torch.cat(column) for column in zip(*pairs, strict=True)), dim=0) > 0.99

    optimiser = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=1e-2)
    first, _ = loss_and_gradients(policy, GOALS)
    for _ in range(8):
        optimiser.step()
        last, _ = loss_and_gradients(policy, GOALS)
    assert last < first - 0.1, (first, last)

    assert policy.published_metadata() == plain.published_metadata()
    policy.save(tmp_path)
    again = make(quantization="nf4")
    again.load(tmp_path)
    greedy = [Sampling(temperature=0.0, max_new_tokens=4)] * 3
    answers = (one.generate(batch_of(one, GOALS), greedy) for one in (again, policy))
    first_ids, second_ids = ([one.token_ids for one in row] for row in answers)
    assert first_ids == second_ids
    plain.load_published(policy.published_state())  # an adapter fits the model in any format
    plain.export(tmp_path / "merged")


def test_without_bitsandbytes_4_bits_are_refused_in_one_line(
    make: Callable[..., HubPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.core.policies.hub.find_spec", lambda name: None)
    assert util.find_spec("torch") is not None, "only the policy's own look is changed"
    with pytest.raises(MissingDependency, match="bitsandbytes, which is not installed"):
        make(quantization="nf4")
