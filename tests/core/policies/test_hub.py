"""Hub policies: small random models of several families, saved to a directory as a hub would give them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from policy_fakes import chat, check_agreement, png, swap
from transformers import AutoTokenizer, GenerationConfig

from distrl.configs.policy import policy_config
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import CheckpointError, ContextFull, PolicyError
from distrl.core.policies import build_critic, build_policy, checkpoint_words
from distrl.core.policies.base import Policy, PromptBatch
from distrl.core.types import Observation, Sampling
from distrl.workers.agents.arm import ArmAgent
from distrl.workers.agents.gui_models import UITarsAgent

GOALS = ["open settings", "red", "turn on the alarm at 7:20"]
MakePolicy = Callable[..., Policy]
LAYERS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
GLM_LAYERS = LAYERS - {"gate_proj", "up_proj"} | {"gate_up_proj"}
SIZES = [(54, 120), (80, 40), (33, 31)]


def batch_of(policy: Policy) -> PromptBatch:
    images = [[policy.image(png(number, size))] for number, size in enumerate(SIZES)]
    prompts = [policy.prompt_ids(chat(goal), row) for goal, row in zip(GOALS, images, strict=True)]
    return policy.collate(prompts, images)


def test_sampled_and_scored_log_probabilities_agree_also_after_a_swap(make_hub: MakePolicy) -> None:
    policy = make_hub()
    for _ in range(2):
        assert not check_agreement(policy, batch_of(policy)) & {0, 2, 3, 4, 5, 6}
        swap(policy)


def test_a_slim_vocabulary_renormalises_the_full_one(make_hub: MakePolicy) -> None:
    full, slim = make_hub(), make_hub(slim_vocabulary=["tap", "swipe 1"])
    check_agreement(slim, batch_of(slim))
    batch, ids = batch_of(full), slim.completion_ids("tap")
    assert ids == full.completion_ids("tap")
    tokens, one = torch.tensor([ids] * 3), torch.ones(3)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    whole, narrow = (policy.score(batch, tokens, mask, one).logprobs for policy in (full, slim))
    first = torch.tensor([slim.allowed_ids]).T  # each token that may begin an answer
    alone = torch.ones(3, 1, dtype=torch.bool)
    kept = sum(full.score(batch, t.expand(3, 1), alone, one).logprobs.exp() for t in first)
    torch.testing.assert_close(narrow[:, :1], whole[:, :1] - kept.log())
    for texts, written in ((["tap"], "open"), ([""], "tap")):
        with pytest.raises(PolicyError, match=r"policy\.slim_vocabulary"):
            make_hub(slim_vocabulary=texts).completion_ids(written)


def test_the_least_used_tokens_stand_for_the_numbers_of_a_motion(make_hub: MakePolicy) -> None:
    agent, screen = ArmAgent(chunk=2, axes=2, bins=5), Observation(image="f00d", width=64, height=64)
    policy = make_hub(action_bins=5, slim_vocabulary=["0 1 2 3 4"])
    tokenizer = policy.tokenizer  # type: ignore[attr-defined]
    merges = [token for token in range(len(tokenizer)) if token not in tokenizer.added_tokens_decoder]
    ids = policy.completion_ids("0 4; 2 3")
    assert ids == [merges[-5], merges[-1], merges[-3], merges[-2], policy.end_ids[0]]
    assert set(policy.allowed_ids) == {*merges[-5:], *policy.end_ids}
    assert agent.parse(policy.text(ids), screen).motion == ((-1.0, 1.0), (0.0, 0.5))
    check_agreement(policy, batch_of(policy))

    whole = make_hub(action_bins=5)
    assert whole.completion_ids("0 4; 2 3") == ids
    tap = make_hub().completion_ids("tap")
    assert agent.parse(whole.text([*ids[:3], *tap]), screen).kind is ActionKind.INVALID
    for text in ("5 0 0 0", "tap"):
        with pytest.raises(PolicyError, match=r"below policy\.action_bins \(5\)"):
            whole.completion_ids(text)
    with pytest.raises(PolicyError, match="Choose fewer bins"):
        make_hub(action_bins=10**6)


def test_a_model_s_own_generation_settings_do_not_mix_in(
    make_hub: MakePolicy, model_dir: Path, tmp_path: Path
) -> None:
    """Qwen2.5-VL's penalise repetition, of which scoring knows nothing."""
    given = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 1, "suppress_tokens": [*range(7, 60)]}
    directory = tmp_path / "model"
    shutil.copytree(model_dir, directory)
    GenerationConfig(**given, eos_token_id=1).save_pretrained(str(directory))
    policy = make_hub(model=str(directory))
    check_agreement(policy, batch_of(policy))
    policy.export(tmp_path / "exported")
    kept = GenerationConfig.from_pretrained(str(tmp_path / "exported")).to_dict()
    assert {name: kept[name] for name in given} == given


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q_proj"]}])
def test_the_prompts_logits_are_never_made_and_states_are_those_of_scoring(
    make_hub: MakePolicy, lora: object
) -> None:
    policy = make_hub(lora=lora)
    batch = batch_of(policy)
    completion = torch.tensor([policy.completion_ids("tap")] * 3)
    widths: list[tuple[int, ...]] = []
    head = policy.get_submodule("model").get_output_embeddings()  # type: ignore[operator]
    head.register_forward_hook(lambda module, inputs, scores: widths.append(tuple(inputs[0].shape[:-1])))
    mask = torch.ones_like(completion, dtype=torch.bool)
    mask[1, 1:] = False
    scores = policy.score(batch, completion, mask, torch.ones(3))
    states = policy.states(batch)
    assert widths == [(2 * completion.shape[1] + 1,)], "logits of real answer tokens only"
    real = batch.attention_mask.bool()
    torch.testing.assert_close(states.hidden[real], scores.states.hidden[real])
    assert torch.equal(states.mask, scores.states.mask)
    assert not states.hidden.requires_grad
    assert not scores.states.hidden.requires_grad
    assert policy.encode(batch).hidden.requires_grad


def test_adapters_are_trained_published_saved_and_loaded(make_hub: MakePolicy, tmp_path: Path) -> None:
    lora = {"rank": 2, "targets": ["q_proj", "v_proj"]}
    policy, other = make_hub(lora=lora), make_hub(seed=1, lora=lora)
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
    check_agreement(policy, batch_of(policy))
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
        make_hub().load(tmp_path)


def test_without_its_adapter_a_policy_is_the_base_model(make_hub: MakePolicy) -> None:
    policy, base = make_hub(lora={"rank": 2}), make_hub()
    batch, answer = batch_of(policy), torch.tensor([policy.completion_ids("tap")] * 3)
    given = (batch, answer, torch.ones_like(answer).bool(), torch.ones(3))
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
        adapted, expected = policy.score(*given).logprobs, base.score(*given).logprobs
        with policy.without_adapter():
            assert any(parameter.requires_grad for parameter in policy.parameters())
            torch.testing.assert_close(policy.score(*given).logprobs, expected)
        torch.testing.assert_close(policy.score(*given).logprobs, adapted)
    assert float((adapted - expected).abs().max()) > 1e-3
    assert len(gradients(policy)) == len(policy.published_state()), "all of it is still trained"


def test_texts_and_prompts(make_hub: MakePolicy) -> None:
    policy = make_hub(max_prompt_tokens=96)
    ids = policy.completion_ids('"action_type": "PRESS_BACK"')
    assert ids[-1] == 1
    assert policy.text(ids) == '"action_type": "PRESS_BACK"'
    picture = [policy.image(png(0))]
    prompt = policy.prompt_ids(chat("red"), picture)
    assert prompt.count(3) >= 3  # one placeholder for each image feature
    with pytest.raises(ContextFull, match="max_prompt_tokens"):
        policy.prompt_ids(chat("red " * 100), picture)
    critic = build_critic(policy, 0)
    assert critic.values(policy.states(batch_of(policy)), torch.zeros(3, dtype=torch.int64)).shape == (3,)
    policy.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"  # type: ignore[union-attr]
    with pytest.raises(PolicyError, match="rejects the chat: roles must alternate"):
        policy.prompt_ids(chat("red"), picture)


BOXES = ["<|box_start|>", "<|box_end|>"]


@pytest.fixture
def boxed_dir(model_dir: Path, tmp_path: Path) -> Path:
    """The model with UI-TARS's box tokens, which are special."""
    directory = tmp_path / "boxed"
    shutil.copytree(model_dir, directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    known = [token for token in tokenizer.all_special_tokens if token not in ("<|endoftext|>", "<|im_end|>")]
    tokenizer.add_special_tokens({"additional_special_tokens": [*known, *BOXES]})
    tokenizer.save_pretrained(directory)
    return directory


def test_a_model_s_own_tokens_are_written_kept_and_not_broken(make_hub: MakePolicy, boxed_dir: Path) -> None:
    agent, screen = UITarsAgent(), Observation(image="f00d", width=1080, height=2400)
    said = agent.format(Action.tap(0.5, 0.5), screen)
    assert "<|box_start|>(" in said
    system, _ = agent.prompt("go", screen, []).messages
    asks = [system, *chat("<|box_start|> <|im_end|>")]
    own, other = (
        make_hub(model=str(boxed_dir), max_prompt_tokens=900, **more) for more in ({"own_tokens": BOXES}, {})
    )
    picture = [own.image(png(0))]
    boxes = own.tokenizer.convert_tokens_to_ids(BOXES)  # type: ignore[union-attr]
    ids = own.completion_ids(said)
    assert [ids.count(box) for box in boxes] == [1, 1]
    assert own.text(ids) == said
    assert set(boxes) <= set(own.allowed_ids)
    assert own.prompt_ids(asks, picture).count(boxes[0]) == 1
    assert own.prompt_ids(asks, picture).count(own.end_ids[0]) == 2, "of the template"
    check_agreement(own, own.collate([own.prompt_ids(asks, picture)] * 3, [picture] * 3))

    assert not set(boxes) & {
        *other.allowed_ids,
        *other.completion_ids(said),
        *other.prompt_ids(asks, picture),
    }
    assert "< |box_start|>(" in other.text(other.completion_ids(said))
    for wrong in ("<|image_pad|>", "<|im_end|>", "<nothing>"):
        with pytest.raises(PolicyError, match=r"policy\.own_tokens .*: the model has no such special tokens"):
            make_hub(model=str(boxed_dir), own_tokens=[wrong])


def test_options_of_the_chat_template(make_hub: MakePolicy) -> None:
    found = {}
    for thinks in (True, False):
        policy = make_hub(template={"enable_thinking": thinks, "tokenize": True})
        policy.tokenizer.chat_template += "{% if enable_thinking is false %}<no>{% endif %}"  # type: ignore[union-attr]
        found[thinks] = policy.prompt_ids(chat("red"), [policy.image(png(0))])
    silent = policy.completion_ids("<no>")[:-1]
    assert found[False] == [*found[True], *silent]
    more = policy.continuation_ids(policy.completion_ids("tap"), chat("x"), [policy.image(png(0))])
    assert more[-len(silent) :] == silent


@pytest.mark.parametrize("files", [[], ["config.json"]])
def test_what_is_no_model_is_one_clear_error(tmp_path: Path, files: list[str]) -> None:
    for file in files:
        (tmp_path / file).write_text('{"model_type": "bert"}')
    config = policy_config(kind="hub", model=str(tmp_path), device="cpu")
    with pytest.raises(PolicyError, match=r"policy\.model .* cannot be loaded"):
        build_policy(config, [], 0)


def test_a_frozen_vision_tower_is_neither_published_nor_saved(make_hub: MakePolicy, tmp_path: Path) -> None:
    policy, other = make_hub(), make_hub()
    trained = make_hub(train_vision=True)
    whole = sum(tensor.numel() for tensor in trained.published_state().values())
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
def test_an_exported_model_acts_as_the_policy_did(make_hub: MakePolicy, tmp_path: Path, lora: object) -> None:
    bounds = {"max_pixels": 3136} if make_hub().images.has_grid else {}
    policy = make_hub(lora=lora, **bounds)
    with torch.no_grad():
        for tensor in policy.published_state().values():
            tensor.add_(0.05 * torch.randn_like(tensor))
    batch = batch_of(policy)
    completion = torch.tensor([policy.completion_ids("tap here")] * 3)
    mask = torch.ones_like(completion, dtype=torch.bool)
    expected = policy.score(batch, completion, mask, torch.ones(3)).logprobs.detach()
    policy.export(tmp_path)
    other = make_hub(model=str(tmp_path))
    actual = other.score(batch_of(other), completion, mask, torch.ones(3)).logprobs
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert not bounds or other.images.max_pixels == 3136, "as it was trained"


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """Of the log-probability of an answer, by parameter."""
    answer = torch.tensor([policy.completion_ids("tap here")] * 3)
    mask = torch.ones_like(answer, dtype=torch.bool)
    policy.zero_grad()
    policy.score(batch_of(policy), answer, mask, torch.ones(3)).logprobs.sum().backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


def adapted(policy: Policy) -> set[str]:
    """Names of the layers that have an adapter, by their place in the model."""
    return {name.split(".lora_A")[0] for name in policy.published_state() if ".lora_A" in name}


def test_adapters_go_into_the_language_model_and_the_vision_tower_if_asked(
    make_hub: MakePolicy, family: str
) -> None:
    names = adapted(make_hub(lora={"rank": 2}))
    layers = GLM_LAYERS if family == "glm" else LAYERS
    assert {name.rpartition(".")[2] for name in names} == layers
    assert all(".language_model.layers." in name for name in names)
    assert len(names) == 2 * len(layers)
    names = adapted(make_hub(lora={"rank": 2, "targets": ["q_proj", "v_proj"]}))
    assert {name.rpartition(".")[2] for name in names} == {"q_proj", "v_proj"}
    inside = [name for name in adapted(make_hub(lora={"rank": 2, "vision": True})) if "language" not in name]
    assert inside
    assert all(".visual." in name or ".vision_tower." in name for name in inside)
    with pytest.raises(PolicyError, match=r"no layers named \['qkv'\]\. It has down_proj, gate_"):
        make_hub(lora={"targets": ["q_proj", "qkv"]})


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_recomputed_layers_have_the_same_gradients(make_hub: MakePolicy, lora: object) -> None:
    plain, thrifty = make_hub(lora=lora), make_hub(lora=lora, gradient_checkpointing=True)
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
    greedy = [Sampling(temperature=0.0, max_new_tokens=4)] * 3
    assert thrifty.generate(batch_of(thrifty), greedy) == plain.generate(batch_of(plain), greedy)


@pytest.mark.parametrize("lora", [None, {"rank": 2, "targets": ["q_proj"]}])
def test_a_frozen_tower_has_no_gradients_to_compute(make_hub: MakePolicy, lora: object) -> None:
    """They were computed for Qwen2.5-VL: half of the time of an update."""
    policy, found = make_hub(lora=lora, gradient_checkpointing=True), []
    towers = [m for n, m in policy.named_modules() if n.endswith(("visual", "vision_tower"))]
    towers[0].register_forward_hook(lambda module, inputs, output: found.append(output.pooler_output))
    gradients(policy)
    assert [states.requires_grad for states in found] == [False]


def test_half_precision_keeps_log_probabilities_and_adapters_in_full(make_hub: MakePolicy) -> None:
    policy = make_hub(dtype="bfloat16", lora={"rank": 2}, attention="eager")
    assert policy.get_submodule("model").get_output_embeddings().weight.dtype is torch.bfloat16  # type: ignore[operator]
    assert {tensor.dtype for tensor in policy.published_state().values()} == {torch.float32}
    answer = torch.tensor([policy.completion_ids("tap")] * 3)
    whole, batch = torch.ones_like(answer).bool(), batch_of(policy)
    found = policy.score(batch, answer, whole, torch.ones(3)).logprobs
    assert found.dtype is torch.float32
    exact = make_hub(lora={"rank": 2}).score(batch, answer, whole, torch.ones(3)).logprobs
    torch.testing.assert_close(found, exact, atol=0.05, rtol=0)
