"""Hub policies: small random models of two families, saved to a directory as a hub would give them."""

import string
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from policy_fakes import chat, padded, png
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from distrl.configs.schema import PolicyConfig
from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import build_critic, build_policy, checkpoint_words, weights_io
from distrl.core.policies.base import Generated, Policy, PromptBatch
from distrl.core.types import Sampling

TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }}: {% for p in m.content %}"
    "{% if p.type == 'image' %}IMAGE{% else %}{{ p.text }}{% endif %}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}"
)
SPECIAL = ["<pad>", "<end>", "<turn>", "<image>", "<vision_start>", "<vision_end>", "<video>"]
GOALS = ["open settings", "red", "turn on the alarm at 7:20"]
MakePolicy = Callable[..., Policy]
TEMPERATURES = [1.0, 0.0, 0.6]


def save_tokenizer(directory: Path, template: str) -> None:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    characters = [*string.printable]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=template,
    )
    wrapped.save_pretrained(str(directory))


def save_llava(directory: Path) -> None:
    torch.manual_seed(0)
    text = LlamaConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=SPECIAL.index("<end>"),  # Llama's own would be <turn>
    )
    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=3)
    LlavaForConditionalGeneration(config).save_pretrained(str(directory))
    CLIPImageProcessorPil(size={"height": 28, "width": 28}, do_center_crop=False).save_pretrained(
        str(directory)
    )
    save_tokenizer(directory, TEMPLATE.replace("IMAGE", "<image>"))


def save_qwen(directory: Path) -> None:
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 120,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 14,
            "fullatt_block_indexes": [1],
        },
        image_token_id=3,
        vision_start_token_id=4,
        vision_end_token_id=5,
        video_token_id=6,
    )
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(str(directory))
    Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 56 * 84}).save_pretrained(
        str(directory)
    )
    save_tokenizer(directory, TEMPLATE.replace("IMAGE", "<vision_start><image><vision_end>"))


@pytest.fixture(scope="module", params=[save_llava, save_qwen], ids=["llava", "qwen"])
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("model")
    request.param(directory)
    return directory


@pytest.fixture
def make_policy(model_dir: Path) -> MakePolicy:
    def make(seed: int = 0, **options: object) -> Policy:
        sizes = {"kind": "hub", "model": str(model_dir), "image_size": (56, 84), "device": "cpu"}
        return build_policy(PolicyConfig.model_validate({**sizes, **options}), [], seed)

    return make


def batch_of(policy: Policy) -> PromptBatch:
    images = [[policy.image(png(number))] for number in range(len(GOALS))]
    return policy.collate([policy.prompt_ids(chat(goal)) for goal in GOALS], images)


def check_agreement(policy: Policy) -> None:
    batch = batch_of(policy)
    sampling = [
        Sampling(temperature=t, max_new_tokens=n) for t, n in zip(TEMPERATURES, (12, 12, 4), strict=True)
    ]
    generated = policy.generate(batch, sampling, torch.Generator().manual_seed(0))
    assert len(generated[2].token_ids) <= 4
    tokens, mask, logprobs = padded(generated)
    scores = policy.score(batch, tokens, mask, torch.tensor(TEMPERATURES))
    torch.testing.assert_close(scores.logprobs, logprobs, atol=1e-4, rtol=0)
    assert not {token for one in generated for token in one.token_ids} & {0, 2, 3, 4, 5, 6}


def test_sampled_and_scored_log_probabilities_agree_also_after_a_swap(
    make_policy: MakePolicy,
) -> None:
    policy = make_policy()
    check_agreement(policy)
    state = {
        name: tensor + 0.02 * torch.randn_like(tensor) for name, tensor in policy.published_state().items()
    }
    policy.load_published(weights_io.from_bytes(weights_io.to_bytes(state)))
    check_agreement(policy)


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q_proj"]}])
def test_the_prompts_logits_are_never_made_and_states_are_those_of_scoring(
    make_policy: MakePolicy, lora: object
) -> None:
    policy = make_policy(lora=lora)
    batch = batch_of(policy)
    completion = torch.tensor([policy.completion_ids("tap")] * 3)
    widths: list[int] = []
    head = policy.get_submodule("model").get_output_embeddings()  # type: ignore[operator]
    head.register_forward_hook(lambda module, inputs, logits: widths.append(logits.shape[1]))
    scores = policy.score(batch, completion, torch.ones_like(completion, dtype=torch.bool), torch.ones(3))
    states = policy.states(batch)
    assert widths == [completion.shape[1] + 1, 1]
    real = batch.attention_mask.bool()
    torch.testing.assert_close(states.hidden[real], scores.states.hidden[real])
    assert torch.equal(states.mask, scores.states.mask)
    assert not states.hidden.requires_grad


def test_adapters_are_trained_published_saved_and_loaded(make_policy: MakePolicy, tmp_path: Path) -> None:
    lora = {"rank": 2, "targets": ["q_proj", "v_proj"]}
    policy, other = make_policy(lora=lora), make_policy(seed=1, lora=lora)
    batch = batch_of(policy)
    completion = torch.tensor([policy.completion_ids("tap here")] * 3)
    mask = torch.ones_like(completion, dtype=torch.bool)
    optimiser = torch.optim.SGD([p for p in policy.parameters() if p.requires_grad], lr=1.0)
    for _ in range(2):
        loss = -policy.score(batch, completion, mask, torch.ones(3)).logprobs.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert policy.published_kind() == "adapter"
    assert all("lora" in name for name in policy.published_state())
    check_agreement(policy)
    policy.save(tmp_path)
    assert (tmp_path / "adapter_config.json").is_file()
    assert checkpoint_words(tmp_path) is None
    other.load(tmp_path)
    with torch.no_grad():
        expected = policy.score(batch, completion, mask, torch.ones(3)).logprobs
        torch.testing.assert_close(other.score(batch, completion, mask, torch.ones(3)).logprobs, expected)
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        other.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors"):
        make_policy().load(tmp_path)


def test_a_fully_trained_model_is_saved_and_loaded(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy, other = make_policy(), make_policy()
    with torch.no_grad():
        for tensor in policy.published_state().values():
            tensor.add_(0.01 * torch.randn_like(tensor))
    policy.save(tmp_path)
    other.load(tmp_path)
    greedy = [Sampling(temperature=0.0, max_new_tokens=8)] * 3
    assert other.generate(batch_of(other), greedy) == policy.generate(batch_of(policy), greedy)


def test_texts_and_prompts(make_policy: MakePolicy) -> None:
    policy = make_policy()
    ids = policy.completion_ids('"action_type": "PRESS_BACK"')
    assert ids[-1] == 1
    assert policy.text(ids) == '"action_type": "PRESS_BACK"'
    prompt = policy.prompt_ids(chat("red"))
    assert prompt.count(3) >= 4  # one placeholder for each image feature
    with pytest.raises(PolicyError, match="max_prompt_tokens"):
        policy.prompt_ids(chat("red " * 100))
    critic = build_critic(policy, 0)
    assert critic.values(policy.states(batch_of(policy)), torch.zeros(3, dtype=torch.int64)).shape == (3,)


SLIM = ["tap", "0123456789", "<image>"]


def test_a_slim_vocabulary_renormalises_the_full_one(make_policy: MakePolicy) -> None:
    """Same weights, fewer columns: log-probabilities are the full ones less the log-mass of what is kept."""
    full, slim = make_policy(), make_policy(slim_vocabulary=SLIM)
    batch, texts = batch_of(full), ["tap 10", "tap 7", "pat"]
    with pytest.raises(PolicyError, match=r"policy\.slim_vocabulary"):
        slim.completion_ids("tap 10")  # a space is not kept
    ids = [full.completion_ids(text.replace(" ", "")) for text in texts]
    assert ids == [slim.completion_ids(text.replace(" ", "")) for text in texts]
    tokens, mask, _ = padded([Generated(one, [0.0] * len(one)) for one in ids])
    wide = full.score(batch, tokens, mask, torch.ones(3))
    narrow = slim.score(batch, tokens, mask, torch.ones(3))
    kept = sorted({*full.completion_ids("tap0123456789")})
    for position in range(tokens.shape[1]):
        mass = torch.zeros(3)
        for token in kept:
            other = tokens.clone()
            other[:, position] = token
            mass += full.score(batch, other, mask, torch.ones(3)).logprobs[:, position].exp()
        real = mask[:, position]
        expected = wide.logprobs[:, position] - mass.log()
        torch.testing.assert_close(narrow.logprobs[real, position], expected[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(narrow.states.hidden, wide.states.hidden)
    head = slim.get_submodule("model").get_output_embeddings()  # type: ignore[operator]
    assert head.weight.shape == (len(kept), 32)
    assert slim.num_tokens == full.num_tokens


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q_proj"]}])
def test_a_slim_policy_samples_scores_and_comes_back(
    make_policy: MakePolicy, tmp_path: Path, lora: object
) -> None:
    policy = make_policy(slim_vocabulary=SLIM, lora=lora)
    check_agreement(policy)
    generated = policy.generate(batch_of(policy), [Sampling(max_new_tokens=30)] * 3)
    assert {token for one in generated for token in one.token_ids} <= {
        *policy.completion_ids("tap0123456789")
    }
    policy.save(tmp_path)
    other = make_policy(slim_vocabulary=SLIM, lora=lora)
    other.load(tmp_path)
    greedy = [Sampling(temperature=0.0, max_new_tokens=8)] * 3
    assert other.generate(batch_of(other), greedy) == policy.generate(batch_of(policy), greedy)
    other.load_published(weights_io.from_bytes(weights_io.to_bytes(policy.published_state())))
    if lora is None:
        with pytest.raises(CheckpointError, match="cannot be loaded"):
            make_policy().load(tmp_path)


def test_a_slim_vocabulary_without_actions_is_refused(make_policy: MakePolicy) -> None:
    with pytest.raises(PolicyError, match="no tokens of actions"):
        make_policy(slim_vocabulary=[""])


@pytest.mark.parametrize("files", [[], ["config.json"]])
def test_what_is_no_model_is_one_clear_error(tmp_path: Path, files: list[str]) -> None:
    for file in files:
        (tmp_path / file).write_text('{"model_type": "bert"}')
    config = PolicyConfig(kind="hub", model=str(tmp_path), device="cpu")
    with pytest.raises(PolicyError, match=r"policy\.model .* cannot be loaded"):
        build_policy(config, [], 0)


def test_a_hub_that_cannot_be_reached_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PolicyError, match="cannot be loaded"):
        build_policy(PolicyConfig(kind="hub", model="nobody/no-such-model", device="cpu"), [], 0)


def test_a_frozen_vision_tower_is_neither_published_nor_saved(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    policies = [make_policy(), make_policy()]
    for policy in policies:
        for name, parameter in policy.named_parameters():
            parameter.requires_grad_("vis" not in name)
    policy, other = policies
    whole = sum(tensor.numel() for tensor in make_policy().published_state().values())
    state = policy.published_state()
    assert 0 < sum(tensor.numel() for tensor in state.values()) < whole
    assert not [name for name in state if "vis" in name]
    with torch.no_grad():
        for tensor in state.values():
            tensor.add_(0.01 * torch.randn_like(tensor))
    policy.save(tmp_path)
    other.load(tmp_path)
    greedy = [Sampling(temperature=0.0, max_new_tokens=8)] * 3
    assert other.generate(batch_of(other), greedy) == policy.generate(batch_of(policy), greedy)


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q_proj", "v_proj"]}])
def test_an_exported_model_acts_as_the_policy_did(
    make_policy: MakePolicy, tmp_path: Path, lora: object
) -> None:
    policy = make_policy(lora=lora)
    with torch.no_grad():
        for tensor in policy.published_state().values():
            tensor.add_(0.05 * torch.randn_like(tensor))
    batch = batch_of(policy)
    completion = torch.tensor([policy.completion_ids("tap here")] * 3)
    mask = torch.ones_like(completion, dtype=torch.bool)
    expected = policy.score(batch, completion, mask, torch.ones(3)).logprobs.detach()
    policy.export(tmp_path)
    other = make_policy(model=str(tmp_path))
    actual = other.score(batch_of(other), completion, mask, torch.ones(3)).logprobs
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_a_slim_model_is_not_exported(make_policy: MakePolicy, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="slim_vocabulary"):
        make_policy(slim_vocabulary=SLIM).export(tmp_path)
