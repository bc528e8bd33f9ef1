"""What a model's files say is what the model has."""

from pathlib import Path

import pytest
import torch
from hub_models import MORE

from distrl.configs.policy import LoraConfig
from distrl.core.errors import PolicyError
from distrl.core.hub_files import find_model
from distrl.core.policies.adapters import attach_adapter
from distrl.core.policies.model_shapes import _text_shape, read_model


def load(model_dir: Path) -> torch.nn.Module:
    from transformers import AutoModelForImageTextToText

    model: torch.nn.Module = AutoModelForImageTextToText.from_pretrained(str(model_dir))
    return model


def test_what_is_counted_is_what_the_model_has(model_dir: Path) -> None:
    model = load(model_dir)
    next(model_dir.glob("*.safetensors")).rename(model_dir / "gone")  # no weights are needed
    known = read_model(str(model_dir))
    (model_dir / "gone").rename(model_dir / "model.safetensors")
    assert known.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    vision = sum(p.numel() for name, p in model.named_parameters() if "vis" in name or "projector" in name)
    assert known.num_vision == vision
    assert sorted(known.shapes.values()) == sorted(tuple(p.shape) for p in model.parameters())


def num_trained(model_dir: Path, lora: LoraConfig) -> int:
    """How many parameters of the model's adapters there are."""
    model = load(model_dir)
    attach_adapter(model, lora)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("vision", [False, True])
@pytest.mark.parametrize("targets", [None, ["o_proj", "down_proj"]])
def test_adapters_are_counted_exactly(model_dir: Path, vision: bool, targets: list[str] | None) -> None:
    lora = LoraConfig(rank=3, targets=targets, vision=vision)
    assert read_model(str(model_dir)).num_lora(lora) == num_trained(model_dir, lora)


@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3.5-moe"])
def test_of_a_mixture_a_token_uses_some_experts_and_adapters_have_all(family: str, tmp_path: Path) -> None:
    MORE[family](tmp_path)
    known = read_model(str(tmp_path))
    experts = sum(p.numel() for name, p in load(tmp_path).named_parameters() if ".experts." in name)
    assert known.num_active == known.num_parameters - known.num_vision - experts // 2, "two of four"
    for has_experts in (False, True):
        lora = LoraConfig(rank=3, experts=has_experts)
        assert known.num_lora(lora) == num_trained(tmp_path, lora)


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


def test_a_model_of_experts_alone_has_the_width_that_a_token_uses() -> None:
    from transformers import Qwen3_5MoeTextConfig

    text = Qwen3_5MoeTextConfig(num_experts_per_tok=2, moe_intermediate_size=16)
    assert _text_shape(text).intermediate == 2 * 16
