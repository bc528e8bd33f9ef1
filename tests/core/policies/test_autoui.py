"""AutoUI's policy: the fusion by another formula, sampling and scoring, what is trained, saved and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from autoui_models import FEATURES, SPECIAL, D, save_autoui, save_blip2, save_t5
from policy_fakes import chat, check_agreement, png, swap
from safetensors.torch import save_file
from torch import Tensor
from transformers_decoding import TransformersDecoding

from distrl.configs.policy import policy_config
from distrl.core.errors import CheckpointError, ContextFull, PolicyError
from distrl.core.policies import autoui, build_critic, build_policy, checkpoint_words
from distrl.core.policies.autoui import AutoUIPolicy, FrozenEyes
from distrl.core.policies.autoui_model import COPIES, UNUSED, FusedT5, load_model, named_tensors, read_tensors
from distrl.core.policies.base import PromptBatch
from distrl.core.policies.t5_decoding import T5Decoding
from distrl.core.types import Sampling

GOALS = ["Goal: open settings", "Previous Actions: Goal: red", "Goal: turn on the alarm at 7:20"]
TEMPERATURES = [1.0, 0.0, 0.6]
LORA = {"rank": 2}
Make = Callable[..., AutoUIPolicy]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of AutoUI's, two plain T5s, and a BLIP-2."""
    directory: Path = tmp_path_factory.mktemp("models")
    save_autoui(directory / "autoui")
    save_t5(directory / "flan")
    save_t5(directory / "tied", is_tied=True)
    save_blip2(directory / "blip2")
    return directory


@pytest.fixture
def make(models: Path) -> Make:
    def make_policy(
        model: str = "autoui", eyes: bool = True, seed: int = 0, **options: object
    ) -> AutoUIPolicy:
        given = {"kind": "autoui", "model": str(models / model), "device": "cpu"}
        look = {"image_features": str(models / "blip2")} if eyes else {"image_size": (40, 56)}
        config = policy_config(**{**given, **look, **options})
        policy = build_policy(config, [], seed)
        assert isinstance(policy, AutoUIPolicy)
        return policy

    return make_policy


def batch_of(policy: AutoUIPolicy, shown: Sequence[int] = (1, 2, 1)) -> PromptBatch:
    """Prompts that show so many pictures each, all pictures different."""
    numbers = iter(range(100))
    images = [[policy.image(png(next(numbers))) for _ in range(count)] for count in shown]
    return policy.collate([policy.prompt_ids(chat(goal)) for goal in GOALS[: len(shown)]], images)


def completions(policy: AutoUIPolicy, count: int = 3) -> tuple[Tensor, Tensor]:
    tokens = torch.tensor([policy.completion_ids("tap here")] * count)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 3:] = False
    return tokens, mask


@pytest.mark.parametrize("options", [{}, {"model": "tied"}, {"lora": LORA}, {"dtype": "bfloat16"}], ids=str)
def test_it_writes_what_it_writes_through_transformers(
    make: Make, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    policy = make(**options)  # type: ignore[arg-type]
    if "lora" in options:
        for parameter in policy.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    batch = batch_of(policy)
    sampling = [
        Sampling(temperature=t, max_new_tokens=n) for t, n in zip(TEMPERATURES, (9, 12, 3), strict=True)
    ]
    found = []
    for decoding in (T5Decoding, TransformersDecoding):
        monkeypatch.setattr(autoui, "T5Decoding", decoding)
        found.append(policy.generate(batch, sampling, torch.Generator().manual_seed(0)))
    fast, slow = found
    assert [one.token_ids for one in fast] == [one.token_ids for one in slow]
    for one, other in zip(fast, slow, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-2 if "dtype" in options else 1e-5)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def slow_fusion(policy: AutoUIPolicy, text: np.ndarray, features: np.ndarray) -> np.ndarray:
    """AutoUI's equations for one prompt, state by state: text [P, d], features [K, F]."""
    state = {name: x.double().numpy() for name, x in policy.model.state_dict().items() if "t5" not in name}
    d = text.shape[1]
    weight, bias = state["mha_layer.in_proj_weight"], state["mha_layer.in_proj_bias"]
    (wq, wk, wv), (bq, bk, bv) = np.split(weight, 3), np.split(bias, 3)
    images = features @ state["image_dense.weight"].T + state["image_dense.bias"]
    fused = np.zeros_like(text)
    for place, h in enumerate(text):
        scores = np.array([(wq @ h + bq) @ (wk @ v + bk) / np.sqrt(d) for v in images])
        mixed = sum(a * (wv @ v + bv) for a, v in zip(softmax(scores), images, strict=True))
        seen = state["mha_layer.out_proj.weight"] @ mixed + state["mha_layer.out_proj.bias"]
        gate = state["gate_dense.weight"] @ np.concatenate([h, seen]) + state["gate_dense.bias"]
        gate = 1 / (1 + np.exp(-gate))
        fused[place] = (1 - gate) * h + gate * seen
    return fused


def slow_features(models: Path, data: bytes) -> np.ndarray:
    """What AutoUI's code asks BLIP-2 for: the pooled state of the vision tower, by the whole model."""
    import io

    from PIL import Image
    from transformers import AutoImageProcessor, Blip2Model

    model = Blip2Model.from_pretrained(models / "blip2").eval()
    processor = AutoImageProcessor.from_pretrained(models / "blip2", backend="pil")
    with torch.no_grad():
        inputs = processor(images=Image.open(io.BytesIO(data)), return_tensors="pt")
        pooled = model.get_image_features(**inputs).pooler_output[0]
    found: np.ndarray = pooled.double().numpy()
    return found


@pytest.mark.parametrize("attended", [1, 2, 3])
def test_the_decoder_reads_what_autoui_s_equations_say(make: Make, models: Path, attended: int) -> None:
    policy = make(attended_images=attended)
    batch = batch_of(policy)
    features = {n: slow_features(models, png(n)) for n in range(4)}
    shown = [[0], [1, 2], [3]]
    encoder = policy.model.t5.encoder
    with torch.no_grad():
        states, _ = policy._encode(batch)
        text = encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    for row, numbers in enumerate(shown):
        before = [np.zeros(FEATURES)] * attended + [features[n] for n in numbers]
        length = int(batch.attention_mask[row].sum())
        expected = slow_fusion(policy, text[row, :length].double().numpy(), np.stack(before[-attended:]))
        np.testing.assert_allclose(states[row, :length].numpy(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model", ["flan", "tied"])
def test_without_a_fusion_the_network_is_transformers_t5(make: Make, models: Path, model: str) -> None:
    from transformers import T5ForConditionalGeneration

    policy = make(model)
    with torch.no_grad():
        policy.model.gate_dense.weight.zero_()
        policy.model.gate_dense.bias.fill_(-100.0)  # nothing of the pictures comes through
    batch, (tokens, mask) = batch_of(policy), completions(policy)
    t5 = T5ForConditionalGeneration.from_pretrained(models / model).eval()
    with torch.no_grad():
        found = policy.score(batch, tokens, mask, torch.ones(3)).logprobs
        logits = t5(batch.input_ids, attention_mask=batch.attention_mask, labels=tokens).logits
    allowed = [n for n in range(len(policy.tokenizer)) if n == 1 or n >= len(SPECIAL)]
    log_probs = torch.full_like(logits, -torch.inf)
    log_probs[..., allowed] = logits[..., allowed].log_softmax(-1)
    expected = log_probs.gather(2, tokens[..., None]).squeeze(2)
    torch.testing.assert_close(found[mask], expected[mask], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"eyes": False, "model": "flan"}, {"lora": LORA, "attended_images": 2}]
)
def test_sampled_and_scored_log_probabilities_agree_also_after_a_swap(make: Make, options: dict) -> None:  # type: ignore[type-arg]
    policy = make(**options)
    for _ in range(2):
        written = check_agreement(policy, batch_of(policy))
        assert not written & {0, 2, 3}, "special tokens are never written"
        assert max(written) < len(policy.tokenizer)
        swap(policy)


def test_states_are_those_of_scoring_and_the_critic_sees_every_picture(make: Make) -> None:
    policy = make()
    batch, (tokens, mask) = batch_of(policy), completions(policy)
    scores, states = policy.score(batch, tokens, mask, torch.ones(3)), policy.states(batch)
    torch.testing.assert_close(states.hidden, scores.states.hidden)
    assert not scores.states.hidden.requires_grad
    assert policy.encode(batch).hidden.requires_grad
    assert states.mask[:, :2].tolist() == [[0, 1], [1, 1], [0, 1]]
    assert torch.equal(states.mask[:, 2:], batch.attention_mask)
    other = policy.collate(
        [policy.prompt_ids(chat(GOALS[1]))], [[policy.image(png(77)), policy.image(png(2))]]
    )
    same = batch[torch.tensor([1])]
    with torch.no_grad():
        one = policy.score(other, tokens[1:2], mask[1:2], torch.ones(1))
        two = policy.score(same, tokens[1:2], mask[1:2], torch.ones(1))
    torch.testing.assert_close(one.logprobs, two.logprobs, msg="the policy reads the present screen only")
    assert not torch.allclose(one.states.hidden[:, 0], two.states.hidden[:, 0])
    for kind in ("attention", "head"):
        critic = build_critic(policy, 0, has_action_values=True, kind=kind)
        assert critic.values(states, torch.zeros(3, dtype=torch.int64)).shape == (3,)
        assert critic.action_values(states, torch.zeros(3, dtype=torch.int64), tokens, mask).shape == (3,)


def test_a_picture_goes_through_blip2_once_and_memory_is_bounded(make: Make, models: Path) -> None:
    policy = make()
    eyes = policy.eyes
    assert isinstance(eyes, FrozenEyes)
    looked: list[int] = []
    eyes._tower.register_forward_hook(lambda module, args, out: looked.append(len(out.pooler_output)))
    first = batch_of(policy)
    assert looked == [4], "one pass for the pictures of a batch"
    again = batch_of(policy)
    assert looked == [4]
    assert all(torch.equal(a, b) for a, b in zip(first.images.flat, again.images.flat, strict=True))  # type: ignore[union-attr]
    size = 4 * FEATURES
    small = FrozenEyes(str(models / "blip2"), "cpu", max_cached_bytes=3 * size)
    pictures = [small.read(png(number)) for number in range(5)]
    kept = small.look([pictures[0], pictures[0]])
    assert torch.equal(kept[0], kept[1])
    assert small.kept.num_bytes == size
    small.look(pictures)
    assert small.kept.num_bytes == 3 * size


def gradients(policy: AutoUIPolicy) -> set[str]:
    batch, (tokens, mask) = batch_of(policy), completions(policy)
    policy.score(batch, tokens, mask, torch.ones(3)).logprobs.sum().backward()
    return {
        name.partition(".")[0] if name.startswith("eyes") else name.split(".")[1]
        for name, p in policy.named_parameters()
        if p.grad is not None and bool(p.grad.abs().sum() > 0)
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"t5", "image_dense", "mha_layer", "gate_dense"}),
        ({"eyes": False, "model": "flan"}, {"t5", "image_dense", "mha_layer", "gate_dense", "eyes"}),
        ({"lora": LORA}, {"t5", "image_dense", "mha_layer", "gate_dense"}),
        ({"gradient_checkpointing": True}, {"t5", "image_dense", "mha_layer", "gate_dense"}),
    ],
)
def test_what_is_trained_is_what_is_published(make: Make, options: dict, expected: set[str]) -> None:  # type: ignore[type-arg]
    policy = make(**options)
    assert gradients(policy) == expected
    is_lora = "lora" in options
    assert policy.published_kind() == ("adapter" if is_lora else "full")
    trained = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained if ".t5." in name) == is_lora
    state = policy.published_state()
    assert sum(x.numel() for x in state.values()) == sum(
        p.numel() for p in policy.parameters() if p.requires_grad
    )
    assert not any("tower" in name or "vision" in name for name in [*state, *policy.state_dict()])


def test_gradients_are_the_same_with_layers_computed_again(make: Make) -> None:
    plain, saving = make(), make(gradient_checkpointing=True)
    for policy in (plain, saving):
        gradients(policy)
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize(
    "options", [{}, {"lora": LORA}, {"model": "tied"}, {"eyes": False, "model": "flan", "lora": LORA}]
)
def test_saved_and_exported_policies_act_alike(make: Make, tmp_path: Path, options: dict) -> None:  # type: ignore[type-arg]
    policy, other = make(**options), make(seed=1, **options)
    with torch.no_grad():
        for tensor in policy.published_state().values():
            tensor.add_(0.05 * torch.randn_like(tensor))
    policy.save(tmp_path)
    assert checkpoint_words(tmp_path) is None
    other.load(tmp_path)
    batch, (tokens, mask) = batch_of(policy), completions(policy)

    def logprobs(one: AutoUIPolicy) -> Tensor:
        with torch.no_grad():
            return one.score(batch, tokens, mask, torch.ones(3)).logprobs

    expected = logprobs(policy)
    torch.testing.assert_close(logprobs(other), expected)
    file = sorted(tmp_path.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        other.load(tmp_path)
    if "eyes" in options:
        with pytest.raises(PolicyError, match="exported as an AutoUI model"):
            policy.export(tmp_path / "out")
        return
    policy.export(tmp_path / "out")
    again = make(model=str(tmp_path / "out"))
    torch.testing.assert_close(logprobs(again), expected, atol=1e-5, rtol=1e-5)


def test_texts_and_prompts(make: Make) -> None:
    policy = make(max_prompt_tokens=24)
    ids = policy.completion_ids('"action_type": "PRESS_BACK"')
    assert ids[-1] == 1
    assert policy.text(ids) == '"action_type": "PRESS_BACK"'
    prompt = policy.prompt_ids(chat("Goal: open settings"))
    assert prompt[-1] == 1
    policy.verify([*prompt, *ids], [policy.image(png(0))])
    with pytest.raises(ContextFull, match=r"policy\.max_prompt_tokens 24"):
        policy.prompt_ids(chat("Goal: open the settings of the phone"))
    with pytest.raises(PolicyError, match="cannot be written"):
        policy.completion_ids("a\\b")
    with pytest.raises(PolicyError, match="shows no picture"):
        policy.verify(prompt, [])
    with pytest.raises(PolicyError, match="is not one of the policy's"):
        policy.verify([policy.num_tokens], [policy.image(png(0))])
    with pytest.raises(PolicyError, match="not a readable image"):
        policy.image(b"nothing")


def load(directory: Path, num_features: int = FEATURES) -> FusedT5:
    return load_model(str(directory), num_features, torch.float32, 0)


def write(directory: Path, state: dict[str, Tensor]) -> None:
    torch.save(state, directory / "pytorch_model.bin")


def test_every_tensor_of_a_checkpoint_is_where_it_belongs(tmp_path: Path) -> None:
    state = save_autoui(tmp_path)
    network = load(tmp_path)
    found = named_tensors(network)
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name
    t5 = network.t5
    assert t5.encoder.embed_tokens is t5.shared
    assert t5.decoder.embed_tokens is t5.shared
    assert t5.lm_head.weight is not t5.shared.weight
    assert not torch.equal(t5.lm_head.weight, t5.shared.weight)


def test_the_ways_in_which_such_checkpoints_are_written(tmp_path: Path) -> None:
    """Without second names, with a tensor that no T5 reads, after data-parallel training, in parts."""
    state = save_autoui(tmp_path)
    expected = {name: x.clone() for name, x in named_tensors(load(tmp_path)).items()}
    write(tmp_path, {name: x for name, x in state.items() if name not in COPIES} | {UNUSED: torch.zeros(2)})
    assert_same(load(tmp_path), expected)
    write(tmp_path, {name: x for name, x in state.items() if name not in ("shared.weight", COPIES[1])})
    assert_same(load(tmp_path), expected)
    write(tmp_path, {f"module.{name}": x for name, x in state.items()})
    assert_same(load(tmp_path), expected)
    (tmp_path / "pytorch_model.bin").unlink()
    parts = {
        f"part-{n}.safetensors": names for n, names in enumerate((sorted(state)[::2], sorted(state)[1::2]))
    }
    for file, names in parts.items():
        save_file({name: state[name].clone() for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(load(tmp_path), expected)


def assert_same(network: FusedT5, expected: dict[str, Tensor]) -> None:
    found = named_tensors(network)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_tied_output_layer_stays_tied(tmp_path: Path) -> None:
    save_t5(tmp_path, is_tied=True)
    t5 = load(tmp_path).t5
    assert t5.lm_head.weight is t5.shared.weight
    assert t5.config.scale_decoder_outputs


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gate_dense__bias": None}, r"tensor 'gate_dense\.bias' is missing"),
        ({"decoder__final_layer_norm__weight": None}, r"'decoder\.final_layer_norm\.weight' is missing"),
        ({"image_dense__more": torch.zeros(1)}, r"'image_dense\.more' is unknown"),
        ({"gate_dense__bias": torch.zeros(D + 1)}, r"'gate_dense\.bias' is \(17,\) .* instead of \(16,\)"),
        ({"shared__weight": torch.zeros(3, D)}, r"is \(3, 16\)"),
        ({"image_dense__weight": torch.zeros(D, 128)}, r"'image_dense\.weight' .*Salesforce/blip2-opt-2\.7b"),
    ],
)
def test_a_wrong_checkpoint_is_refused(
    tmp_path: Path, changes: dict[str, Tensor | None], problem: str
) -> None:
    save_autoui(tmp_path, **changes)
    with pytest.raises(PolicyError, match=problem) as caught:
        load(tmp_path)
    assert "policy.model" in caught.value.message
    assert caught.value.remedy


def test_what_is_no_t5_is_refused(tmp_path: Path) -> None:
    save_blip2(tmp_path / "blip2")
    save_autoui(tmp_path / "cut")
    file = tmp_path / "cut" / "pytorch_model.bin"
    cases = [("blip2", "is a blip-2, not a t5"), ("nowhere", "cannot be loaded"), ("cut", "cannot be loaded")]
    file.write_bytes(file.read_bytes()[:500])
    for name, problem in cases:
        with pytest.raises(PolicyError, match=problem):
            load(tmp_path / name)
    file.unlink()
    with pytest.raises(PolicyError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load(tmp_path / "cut")


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.file,))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    save_autoui(tmp_path)
    torch.save({"shared.weight": Harm(tmp_path / "harmed")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(PolicyError, match="cannot be loaded"):
        load(tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_of_blip2_only_the_vision_tower_is_read(tmp_path: Path) -> None:
    save_blip2(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    wanted = {file for name, file in where.items() if name.startswith("vision_model.")}
    assert wanted != set(where.values())
    for file in set(where.values()) - wanted:
        (tmp_path / file).unlink()
    assert FrozenEyes(str(tmp_path), "cpu").num_features == FEATURES
    lost = sorted(name for name in where if name.startswith("vision_model."))[0]
    index.write_text(json.dumps({"weight_map": {n: f for n, f in where.items() if n != lost}}))
    tensors = read_tensors("k", str(tmp_path), "", "vision_model.")
    assert all(not name.startswith("vision_model.") for name in tensors)


def test_what_is_no_blip2_is_refused(tmp_path: Path) -> None:
    save_blip2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    save_t5(tmp_path / "t5")
    for file in tmp_path.glob("*processor*.json"):
        (tmp_path / "t5" / file.name).write_text(file.read_text())
    with pytest.raises(PolicyError, match="is a t5, not a blip-2"):
        FrozenEyes(str(tmp_path / "t5"), "cpu")
    config["vision_config"]["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PolicyError, match=r"policy\.image_features .*'encoder\.layers\.2.*missing"):
        FrozenEyes(str(tmp_path), "cpu")
