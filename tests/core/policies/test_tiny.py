"""The embedded policy: what it samples is what it scores, and it can be published, saved and loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from policy_fakes import chat, check_agreement, padded, png, png_without_palette, swap
from torch.utils._python_dispatch import TorchDispatchMode

from distrl.configs.policy import TinyConfig
from distrl.core import policies
from distrl.core.actions import Action
from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.base import Policy, PromptBatch
from distrl.core.types import ChatMessage, Sampling, TextPart
from distrl.workers.agents.autoui import AutoUIAgent

MakePolicy = Callable[..., Policy]
MakeBatch = Callable[..., PromptBatch]
GOALS = ["open settings", "red shoes and an unknown word", "x", "open the alarm at 7:20", "shoes"]
TEMPERATURES = [1.0, 0.5, 0.0, 2.0, 1.0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lora": {"rank": 2}},
        {"num_layers": 1, "image_size": (33, 47)},
        {"num_layers": 1, "num_decoder_layers": 3},
    ],
)
def test_sampled_and_scored_log_probabilities_agree(
    make_policy: MakePolicy, make_batch: MakeBatch, options: dict[str, object]
) -> None:
    policy = make_policy(**options)
    batch = make_batch(policy, GOALS)
    check_agreement(policy, batch, TEMPERATURES, (32, 5, 32, 32, 1))
    swap(policy)
    check_agreement(policy, batch, TEMPERATURES, (32, 5, 32, 32, 1))


def test_a_request_for_many_tokens_takes_no_more_than_its_keys_and_values(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, sizes = make_policy(), []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            sizes.append(result.numel() if isinstance(result, torch.Tensor) else 0)
            return result

    with Watch():
        policy.generate(make_batch(policy, GOALS[:1]), [Sampling(temperature=0.0, max_new_tokens=2000)])
    assert max(sizes) <= 2000 * policy.state_size


def test_padding_and_company_do_not_change_a_score(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy = make_policy()
    batch = make_batch(policy, GOALS)
    tokens, mask, _ = padded(policy.generate(batch, [Sampling()] * 5, torch.Generator().manual_seed(0)))
    together = policy.score(batch, tokens, mask, torch.ones(5))
    for row in range(5):
        length = int(batch.attention_mask[row].sum())
        alone = PromptBatch(
            batch.input_ids[row : row + 1, :length],
            batch.attention_mask[row : row + 1, :length],
            batch.images[torch.tensor([row])],
        )
        count = int(mask[row].sum())
        scores = policy.score(
            alone, tokens[row : row + 1, :count], mask[row : row + 1, :count], torch.ones(1)
        )
        torch.testing.assert_close(scores.logprobs[0], together.logprobs[row, :count], atol=1e-4, rtol=0)
        torch.testing.assert_close(scores.entropy[0], together.entropy[row, :count], atol=1e-4, rtol=0)


def test_a_picture_that_several_steps_show_is_looked_at_once_and_learnt_from_as_often(
    make_policy: MakePolicy,
) -> None:
    policy, rows = make_policy().double(), torch.tensor([5, 0, 3, 2])
    distinct = [policy.image(png(seed)) for seed in range(3)]
    shown = [distinct[number] for number in (0, 1, 0, 2, 1, 0)]
    prompts = [policy.prompt_ids(chat(f"open {'settings ' * n}")) for n in range(6)]
    taps = [AutoUIAgent().format(Action.tap(0.1 * n, 0.5)) for n in range(6)]
    tokens = torch.tensor([policy.completion_ids(tap) for tap in taps])[rows]
    looked_at: list[int] = []
    policy.get_submodule("stem").register_forward_hook(lambda *call: looked_at.append(len(call[2])))
    found = []
    for images in (shown, [one.clone() for one in shown]):
        batch = policy.collate(prompts, [[one] for one in images])[rows]
        scores = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(4))
        policy.zero_grad()
        (scores.logprobs.sum() + scores.entropy.sum()).backward()
        slopes = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
        found.append([scores.logprobs, *slopes])
    assert looked_at == [2, 4]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_the_entropy_is_that_of_the_allowed_tokens(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy = make_policy()
    batch = make_batch(policy, ["open settings"])
    size = policy.num_tokens
    many = batch[torch.zeros(size - 1, dtype=torch.int64)]
    tokens = torch.arange(1, size)[:, None]
    scores = policy.score(many, tokens, torch.ones_like(tokens).bool(), torch.ones(size - 1))
    log_p = scores.logprobs[:, 0].detach()
    torch.testing.assert_close(log_p.exp().sum(), torch.tensor(1.0))
    torch.testing.assert_close(-(log_p.exp() * log_p).sum(), scores.entropy[0, 0].detach())


def test_the_grammar_lets_no_ill_formed_action_through(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    agent = AutoUIAgent()
    policy = make_policy()
    batch = make_batch(policy, ["open settings"] * 64)
    for one in policy.generate(batch, [Sampling(max_new_tokens=16)] * 64, torch.Generator().manual_seed(0)):
        text = policy.text(one.token_ids)
        unfinished = len(one.token_ids) == 16 and '"TYPE"' in text
        empty = text.endswith('"typed_text": ""') and '"TYPE"' in text
        assert unfinished or empty or agent.parse(text).kind.value != "invalid", text


def test_the_same_arguments_build_the_same_policy(make_policy: MakePolicy) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = make_policy(seed=5, words=["a", "b"], lora={"rank": 2})
    assert torch.equal(torch.get_rng_state(), before)  # building leaves other random streams alone
    torch.manual_seed(2)
    two = make_policy(seed=5, words=["b", "a", "b"], lora={"rank": 2})
    assert weights_io.to_bytes(one.state_dict()) == weights_io.to_bytes(two.state_dict())


@pytest.mark.parametrize("options", [{}, {"lora": {"rank": 2}}])
def test_save_and_load_round_trip(
    make_policy: MakePolicy, make_batch: MakeBatch, tmp_path: Path, options: dict[str, object]
) -> None:
    # What an adapter is added to is not saved: the same arguments make it.
    policy, other = make_policy(seed=1, **options), make_policy(seed=1 if options else 2, **options)
    with torch.no_grad():
        for tensor in policy.published_state().values():
            tensor.add_(0.01)
    policy.save(tmp_path)
    other.load(tmp_path)
    mine = policy.published_state()
    assert all(torch.equal(tensor, mine[name]) for name, tensor in other.published_state().items())
    batch = make_batch(policy, GOALS)
    greedy = [Sampling(temperature=0.0)] * 5
    assert policy.generate(batch, greedy) == other.generate(batch, greedy)
    assert (tmp_path / "adapter_model.safetensors").exists() == bool(options)


def test_a_truncated_or_foreign_checkpoint_is_refused(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy = make_policy()
    policy.save(tmp_path)
    with pytest.raises(CheckpointError, match="vocabulary"):
        make_policy(words=["other"]).load(tmp_path)
    with pytest.raises(CheckpointError, match="tensor"):
        make_policy(d_ff=64).load(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        policy.load(tmp_path)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    with pytest.raises(CheckpointError):
        policy.load(tmp_path / "nowhere")


def test_adapters_publish_only_the_adapter(make_policy: MakePolicy) -> None:
    full, adapter = make_policy(), make_policy(lora={"rank": 2})
    assert (full.published_kind(), adapter.published_kind()) == ("full", "adapter")
    assert all("lora" in name for name in adapter.published_state())
    trainable = sum(p.numel() for p in adapter.parameters() if p.requires_grad)
    assert sum(t.numel() for t in adapter.published_state().values()) == trainable
    assert full.published_metadata() == {}
    assert json.loads(adapter.published_metadata()["adapter_config"])["r"] == 2


def test_prompts_that_do_not_fit_are_refused(make_policy: MakePolicy) -> None:
    policy = make_policy(max_prompt_tokens=8)
    with pytest.raises(PolicyError, match="max_prompt_tokens"):
        policy.prompt_ids(chat("red " * 9))
    with pytest.raises(PolicyError, match="one image"):
        policy.prompt_ids((ChatMessage(role="user", parts=(TextPart(text="red"),)),))
    with pytest.raises(PolicyError, match="not a readable image"):
        policy.image(png(0)[:50])
    for data in (b"hello", png_without_palette((9, 9))):
        with pytest.raises(PolicyError, match=r"^These bytes are not a readable image\. Send"):
            policy.image(data)
    assert policy.image(png(0)).shape == (3, 56, 40)


def test_wrong_configurations_are_named(make_policy: MakePolicy) -> None:
    with pytest.raises(PolicyError, match="num_heads"):
        make_policy(num_heads=3)
    with pytest.raises(PolicyError, match=r"policy\.lora\.targets"):
        make_policy(lora={"targets": ["nothing_like_it"]})
    with pytest.raises(PolicyError, match="quantum"):
        make_policy(device="quantum")


@pytest.mark.parametrize(("device", "precision"), [("cpu", "highest"), ("cuda", "high")])
def test_on_a_gpu_float32_is_multiplied_in_tensorfloat32(
    monkeypatch: pytest.MonkeyPatch, device: str, precision: str
) -> None:
    monkeypatch.setattr(policies, "resolve_device", lambda wanted: device)
    before = torch.get_float32_matmul_precision()
    try:
        policies.make_policy(TinyConfig(), ["tap"], 0)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
