"""What a model's files say is what the model has."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from hub_models import FAMILIES

from distrl.core.errors import PolicyError
from distrl.core.hub_files import find_model
from distrl.core.policies.adapters import attach_adapter
from distrl.core.policies.model_shapes import read_model


@pytest.fixture(scope="module", params=FAMILIES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](made)
    return made


def load(directory: Path) -> torch.nn.Module:
    from transformers import AutoModelForImageTextToText

    model: torch.nn.Module = AutoModelForImageTextToText.from_pretrained(str(directory))
    return model


def test_what_is_counted_is_what_the_model_has(directory: Path) -> None:
    model = load(directory)
    next(directory.glob("*.safetensors")).rename(directory / "gone")  # no weights are needed
    known = read_model(str(directory))
    (directory / "gone").rename(directory / "model.safetensors")
    assert known.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    vision = sum(p.numel() for name, p in model.named_parameters() if "vis" in name or "projector" in name)
    assert known.num_vision == vision
    assert sorted(known.shapes.values()) == sorted(tuple(p.shape) for p in model.parameters())


FLAT = {
    "vocab_size": 120,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
}
"""How the hub's files of these families say the language model's sizes: beside `vision_config`."""
PATCHES = {"depth": 2, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
EYES = {
    "qwen2_vl": {"embed_dim": 16, "mlp_ratio": 4, "hidden_size": 32},
    "qwen2_5_vl": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
    },
}


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("family", EYES)
def test_a_flat_config_json_of_the_hub_is_counted_without_weights(
    tmp_path: Path, family: str, is_tied: bool
) -> None:
    import json

    from transformers import AutoConfig, AutoModelForImageTextToText

    said = FLAT | {"model_type": family, "tie_word_embeddings": is_tied}
    (tmp_path / "config.json").write_text(json.dumps(said | {"vision_config": EYES[family] | PATCHES}))
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(str(tmp_path)))
    known = read_model(str(tmp_path))
    assert sorted(known.shapes.values()) == sorted(tuple(p.shape) for p in model.parameters())
    assert known.num_vision == sum(p.numel() for name, p in model.named_parameters() if ".visual." in name)


def test_adapters_are_counted_exactly(directory: Path) -> None:
    from distrl.configs.policy import LoraConfig

    model = load(directory)
    targets = ["o_proj", "down_proj"]  # not in the towers of all families
    vision = [name for name, _ in model.named_modules() if "vis" in name and name.endswith(tuple(targets))]
    attach_adapter(model, LoraConfig(rank=3, targets=targets))
    trainable = sum(
        p.numel() for name, p in model.named_parameters() if p.requires_grad and "vis" not in name
    )
    assert read_model(str(directory)).num_lora(3, targets) == trainable
    assert (read_model(str(directory)).num_lora(3, targets, vision=True) > trainable) == bool(vision)


@pytest.mark.parametrize("vision", [False, True])
def test_adapters_where_they_usually_are_are_counted_exactly(directory: Path, vision: bool) -> None:
    from distrl.configs.policy import LoraConfig

    model = load(directory)
    attach_adapter(model, LoraConfig(rank=3, targets=None, vision=vision))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert read_model(str(directory)).num_lora(3, None, vision) == trainable


def test_a_picture_s_tokens_are_bounded_by_its_pixels(directory: Path) -> None:
    image = read_model(str(directory)).image
    tokens = [image.num_tokens(pixels) for pixels in (1, 10_000, 20_000, 10**6)]
    assert tokens == sorted(tokens)
    assert image.num_tokens() == image.num_tokens(None if image.is_fixed else image.max_pixels)


def test_what_is_not_here_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PolicyError, match="cache"):
        read_model("nobody/no-such-model")
    snapshot = tmp_path / "models--nobody--some-model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    text = (
        '"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, '
        '"vocab_size": 9'
    )
    (snapshot / "config.json").write_text('{"model_type": "unheard-of", ' + text + "}")
    assert find_model("nobody/some-model") == snapshot
    with pytest.raises(PolicyError, match="unheard-of"):
        read_model("nobody/some-model")
