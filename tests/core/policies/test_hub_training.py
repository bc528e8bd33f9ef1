"""What of a hub model is trained, and what it costs: adapters by family, frozen towers, recomputed layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

import torch
from hub_models import FAMILIES
from policy_fakes import chat, png
from pydantic import ValidationError

from distrl.configs.policy import policy_config
from distrl.configs.schema import Config
from distrl.core.errors import PolicyError
from distrl.core.policies import build_policy
from distrl.core.policies.base import Policy, PromptBatch
from distrl.core.types import Sampling

MakePolicy = Callable[..., Policy]
LAYERS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.fixture(scope="module", params=list(FAMILIES))
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("model")
    FAMILIES[request.param](directory)
    return directory


@pytest.fixture
def make_policy(model_dir: Path) -> MakePolicy:
    def make(**options: object) -> Policy:
        config = {"kind": "hub", "model": str(model_dir), "device": "cpu", **options}
        return build_policy(policy_config(**config), [], 0)

    return make


def batch_of(policy: Policy) -> PromptBatch:
    images = [[policy.image(png(0, (54, 120)))], [policy.image(png(1, (33, 31)))]]
    prompts = [policy.prompt_ids(chat(text), row) for text, row in zip(["red", "go on"], images, strict=True)]
    return policy.collate(prompts, images)


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """Of the log-probability of an answer, by parameter."""
    answer = torch.tensor([policy.completion_ids("tap here")] * 2)
    mask = torch.ones_like(answer, dtype=torch.bool)
    policy.zero_grad()
    policy.score(batch_of(policy), answer, mask, torch.ones(2)).logprobs.sum().backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


def adapted(policy: Policy) -> set[str]:
    """Names of the layers that have an adapter, by their place in the model."""
    return {name.split(".lora_A")[0] for name in policy.published_state() if ".lora_A" in name}


def test_adapters_go_into_the_language_model(make_policy: MakePolicy) -> None:
    names = adapted(make_policy(lora={"rank": 2}))
    assert {name.rpartition(".")[2] for name in names} == LAYERS
    assert all(".language_model.layers." in name for name in names)
    assert len(names) == 2 * len(LAYERS)
    names = adapted(make_policy(lora={"rank": 2, "targets": ["q_proj", "v_proj"]}))
    assert {name.rpartition(".")[2] for name in names} == {"q_proj", "v_proj"}
    assert all(".language_model.layers." in name for name in names)


def test_adapters_go_into_the_vision_tower_if_asked(make_policy: MakePolicy) -> None:
    policy = make_policy(lora={"rank": 2, "vision": True})
    inside = {name for name in adapted(policy) if ".language_model." not in name}
    assert inside
    assert all(".visual." in name or ".vision_tower." in name for name in inside)
    assert any("lora_B" in name and "vis" in name for name in gradients(policy))


def test_targets_must_exist(make_policy: MakePolicy) -> None:
    with pytest.raises(PolicyError, match=r"no layers named \['qkv'\]\. It has down_proj, gate_proj, k_proj"):
        make_policy(lora={"targets": ["q_proj", "qkv"]})


def test_full_training_leaves_the_eyes_as_they_are_unless_asked(make_policy: MakePolicy) -> None:
    names = set(gradients(make_policy()))
    assert names
    assert all(".language_model." in name or "lm_head" in name for name in names)
    assert any(
        ".language_model." not in name for name in set(gradients(make_policy(train_vision=True))) - names
    )


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_recomputed_layers_have_the_same_gradients(make_policy: MakePolicy, lora: object) -> None:
    plain, thrifty = make_policy(lora=lora), make_policy(lora=lora, gradient_checkpointing=True)
    counts = {"plain": 0, "thrifty": 0}
    for name, policy in (("plain", plain), ("thrifty", thrifty)):

        def count(module, inputs, output, name=name) -> None:
            counts[name] += 1

        (layer,) = [m for n, m in policy.named_modules() if n.endswith("language_model.layers.0.self_attn")]
        layer.register_forward_hook(count)
    expected, found = gradients(plain), gradients(thrifty)
    assert counts == {"plain": 1, "thrifty": 2}
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)
    assert not any(module.training for module in thrifty.modules())
    thrifty.states(batch_of(thrifty))
    greedy = [Sampling(temperature=0.0, max_new_tokens=4)] * 2
    assert thrifty.generate(batch_of(thrifty), greedy) == plain.generate(batch_of(plain), greedy)


def test_half_precision_keeps_log_probabilities_and_adapters_in_full(make_policy: MakePolicy) -> None:
    policy = make_policy(dtype="bfloat16", lora={"rank": 2}, attention="eager")
    assert policy.get_submodule("model").get_output_embeddings().weight.dtype is torch.bfloat16  # type: ignore[operator]
    assert {tensor.dtype for tensor in policy.published_state().values()} == {torch.float32}
    answer = torch.tensor([policy.completion_ids("tap")] * 2)
    scores = policy.score(batch_of(policy), answer, torch.ones_like(answer).bool(), torch.ones(2))
    assert scores.logprobs.dtype is torch.float32
    assert torch.isfinite(scores.logprobs).all()
    exact = make_policy(lora={"rank": 2}).score(
        batch_of(policy), answer, torch.ones_like(answer).bool(), torch.ones(2)
    )
    torch.testing.assert_close(scores.logprobs, exact.logprobs, atol=0.05, rtol=0)


def test_an_engine_that_does_not_serve_the_policy_is_refused_before_anything_runs() -> None:
    policy = {"kind": "hub", "model": "m", "lora": {"vision": True}}
    Config.model_validate({"policy": policy})
    with pytest.raises(ValidationError, match="vLLM does not serve"):
        Config.model_validate({"policy": policy, "inference": {"engine": "vllm"}})
